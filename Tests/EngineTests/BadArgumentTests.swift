import CShale
import ShaleTestSupport
import Testing

/// Wrong arguments. Each is answered with the documented error and a message, and changes nothing.
@Suite("Bad arguments")
struct BadArgumentTests {
    let directory = TemporaryDirectory()
    let cache: TestCache

    init() throws { cache = try TestCache(directory.path("cache"), Options(capacity: 1 << 20)) }

    /// The status, and that the failure left a message of more than a word.
    private func expect(
        _ status: Status, _ expected: Status, _ comment: Comment? = nil,
        sourceLocation: SourceLocation = #_sourceLocation
    ) {
        #expect(status == expected, comment, sourceLocation: sourceLocation)
        if status.isError {
            let sentence = lastError()
            #expect(
                sentence.count > 10 && sentence.contains(" "), "not a sentence: \"\(sentence)\"",
                sourceLocation: sourceLocation)
        }
    }

    @Test("An empty key is invalid in every call")
    func emptyKey() throws {
        let empty: [UInt8] = []
        expect(cache.set(empty, "v"), .invalid)
        expect(cache.get(empty).status, .invalid)
        expect(cache.remove(empty), .invalid)
        expect(cache.touch(empty), .invalid)
        expect(cache.increment(empty, by: 1).status, .invalid)
        #expect(try cache.stats().entries == 0)
    }

    @Test("A key of 65,535 bytes is accepted and one of 65,536 is too large in every call")
    func largeKey() throws {
        let largest = [UInt8](repeating: 7, count: 65_535)
        expect(cache.set(largest, "v"), .ok)
        #expect(cache.text(largest) == "v")
        expect(cache.remove(largest), .ok)
        let tooLarge = [UInt8](repeating: 7, count: 65_536)
        expect(cache.set(tooLarge, "v"), .tooLarge)
        expect(cache.get(tooLarge).status, .tooLarge)
        expect(cache.remove(tooLarge), .tooLarge)
        expect(cache.touch(tooLarge), .tooLarge)
        expect(cache.increment(tooLarge, by: 1).status, .tooLarge)
        #expect(try cache.stats().entries == 0)
    }

    @Test("A key size that no memory could have is too large, not a crash")
    func absurdKeySize() {
        let byte: [UInt8] = [1]
        expect(Status(shale_set(cache.handle, byte, Int.max, byte, 1, nil)), .tooLarge)
        var value = shale_value()
        value.struct_size = UInt32(MemoryLayout<shale_value>.size)
        expect(Status(shale_get(cache.handle, byte, Int.max, 0, &value)), .tooLarge)
        expect(Status(shale_set(cache.handle, byte, -1, byte, 1, nil)), .tooLarge)
    }

    @Test("A value over a quarter of the capacity is too large and keeps the old value")
    func tooLargeValue() {
        expect(cache.set("k", "old"), .ok)
        expect(cache.set("k", Pool.random.value(1, (256 << 10) + 1)), .tooLarge)
        #expect(cache.text("k") == "old")
        expect(
            cache.set("k", [UInt8](repeating: 0, count: (256 << 10) + 1)), .tooLarge,
            "a compressible value is measured uncompressed")
        let byte: [UInt8] = [1]
        expect(Status(shale_set(cache.handle, byte, 1, byte, Int.max, nil)), .tooLarge)
        expect(Status(shale_set(cache.handle, byte, 1, byte, -1, nil)), .tooLarge)
        #expect(cache.text("k") == "old")
    }

    @Test("Meta of 65,535 bytes is accepted and more is invalid")
    func meta() {
        let largest = Pool.random.value(2, 65_535)
        expect(cache.set("k", "v", SetOptions(meta: largest)), .ok)
        #expect(cache.get("k").meta == largest)
        expect(cache.set("k", "w", SetOptions(meta: Pool.random.value(2, 65_536))), .invalid)
        #expect(cache.text("k") == "v")
    }

    @Test("Eight tags of up to 65,535 bytes are accepted; nine, an empty one and a longer one are invalid")
    func tags() {
        expect(cache.set("k", "v", SetOptions(tags: (0..<8).map { "t\($0)" })), .ok)
        expect(cache.set("l", "v", SetOptions(tags: [Pool.random.value(1, 65_535)])), .ok)
        expect(cache.set("k", "w", SetOptions(tags: (0..<9).map { "t\($0)" })), .invalid)
        expect(cache.set("k", "w", SetOptions(tags: ["t", ""])), .invalid)
        expect(cache.set("k", "w", SetOptions(tags: [Pool.random.value(1, 65_536)])), .invalid)
        expect(cache.invalidate(""), .invalid)
        expect(cache.invalidate(Pool.random.value(1, 65_536)), .invalid)
        #expect(cache.text("k") == "v")
    }

    @Test("NULL with a size is invalid; NULL without one is an empty value")
    func nullWithSize() {
        let byte: [UInt8] = [1]
        expect(Status(shale_set(cache.handle, nil, 1, byte, 1, nil)), .invalid)
        expect(Status(shale_set(cache.handle, byte, 1, nil, 1, nil)), .invalid)
        expect(Status(shale_get(cache.handle, nil, 1, 0, nil)), .invalid)
        expect(Status(shale_remove(cache.handle, nil, 1, 0)), .invalid)
        expect(Status(shale_touch(cache.handle, nil, 1, 0)), .invalid)
        expect(Status(shale_increment(cache.handle, nil, 1, 1, 0, nil)), .invalid)
        expect(Status(shale_invalidate(cache.handle, nil, 1)), .invalid)
        expect(Status(shale_get_many(cache.handle, 1, nil, 0, nil, nil)), .invalid)
        expect(Status(shale_set_many(cache.handle, 1, nil, nil, nil, nil)), .invalid)
        expect(Status(shale_remove_many(cache.handle, 1, nil, nil)), .invalid)
        #expect(!cache.holds(byte))
        expect(Status(shale_set(cache.handle, byte, 1, nil, 0, nil)), .ok)
        #expect(cache.get(byte).status == .ok)
        #expect(cache.get(byte).value == [])
    }

    @Test("NULL as meta or tags with a count is invalid")
    func nullInOptions() {
        var options = shale_set_options()
        options.struct_size = UInt32(MemoryLayout<shale_set_options>.size)
        options.meta_size = 1
        let byte: [UInt8] = [1]
        expect(Status(shale_set(cache.handle, byte, 1, byte, 1, &options)), .invalid)
        options.meta_size = 0
        options.tag_count = 1
        expect(Status(shale_set(cache.handle, byte, 1, byte, 1, &options)), .invalid)
        var tag = shale_bytes(data: nil, size: 3)
        withUnsafePointer(to: &tag) {
            options.tags = $0
            expect(Status(shale_set(cache.handle, byte, 1, byte, 1, &options)), .invalid)
        }
        #expect(!cache.holds(byte))
    }

    @Test("NULL in place of a cache is invalid, except for close")
    func nullCache() {
        let byte: [UInt8] = [1]
        var value = shale_value()
        value.struct_size = UInt32(MemoryLayout<shale_value>.size)
        var stats = shale_stats()
        stats.struct_size = UInt32(MemoryLayout<shale_stats>.size)
        var cursor: OpaquePointer?
        expect(Status(shale_set(nil, byte, 1, byte, 1, nil)), .invalid)
        expect(Status(shale_get(nil, byte, 1, 0, &value)), .invalid)
        expect(Status(shale_remove(nil, byte, 1, 0)), .invalid)
        expect(Status(shale_remove_many(nil, 0, nil, nil)), .invalid)
        expect(Status(shale_touch(nil, byte, 1, 0)), .invalid)
        expect(Status(shale_increment(nil, byte, 1, 1, 0, nil)), .invalid)
        expect(Status(shale_get_many(nil, 0, nil, 0, nil, nil)), .invalid)
        expect(Status(shale_set_many(nil, 0, nil, nil, nil, nil)), .invalid)
        expect(Status(shale_invalidate(nil, byte, 1)), .invalid)
        expect(Status(shale_clear(nil)), .invalid)
        expect(Status(shale_evict(nil, 1, nil)), .invalid)
        expect(Status(shale_purge(nil, nil)), .invalid)
        expect(Status(shale_verify(nil, nil)), .invalid)
        expect(Status(shale_get_stats(nil, &stats)), .invalid)
        expect(Status(shale_sync(nil)), .invalid)
        expect(Status(shale_cursor_open(nil, &cursor)), .invalid)
        expect(Status(shale_cursor_next(nil, 0, nil, nil)), .invalid)
        expect(Status(shale_open(nil, nil, nil)), .invalid)
        expect(Status(shale_close(nil)), .ok)
        shale_cursor_close(nil)
        shale_value_free(nil)
    }

    @Test("NULL in place of a result is invalid if there would be no answer, and allowed if the header says so")
    func nullResults() {
        expect(cache.set("k", 5.littleEndianBytes), .ok)
        let key = "k".bytes
        expect(Status(shale_get(cache.handle, key, key.count, 0, nil)), .invalid)
        expect(Status(shale_get_stats(cache.handle, nil)), .invalid)
        expect(Status(shale_cursor_open(cache.handle, nil)), .invalid)
        expect(Status(shale_increment(cache.handle, key, key.count, 1, 0, nil)), .ok)
        #expect(cache.get("k").value == 6.littleEndianBytes)
        expect(Status(shale_verify(cache.handle, nil)), .ok)
        expect(Status(shale_purge(cache.handle, nil)), .ok)
        expect(Status(shale_evict(cache.handle, 1, nil)), .ok)
        #expect(!cache.holds("k"))
    }

    @Test("A struct_size too small to hold itself is invalid for every struct")
    func structSizes() {
        let byte: [UInt8] = [1]
        for size: UInt32 in [0, 1, 3] {
            var options = Options().forC
            options.struct_size = size
            var handle: OpaquePointer?
            expect(Status(shale_open(directory.path("other"), &options, &handle)), .invalid, "options of \(size)")
            #expect(handle == nil)
            var setOptions = shale_set_options()
            setOptions.struct_size = size
            expect(Status(shale_set(cache.handle, byte, 1, byte, 1, &setOptions)), .invalid, "set options of \(size)")
            var value = shale_value()
            value.struct_size = size
            // (A zeroed value is ready for use.)
            let wanted: Status = size == 0 ? .miss : .invalid
            expect(Status(shale_get(cache.handle, byte, 1, 0, &value)), wanted, "value of \(size)")
            var stats = shale_stats()
            stats.struct_size = size
            expect(Status(shale_get_stats(cache.handle, &stats)), .invalid, "stats of \(size)")
            var report = shale_report()
            report.struct_size = size
            expect(Status(shale_verify(cache.handle, &report)), .invalid, "report of \(size)")
        }
        #expect(!cache.holds(byte))
        #expect(!exists(directory.path("other")))
    }

    @Test("A smaller struct_size means the defaults for the rest")
    func smallerOptions() throws {
        var options = Options(capacity: 3 << 20, maxEntries: 77, shards: 99).forC
        options.struct_size = UInt32(MemoryLayout.offset(of: \shale_options.max_entries)!)
        options.compression = -5
        var handle: OpaquePointer?
        expect(Status(shale_open(directory.path("other"), &options, &handle)), .ok)
        var stats = shale_stats()
        stats.struct_size = UInt32(MemoryLayout<shale_stats>.size)
        expect(Status(shale_get_stats(handle, &stats)), .ok)
        #expect(stats.capacity == 3 << 20)
        #expect(stats.max_entries == 0)
        expect(Status(shale_close(handle)), .ok)

        var setOptions = shale_set_options()
        setOptions.struct_size = UInt32(MemoryLayout.offset(of: \shale_set_options.max_age_ms)!)
        setOptions.flags = SHALE_SET_PINNED
        setOptions.max_age_ms = -7
        setOptions.tag_count = 1000
        let byte: [UInt8] = [1]
        expect(Status(shale_set(cache.handle, byte, 1, byte, 1, &setOptions)), .ok)
        #expect(cache.get(byte).isPinned)
        #expect(cache.get(byte).expires == never)
    }

    @Test("Results are written only as far as struct_size says")
    func smallerResults() {
        cache.set("k", "v")
        var stats = shale_stats()
        stats.struct_size = UInt32(MemoryLayout.offset(of: \shale_stats.max_entries)!)
        stats.max_entries = 0xABCD
        stats.dictionaries = 0xABCD
        expect(Status(shale_get_stats(cache.handle, &stats)), .ok)
        #expect(stats.entries == 1)
        #expect(stats.capacity == 1 << 20)
        #expect(stats.max_entries == 0xABCD)
        #expect(stats.dictionaries == 0xABCD)
        var report = shale_report()
        report.struct_size = UInt32(MemoryLayout.offset(of: \shale_report.corrupt_records)!)
        report.corrupt_records = 0xABCD
        expect(Status(shale_verify(cache.handle, &report)), .ok)
        #expect(report.records == 1)
        #expect(report.corrupt_records == 0xABCD)
    }

    @Test("Negative ages other than SHALE_NONE are invalid everywhere", arguments: [-2, -1000, Int64.min])
    func negativeAges(age: Int64) throws {
        cache.set("k", "v")
        expect(cache.set("k", "w", SetOptions(maxAge: age)), .invalid)
        expect(cache.set("k", "w", SetOptions(stale: age)), .invalid)
        expect(cache.touch("k", age), .invalid)
        #expect(cache.text("k") == "v")
        #expect(cache.get("k").expires == never)
        #expect { try TestCache(directory.path("other"), Options(maxAge: age)) } throws: {
            ($0 as? Failure)?.status == .invalid
        }
        #expect { try TestCache(directory.path("other"), Options(stale: age)) } throws: {
            ($0 as? Failure)?.status == .invalid
        }
    }

    @Test("Ages near the end of time are accepted and exact")
    func hugeAges() {
        for age in [never, never - 1, 1 << 48, 1 << 62] {
            expect(cache.set("k", "v", .age(age, stale: never)), .ok)
            #expect(cache.text("k") == "v")
            #expect(cache.get("k").expires > cache.get("k").created)
            expect(cache.touch("k", age), .ok)
            #expect(cache.text("k") == "v")
        }
    }

    @Test("Contradictory conditions are invalid")
    func contradictoryFlags() {
        let (_, version) = cache.store("k", "v")
        expect(cache.set("k", "w", SetOptions(flags: SHALE_SET_IF_ABSENT | SHALE_SET_IF_PRESENT)), .invalid)
        expect(
            cache.set("k", "w", SetOptions(flags: SHALE_SET_IF_ABSENT | SHALE_SET_IF_VERSION, version: version)),
            .invalid)
        expect(cache.set("l", "w", SetOptions(flags: SHALE_SET_IF_ABSENT | SHALE_SET_IF_PRESENT)), .invalid)
        #expect(cache.text("k") == "v")
        #expect(!cache.holds("l"))
    }

    @Test("Flags that the header does not name are invalid")
    func unknownFlags() {
        cache.set("k", "v")
        expect(cache.set("k", "w", SetOptions(flags: 0x8000_0000)), .invalid)
        expect(cache.get("k", 0x8000_0000).status, .invalid)
        #expect { try TestCache(directory.path("other"), Options(flags: 0x8000_0000)) } throws: {
            ($0 as? Failure)?.status == .invalid
        }
        #expect(cache.text("k") == "v")
    }

    @Test("A batch gives each key its own status and goes on after a bad one")
    func badKeysInBatches() {
        let long = [UInt8](repeating: 1, count: 65_536)
        let keys = ["a".bytes, [], "b".bytes, long, "c".bytes]
        let values = keys.indices.map { "\($0)".bytes }
        let set = cache.setMany(keys, values)
        expect(set.status, .invalid, "the first error")
        #expect(set.statuses == [.ok, .invalid, .ok, .tooLarge, .ok])
        let got = cache.getMany(keys)
        expect(got.status, .invalid, "the first error")
        #expect(got.lookups.map(\.status) == [.ok, .invalid, .ok, .tooLarge, .ok])
        #expect(got.lookups.map(\.text) == ["0", nil, "2", nil, "4"])
        let removed = cache.removeMany(keys)
        expect(removed.status, .invalid, "the first error")
        #expect(removed.statuses == [.ok, .invalid, .ok, .tooLarge, .ok])
    }

    @Test("On an error or a miss the value's sizes are zero, whatever they were")
    func valueAfterFailure() {
        cache.set("k", "value", SetOptions(meta: "meta"))
        let buffer = ValueBuffer()
        #expect(cache.get("k".bytes, 0, into: buffer) == .ok)
        #expect(buffer.raw.size == 5 && buffer.raw.meta_size == 4)
        #expect(cache.get("absent".bytes, 0, into: buffer) == .miss)
        #expect(buffer.raw.size == 0 && buffer.raw.meta_size == 0)
        #expect(cache.get("k".bytes, 0, into: buffer) == .ok)
        #expect(cache.get([], 0, into: buffer) == .invalid)
        #expect(buffer.raw.size == 0 && buffer.raw.meta_size == 0)
    }

    @Test("A failure's message stays with its thread until the next failure")
    func errorsBelongToThreads() {
        expect(cache.set("", "v"), .invalid)
        let mine = lastError()
        let findings = Findings()
        concurrently(1) { _ in
            if !lastError().isEmpty { findings.add("a new thread starts with \"\(lastError())\"") }
            if cache.touch("k", -5) != .invalid { findings.add("touch accepted -5") }
            if lastError().isEmpty { findings.add("no sentence for the thread's own failure") }
        }
        #expect(findings.all == [])
        #expect(cache.set("k", "v") == .ok)
        #expect(lastError() == mine)
    }

    @Test("Every status has a text, and so has any other number")
    func statusTexts() {
        var texts: Set<String> = []
        for code: shale_status in -10...4 { texts.insert(String(cString: shale_status_text(code))) }
        #expect(texts.count == 15)
        #expect(!texts.contains(""))
        #expect(!String(cString: shale_status_text(-99)).isEmpty)
        #expect(String(cString: shale_version()).split(separator: ".").compactMap { Int($0) }.count == 3)
    }
}
