import CShalePlatform
import Foundation
import Testing
@testable import ShaleCore

extension CoreTests {
    /// `du` never exceeds the capacity, because everything allocated is counted.
    @Suite("Space on disk")
    struct SpaceTests {
        private let directory = FileManager.default.temporaryDirectory.appendingPathComponent(
            "shale-space-\(UInt64.random(in: 0 ... .max))"
        ).path

        private func counted(_ store: Store) -> Int {
            let engine = store.engine.ref, geometry = engine.pointee.geometry
            var bytes = geometry.head + Geometry.indexHead
            for i in 0..<geometry.shards {
                let shard = Shard(engine, i)
                bytes +=
                    shard.header[ShardHeader.Field.allocated] * geometry.segmentSize
                    + shard.header[ShardHeader.Field.tablePages]
            }
            return bytes
        }
        private func onDisk(_ store: Store) -> Int {
            let files = store.engine.ref.pointee.files
            return Int(
                files.diskBytes(files.data, files.dataIdentity) + files.diskBytes(files.index, files.indexIdentity))
        }

        @Test(
            "what is on disk is what was counted, but for the file system's own blocks, while table and log grow",
            arguments: [(8 << 20, 30), (48 << 20, 3000), (6 << 20, 1500), (300 << 20, 60_000)])
        func counts(capacity: Int, size: Int) throws {
            defer { try? FileManager.default.removeItem(atPath: directory) }
            let store = try Store(at: directory, options: .init(capacity: capacity))
            let value = [UInt8](repeating: 7, count: size)
            let keys = capacity / (size + 100)
            for i in 0..<keys {
                try store.insert(value, for: "key \(i)", uncompressed: true)
                // Reading makes the kernel read ahead, into space that is not allocated yet.
                if i % 3 == 0 { _ = try store.value(for: "key \(i * 7919 % (i + 1))") }
                guard i % (keys / 200) == 0 else { continue }
                let surplus = onDisk(store) - counted(store)
                try #require(surplus <= 32 << 10, "\(surplus) uncounted bytes after \(i) entries")
            }
        }

        @Test(
            "no file can become larger than ext4 allows", arguments: [1 << 40, 4 << 40, 7 << 40, 16 << 40],
            [0, 512, 4096, 65_536])
        func filesEnd(capacity: Int, shards: Int) throws {
            var configuration = Configuration()
            configuration.capacity = UInt64(capacity)
            configuration.shards = UInt32(shards)
            let block = try configuration.newSuperblock(secret: 1, now: 0), geometry = Geometry(block)
            let largest = 1 << 44 - 4096
            #expect(geometry.dataSize <= largest && geometry.indexSize <= largest)
            // And they can hold all that the capacity has room for.
            #expect(geometry.framesPerShard >= Geometry.framesPerShard(block))
        }

        @Test("no segment is given back for a table that does not fit all the same")
        func tableTooLarge() throws {
            let store = try Store(at: nil, options: .init(capacity: 8 << 20))
            let shard = Shard(store.engine.ref, 0)
            for i in 0..<6000 {
                try store.insert([UInt8](repeating: 7, count: 1000), for: "key \(i)", uncompressed: true)
            }
            try store.removeAll()
            let allocated = shard.header[ShardHeader.Field.allocated]
            try #require(shard.log.freeFrames > Log.reserve)
            // 8 MB and more, for the table alone.
            let tooLarge = TableShape(buckets: 110_000, frontier: 0, mode: TableShape.Mode.steady)
            var change = Change.withoutTime
            let hasGrown = try shard.write(&change) { shard in shard.growTable(tooLarge) }
            #expect(!hasGrown)
            #expect(shard.header[ShardHeader.Field.allocated] == allocated)
        }

        @Test("a frame that was taken over and is in preparation again is left to its new preparer")
        func preparedTwice() throws {
            let store = try Store(at: nil, options: .init(capacity: 8 << 20))
            try store.insert("value", for: "key")
            func prepareTwice(_ log: Log) throws {
                let mine = try #require(log.beginPreparing())
                // Another call could not wait; the frame was free, and was given back.
                log.header.beginChange()
                try log.provide(Log.reserve + 1)
                log.giveBack(downTo: log.count)
                log.header.endChange()
                try #require(log.state(ofFrame: mine.frame) == .absent)
                let other = try #require(log.beginPreparing())
                try #require(other.frame == mine.frame)
                log.endPreparing(mine, .done)
                #expect(log.state(ofFrame: mine.frame) == .preparing)
                log.endPreparing(other, .done)
                #expect(log.state(ofFrame: mine.frame) == .free)
            }
            // (`locked` throws only failures of the core.)
            let result = try Shard(store.engine.ref, 0).locked { shard in Result { try prepareTwice(shard.log) } }
            try result.get()
        }

        /// (Checks the kernel's flag, as its settings decide whether a large page is created.)
        @Test(
            "no page-cache page is larger than what is allocated at once, and no fault reads other records",
            arguments: [8 << 20, 256 << 20])
        func smallPages(capacity: Int) throws {
            defer { try? FileManager.default.removeItem(atPath: directory) }
            for _ in 0..<2 {
                let store = try Store(at: directory, options: .init(capacity: capacity))
                defer { try? store.close() }
                #expect(try readsAhead("shale.index") == false)
                #expect(try readsAhead("shale.data") == false)
            }
        }

        @Test("an index that has left the memory is read when the first user opens the cache, not page by page")
        func fetchedAtOpening() async throws {
            defer { try? FileManager.default.removeItem(atPath: directory) }
            let first = try Store(at: directory, options: .init(capacity: 8 << 20))
            for i in 0..<12_000 { try first.insert("v", for: "key \(i)") }
            try first.close()
            // The kernel may drop the request, or the pages, when memory is short: then retry.
            for _ in 0..<10 {
                let file = open("\(directory)/shale.index", O_RDWR)
                #expect(fsync(file) == 0 && posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) == 0)
                close(file)
                let store = try Store(at: directory)
                let table = Shard(store.engine.ref, 0).table
                let pages = stride(from: 0, to: Table.bytes(of: table.shape.buckets), by: pageSize).map {
                    table.buckets - Table.chunkHead + $0
                }
                try #require(pages.count >= 32)
                for _ in 0..<500 where !pages.allSatisfy({ shim_sys_is_resident($0) }) {
                    try await Task.sleep(for: .milliseconds(10))
                }
                if pages.allSatisfy({ shim_sys_is_resident($0) }) { return }
                try store.close()
            }
            Issue.record("pages of the index stay on disk")
        }

        /// Whether the last mapping of a file reads ahead.
        private func readsAhead(_ file: String) throws -> Bool {
            let mappings = try #require(FileHandle(forReadingAtPath: "/proc/self/smaps"))
            defer { try? mappings.close() }
            let lines = String(decoding: try mappings.readToEnd() ?? Data(), as: UTF8.self).split(separator: "\n")
            // (An owner's mapping is never accessed.)
            let mapping = try #require(
                lines.lastIndex { $0.hasSuffix("\(directory)/\(file)") && !$0.contains(" ---s ") })
            let flags = try #require(lines[mapping...].first { $0.hasPrefix("VmFlags:") })
            return !flags.split(separator: " ").contains("rr")
        }
    }
}
