import CShale
import ShaleTestSupport
import Testing

/// A get returns what was set: bytes, meta, sizes, with any codec.
@Suite("Values")
struct ValueTests {
    let directory = TemporaryDirectory()

    @Test(
        "Values of every size around the places where something changes come back, by every codec",
        arguments: [
            SHALE_COMPRESSION_DICTIONARY, SHALE_COMPRESSION_LZ4, SHALE_COMPRESSION_NONE,
        ])
    func sizes(compression: Int32) throws {
        let cache = try TestCache(
            directory.path, Options(capacity: 16 << 20, segmentSize: 128 << 10, compression: compression))
        var sizes = Array(0...70) + [127, 128, 129, 255, 256, 1_023, 1_024, 4_095, 4_096, 4_097, 65_535, 65_536]
        sizes += [100_000, 131_071, 131_072, 131_073, 262_144, 1_000_000, 4 << 20]
        for size in sizes {
            for (pool, name) in [(Pool.random, "random"), (Pool.text, "text")] {
                let value = pool.value(UInt64(size), size)
                #expect(cache.set("k", value) == .ok, "\(name) \(size): \(lastError())")
                let found = cache.get("k")
                #expect(found.status == .ok && found.value == value, "\(name) \(size)")
                #expect(found.size == size)
                #expect(found.storedSize <= UInt64(size))
            }
        }
    }

    @Test("Keys of every length come back with their own values")
    func keyLengths() throws {
        let cache = try TestCache(directory.path, Options(capacity: 16 << 20))
        let lengths = Array(1...300) + [1_000, 4_096, 16_384, 32_768, 65_534, 65_535]
        for length in lengths { #expect(cache.set([UInt8](repeating: 65, count: length), "\(length)") == .ok) }
        for length in lengths { #expect(cache.text([UInt8](repeating: 65, count: length)) == "\(length)") }
        #expect(try cache.stats().entries == lengths.count)
    }

    @Test("Keys are any bytes, zeros included")
    func anyKeys() throws {
        let cache = try TestCache(directory.path, Options(capacity: 1 << 20))
        let keys: [[UInt8]] = [[0], [0, 0], [0, 0, 0], [255], [0, 255], "ä".bytes, [10], [65], [65, 0]]
        for (number, key) in keys.enumerated() { #expect(cache.set(key, "\(number)") == .ok) }
        for (number, key) in keys.enumerated() { #expect(cache.text(key) == "\(number)") }
        #expect(try Set(cache.entries().keys) == Set(keys))
    }

    @Test("Meta comes back beside the value, with every combination of sizes")
    func meta() throws {
        let cache = try TestCache(directory.path, Options(capacity: 8 << 20, segmentSize: 128 << 10))
        for metaSize in [0, 1, 7, 8, 9, 500, 65_535] {
            for valueSize in [0, 1, 8, 1_000, 100_000, 500_000] {
                let meta = Pool.random.value(UInt64(metaSize), metaSize)
                let value = Pool.text.value(UInt64(valueSize), valueSize)
                #expect(cache.set("k", value, SetOptions(meta: meta)) == .ok)
                let found = cache.get("k")
                #expect(found.meta == meta && found.value == value, "meta of \(metaSize), value of \(valueSize)")
            }
        }
        #expect(cache.set("k", "v") == .ok)
        #expect(cache.get("k").meta.isEmpty)
    }

    @Test("GET_INFO returns everything but the bytes")
    func info() throws {
        let cache = try TestCache(directory.path, Options(capacity: 8 << 20, segmentSize: 128 << 10))
        for size in [0, 10, 5_000, 1_000_000] {
            cache.set(
                "k", Pool.text.value(1, size), SetOptions(flags: SHALE_SET_PINNED, maxAge: 1_000_000, meta: "meta"))
            var expected = cache.get("k")
            expected.value = Blob("")
            #expect(cache.get("k", SHALE_GET_INFO) == expected)
        }
    }

    @Test("Compressible values are stored smaller, incompressible ones and those set UNCOMPRESSED as they are")
    func storedSize() throws {
        let cache = try TestCache(directory.path, Options(capacity: 8 << 20))
        let text = Pool.text.value(1, 10_000)
        cache.set("text", text)
        cache.set("as it is", text, SetOptions(flags: SHALE_SET_UNCOMPRESSED))
        cache.set("random", Pool.random.value(1, 10_000))
        #expect(cache.get("text").storedSize < 10_000 * 7 / 8)
        #expect(cache.get("as it is").storedSize == 10_000)
        #expect(cache.get("random").storedSize == 10_000)
        #expect(cache.get("text").value == text)
        #expect(cache.get("as it is").value == text)
        let none = try TestCache(nil, Options(capacity: 1 << 20, compression: SHALE_COMPRESSION_NONE))
        none.set("text", text)
        #expect(none.get("text").storedSize == 10_000)
    }

    @Test("A handle reads values that another one compressed, whatever its own compression")
    func mixedCompression() throws {
        let codecs = [SHALE_COMPRESSION_DICTIONARY, SHALE_COMPRESSION_LZ4, SHALE_COMPRESSION_NONE]
        let caches = try codecs.map { try TestCache(directory.path, Options(capacity: 8 << 20, compression: $0)) }
        for (number, cache) in caches.enumerated() {
            for item in 0..<200 { #expect(cache.set("\(number) \(item)", Pool.text.value(UInt64(item), 700)) == .ok) }
        }
        for cache in caches {
            for number in caches.indices {
                for item in 0..<200 {
                    #expect(cache.get("\(number) \(item)").value == Pool.text.value(UInt64(item), 700))
                }
            }
        }
    }

    /// Small records that are much alike, as most cached values are.
    private func record(_ number: Int) -> [UInt8] {
        """
        {"id":\(number),"name":"Customer number \(number)","address":{"street":"Long street \(number % 97)","city":"Springfield"},\
        "roles":["reader","writer"],"active":\(number % 3 == 0),"balance":\(number * 37 % 10_007),"currency":"EUR","created":"2024-01-\(10 + number % 20)"}
        """.bytes
    }

    @Test(
        "Small values that are alike share dictionaries, and all come back while those change, after reopen and rebuild"
    )
    func dictionaries() throws {
        let options = Options(capacity: 8 << 20)
        var cache = try TestCache(directory.path, options)
        for number in 0..<20_000 { #expect(cache.set("k\(number)", record(number)) == .ok) }
        func check(_ comment: Comment) throws {
            var count = 0
            try cache.walk { key, entry in
                count += 1
                let number = Int(String(decoding: key.dropFirst(), as: UTF8.self))!
                #expect(entry.value == record(number), "\(comment): \(number)")
            }
            #expect(count > 5_000)
        }
        try check("after the sets")
        let stats = try cache.stats()
        #expect(stats.dictionaries > 0)
        #expect(
            Double(stats.raw_bytes) / Double(stats.stored_bytes) > 1.4,
            "\(stats.raw_bytes) bytes stored in \(stats.stored_bytes)")
        cache.close()
        cache = try TestCache(directory.path, options)
        try check("after a reopen")
        cache.close()
        try CacheFiles(directory.path).removeIndex()
        cache = try TestCache(directory.path, options)
        try check("after a rebuild")
        // Another kind of value makes other dictionaries; values stored with the old ones stay readable.
        for number in 0..<5_000 { #expect(cache.set("t\(number)", Pool.text.value(UInt64(number), 300)) == .ok) }
        try cache.walk { key, entry in
            let number = Int(String(decoding: key.dropFirst(), as: UTF8.self))!
            let expected = key[0] == UInt8(ascii: "k") ? Blob(record(number)) : Pool.text.value(UInt64(number), 300)
            #expect(entry.value == expected)
        }
    }

    @Test("One buffer serves many gets, grows as needed, and never shows bytes of an earlier get")
    func bufferReuse() throws {
        let cache = try TestCache(directory.path, Options(capacity: 8 << 20, segmentSize: 128 << 10))
        let buffer = ValueBuffer()
        var source = RandomSource(testSeed)
        for number in 0..<300 {
            let value = Pool.text.value(UInt64(number), source.logUniform(1...400_000))
            let meta = source.bytes(source.below(100))
            #expect(cache.set("k", value, SetOptions(meta: meta)) == .ok)
            #expect(cache.get("k".bytes, 0, into: buffer) == .ok)
            #expect(Blob(copying: buffer.bytes) == value)
            #expect(Blob(copying: UnsafeRawBufferPointer(start: buffer.raw.meta, count: buffer.raw.meta_size)) == meta)
            #expect(buffer.raw.capacity >= value.count)
        }
    }

    @Test("A buffer that is large enough is not moved")
    func bufferStays() throws {
        let cache = try TestCache(directory.path, Options(capacity: 16 << 20))
        cache.set("large", Pool.random.value(1, 100_000), SetOptions(meta: "meta"))
        for number in 0..<100 { cache.set("k\(number)", Pool.text.value(UInt64(number), 900 * number)) }
        let buffer = ValueBuffer()
        #expect(cache.get("large".bytes, 0, into: buffer) == .ok)
        let data = buffer.raw.data
        let capacity = buffer.raw.capacity
        for number in 1..<100 {
            #expect(cache.get("k\(number)".bytes, 0, into: buffer) == .ok)
            #expect(buffer.raw.data == data)
            #expect(buffer.raw.capacity == capacity)
        }
    }

    @Test("A freed value is like a new one, and can be freed and used again")
    func freedValue() throws {
        let cache = try TestCache(directory.path, Options(capacity: 1 << 20))
        cache.set("k", "value", SetOptions(meta: "meta"))
        let buffer = ValueBuffer()
        for _ in 0..<3 {
            #expect(cache.get("k".bytes, 0, into: buffer) == .ok)
            shale_value_free(&buffer.raw)
            #expect(buffer.raw.data == nil && buffer.raw.meta == nil)
            #expect(buffer.raw.size == 0 && buffer.raw.meta_size == 0 && buffer.raw.capacity == 0)
            #expect(buffer.raw.struct_size == UInt32(MemoryLayout<shale_value>.size))
            shale_value_free(&buffer.raw)
        }
    }

    @Test("An empty value is a hit")
    func emptyValue() throws {
        let cache = try TestCache(directory.path, Options(capacity: 1 << 20))
        #expect(cache.set("k", "") == .ok)
        let found = cache.get("k")
        #expect(found.status == .ok && found.size == 0 && found.value.isEmpty)
        #expect(cache.set("k", "", SetOptions(meta: "meta")) == .ok)
        #expect(cache.get("k").meta == "meta".bytes)
        #expect(cache.set("k", "", .ifAbsent) == .conflict)
        #expect(try cache.stats().entries == 1)
    }
}
