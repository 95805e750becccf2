import CShale
import Foundation
import ShaleTestSupport
import Testing

/// Directories and files that are not a cache, not this user's, or a cache
/// opened with options that rule it out.
@Suite("Bad directories and options")
struct BadDirectoryTests {
    let directory = TemporaryDirectory()
    var files: CacheFiles { CacheFiles(directory.path) }

    /// Opens, expects a failure with one of the statuses and a message that names the path.
    @discardableResult
    private func expectFailure(
        _ path: String, _ options: Options = Options(capacity: 1 << 20), _ expected: Status...,
        naming place: String? = nil,
        sourceLocation: SourceLocation = #_sourceLocation
    ) -> Failure? {
        do {
            let cache = try TestCache(path, options)
            cache.close()
            Issue.record("the open succeeded, expected \(expected)", sourceLocation: sourceLocation)
            return nil
        } catch {
            guard let failure = error as? Failure else {
                Issue.record(error, sourceLocation: sourceLocation)
                return nil
            }
            #expect(expected.contains(failure.status), "\(failure)", sourceLocation: sourceLocation)
            let place = place ?? path
            #expect(
                failure.message.contains(place), "the sentence does not name \(place): \(failure)",
                sourceLocation: sourceLocation)
            #expect(
                failure.message.count > place.count + 5, "the sentence gives no cause: \(failure)",
                sourceLocation: sourceLocation)
            return failure
        }
    }

    private func makeCache(_ options: Options = Options(capacity: 1 << 20)) throws {
        let cache = try TestCache(directory.path, options)
        #expect(cache.set("k", "v") == .ok)
        #expect(cache.close() == .ok)
    }

    /// The cache is still there with its entry.
    private func expectIntact(_ options: Options = Options()) throws {
        #expect(try TestCache(directory.path, options).text("k") == "v")
    }

    // MARK: Places

    @Test("A path that is a file is an I/O error with its errno")
    func pathIsAFile() throws {
        try write("text", to: directory.path("file"))
        let failure = expectFailure(directory.path("file"), Options(), .io)
        #expect(failure?.errno == ENOTDIR)
        #expect(try contents(of: directory.path("file")) == "text".bytes)
    }

    @Test("A path below a file is an I/O error with its errno")
    func pathBelowAFile() throws {
        try write("text", to: directory.path("file"))
        let failure = expectFailure(directory.path("file/cache"), Options(), .io)
        #expect(failure?.errno == ENOTDIR)
    }

    @Test("Missing parents are created")
    func missingParents() throws {
        let path = directory.path("a/b/c")
        #expect(try TestCache(path, Options(capacity: 1 << 20)).set("k", "v") == .ok)
        #expect(exists(CacheFiles(path).data))
    }

    @Test("An empty path is refused")
    func emptyPath() {
        expectFailure("", Options(capacity: 1 << 20), .invalid, .io, naming: "empty")
    }

    @Test("MUST_EXIST on a missing cache is ENOENT and creates nothing")
    func mustExist() throws {
        let path = directory.path("missing")
        let failure = expectFailure(path, Options(flags: SHALE_OPEN_MUST_EXIST), .io)
        #expect(failure?.errno == ENOENT)
        #expect(!exists(path))
        // An empty directory is no cache either.
        let second = expectFailure(directory.path, Options(flags: SHALE_OPEN_MUST_EXIST), .io)
        #expect(second?.errno == ENOENT)
        #expect(!exists(files.data))
    }

    @Test("MUST_EXIST on an existing cache opens it")
    func mustExistAndDoes() throws {
        try makeCache()
        try expectIntact(Options(flags: SHALE_OPEN_MUST_EXIST))
    }

    @Test("A read-only handle creates nothing")
    func readOnlyMissing() throws {
        expectFailure(directory.path("missing"), Options(flags: SHALE_OPEN_READ_ONLY), .io)
        #expect(!exists(directory.path("missing")))
    }

    // MARK: Foreign content

    @Test("A directory that holds other files is refused and not changed")
    func foreignFiles() throws {
        try write("text", to: directory.path("notes.txt"))
        expectFailure(directory.path, Options(capacity: 1 << 20), .format)
        #expect(!exists(files.data))
        #expect(!exists(files.index))
        #expect(try contents(of: directory.path("notes.txt")) == "text".bytes)
    }

    @Test("A data file of another kind is refused and not changed", arguments: [40, 4096, 1 << 20])
    func foreignData(size: Int) throws {
        let text = Pool.text.value(3, size)
        try write(text, to: files.data)
        expectFailure(directory.path, Options(capacity: 1 << 20), .format)
        #expect(try contents(of: files.data) == text)
    }

    @Test("A cache of another version's format is refused and not changed", arguments: [1, UInt32.max / 2])
    func otherVersion(_ other: UInt32) throws {
        try makeCache()
        let version = Array(try contents(of: files.data).bytes[8..<12])
        for copy in [0, 2048] { try patch(files.data, at: copy + 8, with: other.littleEndianBytes) }
        expectFailure(directory.path, Options(), .version)
        expectFailure(directory.path, Options(flags: SHALE_OPEN_READ_ONLY), .version)
        for copy in [0, 2048] { try patch(files.data, at: copy + 8, with: version) }
        try expectIntact()
    }

    @Test("One damaged copy of the superblock costs nothing", arguments: [0, 2048])
    func damagedSuperblock(copy: Int) throws {
        try makeCache()
        try patch(files.data, at: copy, with: Pool.random.value(1, 512))
        try expectIntact()
    }

    @Test("An index of another kind is replaced, and the entries come from the data file")
    func foreignIndex() throws {
        try makeCache()
        try write(Pool.text.value(3, 10_000), to: files.index)
        try expectIntact()
    }

    @Test("An index of another cache is never believed")
    func strangersIndex() throws {
        try makeCache()
        let other = TemporaryDirectory()
        let cache = try TestCache(other.path, Options(capacity: 1 << 20))
        for number in 0..<100 { #expect(cache.set("other \(number)", "v") == .ok) }
        cache.close()
        try write(contents(of: CacheFiles(other.path).index), to: files.index)
        let mixed = try TestCache(directory.path)
        #expect(try Set(mixed.entries().keys) == ["k".bytes])
        #expect(mixed.text("k") == "v")
        #expect(try mixed.verify().corrupt_records == 0)
    }

    // MARK: Files that are not regular

    @Test("A data file that is a symbolic link is refused and its target not changed")
    func symlinkedData() throws {
        try makeCache()
        let elsewhere = TemporaryDirectory()
        let target = elsewhere.path("target")
        try FileManager.default.moveItem(atPath: files.data, toPath: target)
        let before = try contents(of: target)
        try FileManager.default.createSymbolicLink(atPath: files.data, withDestinationPath: target)
        expectFailure(directory.path, Options(), .permission, .format, .io)
        #expect(try contents(of: target) == before)
    }

    @Test("A symbolic link that leads nowhere is not followed to create the data file")
    func danglingSymlink() throws {
        let target = directory.path("target")
        let place = directory.path("cache")
        try FileManager.default.createDirectory(atPath: place, withIntermediateDirectories: false)
        try FileManager.default.createSymbolicLink(atPath: CacheFiles(place).data, withDestinationPath: target)
        expectFailure(place, Options(capacity: 1 << 20), .permission, .format, .io)
        #expect(!exists(target))
    }

    @Test("An index that is a symbolic link is never written through")
    func symlinkedIndex() throws {
        try makeCache()
        let elsewhere = TemporaryDirectory()
        let target = elsewhere.path("target")
        let precious = Pool.text.value(9, 5_000)
        try write(precious, to: target)
        try files.removeIndex()
        try FileManager.default.createSymbolicLink(atPath: files.index, withDestinationPath: target)
        // Refused, or replaced by a private index: both keep the target.
        if let cache = try? TestCache(directory.path) {
            #expect(cache.text("k") == "v")
            #expect(cache.set("l", "w") == .ok)
            cache.close()
        } else {
            #expect(!lastError().isEmpty)
        }
        #expect(try contents(of: target) == precious)
    }

    @Test("A data file with a second link is refused")
    func hardLinkedData() throws {
        try makeCache()
        let elsewhere = TemporaryDirectory()
        try FileManager.default.linkItem(atPath: files.data, toPath: elsewhere.path("link"))
        expectFailure(directory.path, Options(), .permission, .format, .io)
        try FileManager.default.removeItem(atPath: elsewhere.path("link"))
        try expectIntact()
    }

    @Test("A data file that is a pipe or a directory is refused without waiting")
    func notARegularFile() throws {
        try #require(mkfifo(files.data, 0o600) == 0)
        expectFailure(directory.path, Options(), .permission, .format, .io)
        try FileManager.default.removeItem(atPath: files.data)
        try FileManager.default.createDirectory(atPath: files.data, withIntermediateDirectories: false)
        expectFailure(directory.path, Options(), .permission, .format, .io)
    }

    @Test("Files of another owner are refused", .enabled(if: geteuid() == 0))
    func strangersFiles() throws {
        try makeCache()
        try #require(chown(files.data, 1, 1) == 0)
        expectFailure(directory.path, Options(), .permission)
        try #require(chown(files.data, 0, 0) == 0)
        try expectIntact()
    }

    @Test("New files have the requested mode, or 0600, in a directory that only the user can access")
    func modes() throws {
        let plain = directory.path("plain")
        let group = directory.path("group")
        let first = try TestCache(plain, Options(capacity: 1 << 20))
        let second = try TestCache(group, Options(capacity: 1 << 20, mode: 0o640))
        withExtendedLifetime((first, second)) {
            #expect(mode(of: CacheFiles(plain).data) == 0o600)
            #expect(mode(of: CacheFiles(plain).index) == 0o600)
            #expect(mode(of: plain) == 0o700)
            #expect(mode(of: CacheFiles(group).data) == 0o640)
            #expect(mode(of: CacheFiles(group).index) == 0o640)
        }
    }

    private func mode(of path: String) -> UInt32? {
        var information = stat()
        return stat(path, &information) == 0 ? information.st_mode & 0o777 : nil
    }

    // MARK: Options

    @Test(
        "Options out of range are invalid and create nothing",
        arguments: [
            Options(capacity: 1),
            Options(capacity: (1 << 20) - 1),
            Options(capacity: .max),
            Options(capacity: 1 << 20, segmentSize: 1),
            Options(capacity: 1 << 20, segmentSize: 64 << 10),
            Options(capacity: 64 << 20, segmentSize: (128 << 10) + 1),
            Options(capacity: 64 << 20, segmentSize: 3 << 18),
            Options(capacity: 1 << 30, segmentSize: 32 << 20),
            Options(capacity: 1 << 20, segmentSize: 16 << 20),
            Options(capacity: 1 << 20, shards: 1_000),
            Options(capacity: 64 << 20, shards: .max),
            Options(capacity: 1 << 20, compression: 4),
            Options(capacity: 1 << 20, compression: -1),
        ])
    func optionsOutOfRange(options: Options) {
        let path = directory.path("cache")
        do {
            _ = try TestCache(path, options)
            Issue.record("\(options) were accepted")
        } catch {
            #expect((error as? Failure)?.status == .invalid, "\(error)")
            #expect(((error as? Failure)?.message.count ?? 0) > 10)
        }
        #expect(!exists(CacheFiles(path).data))
    }

    @Test("Every segment size works", arguments: [128 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20] as [UInt32])
    func segmentSizes(size: UInt32) throws {
        let capacity = max(1 << 20, UInt64(size) * 16)
        let cache = try TestCache(directory.path, Options(capacity: capacity, shards: 1, segmentSize: size))
        #expect(cache.set("k", "v") == .ok)
        #expect(cache.text("k") == "v")
    }

    @Test("Other shards or another segment size than the cache's are invalid; its own are accepted")
    func otherShape() throws {
        let own = Options(capacity: 32 << 20, shards: 2, segmentSize: 256 << 10)
        try makeCache(own)
        expectFailure(directory.path, Options(shards: 3), .invalid)
        expectFailure(directory.path, Options(segmentSize: 512 << 10), .invalid)
        try expectIntact(own)
        try expectIntact()
        #expect(try TestCache(directory.path).stats().shards == 2)
    }

    @Test("Another capacity or max_entries is busy while another handle is open, and the same ones are not")
    func busy() throws {
        let own = Options(capacity: 4 << 20, maxEntries: 100)
        try makeCache(own)
        let first = try TestCache(directory.path)
        expectFailure(directory.path, Options(capacity: 8 << 20), .busy)
        expectFailure(directory.path, Options(capacity: 2 << 20), .busy)
        expectFailure(directory.path, Options(maxEntries: 50), .busy)
        try expectIntact(own)
        #expect(first.text("k") == "v")
        #expect(first.close() == .ok)
        #expect(try TestCache(directory.path, Options(capacity: 8 << 20)).stats().capacity == 8 << 20)
    }

    // MARK: Read-only

    @Test("A read-only handle reads everything and is refused every write")
    func readOnly() throws {
        try makeCache()
        let cache = try TestCache(directory.path, Options(flags: SHALE_OPEN_READ_ONLY))
        #expect(cache.text("k") == "v")
        #expect(cache.set("k", "w") == .permission)
        #expect(lastError().contains(directory.path))
        #expect(cache.remove("k") == .permission)
        #expect(cache.touch("k") == .permission)
        #expect(cache.increment("n", by: 1).status == .permission)
        #expect(cache.invalidate("t") == .permission)
        #expect(cache.clear() == .permission)
        #expect(cache.evict(1).status == .permission)
        #expect(cache.purge().status == .permission)
        let set = cache.setMany(["a".bytes, "b".bytes], ["1".bytes, "2".bytes])
        #expect(set.status == .permission)
        #expect(set.statuses == [.permission, .permission])
        let removed = cache.removeMany(["k".bytes])
        #expect(removed.status == .permission)
        #expect(removed.statuses == [.permission])
        #expect(cache.text("k") == "v")
        #expect(cache.getMany(["k".bytes, "a".bytes]).lookups.map(\.text) == ["v", nil])
        #expect(try cache.entries().count == 1)
        #expect(try cache.stats().entries == 1)
        #expect(cache.close() == .ok)
        try expectIntact()
    }

    @Test("A read-only handle changes no byte of the files")
    func readOnlyLeavesFilesAlone() throws {
        try makeCache()
        let before = try (contents(of: files.data), contents(of: files.index))
        let cache = try TestCache(directory.path, Options(flags: SHALE_OPEN_READ_ONLY))
        for _ in 0..<100 { #expect(cache.text("k") == "v") }
        #expect(cache.get("absent").status == .miss)
        #expect(try cache.entries().count == 1)
        #expect(cache.close() == .ok)
        #expect(try contents(of: files.data) == before.0)
        #expect(try contents(of: files.index) == before.1)
    }

    @Test("A read-only handle sees a writer's changes")
    func readOnlyBesideAWriter() throws {
        try makeCache()
        let writer = try TestCache(directory.path)
        let reader = try TestCache(directory.path, Options(flags: SHALE_OPEN_READ_ONLY))
        #expect(writer.set("k", "w") == .ok)
        #expect(reader.text("k") == "w")
        for number in 0..<5_000 { #expect(writer.set("n\(number)", "\(number)") == .ok) }
        for number in 0..<5_000 { #expect(reader.text("n\(number)") == "\(number)") }
        #expect(writer.remove("k") == .ok)
        #expect(reader.text("k") == nil)
    }
}
