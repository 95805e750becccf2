import Foundation
import Testing
@testable import ShaleCore

extension CoreTests {
    /// When an index may be trusted.
    @Suite("Trust")
    struct TrustTests {
        private let directory = FileManager.default.temporaryDirectory.appendingPathComponent(
            "shale-trust-\(UInt64.random(in: 0 ... .max))"
        ).path

        private func word(_ file: String, _ offset: UInt64) throws -> UInt64 {
            let handle = try FileHandle(forReadingFrom: URL(fileURLWithPath: "\(directory)/\(file)"))
            defer { try? handle.close() }
            try handle.seek(toOffset: offset)
            return try #require(try handle.read(upToCount: 8)).withUnsafeBytes { $0.loadUnaligned(as: UInt64.self) }
        }

        /// As after a reboot: the index names another boot.
        private func reboot() throws {
            let handle = try FileHandle(forUpdating: URL(fileURLWithPath: "\(directory)/shale.index"))
            defer { try? handle.close() }
            try handle.seek(toOffset: UInt64(IndexHead.boot.offset))
            try handle.write(contentsOf: Data(repeating: 7, count: 16))
        }

        private func open() throws -> Store { try Store(at: directory, options: .init(capacity: 4 << 20)) }

        @Test("the last close leaves the same mark in both files, and the next boot believes the index")
        func clean() throws {
            defer { try? FileManager.default.removeItem(atPath: directory) }
            let store = try open()
            try store.insert("v", for: "k")
            try store.close()
            let mark = try word("shale.data", UInt64(Superblock.cleanMark))
            #expect(mark != 0)
            #expect(try word("shale.index", UInt64(IndexHead.cleanMark.offset)) == mark)
            try reboot()
            let again = try open()
            #expect(try again.statistics().rebuilds == 0)
            #expect(try again.value(for: "k") == Array("v".utf8))
            // The mark is cleared before anything changes.
            #expect(try word("shale.data", UInt64(Superblock.cleanMark)) == 0)
        }

        @Test("a quiet shard whose header says that something is under way is not believed")
        func underWay() throws {
            defer { try? FileManager.default.removeItem(atPath: directory) }
            let store = try open()
            try store.insert("v", for: "k")
            let header = Shard(store.engine.ref, 0).header
            #expect(try store.engine.isConsistent())
            typealias Field = ShardHeader.Field
            for word in [
                Field.transaction, Field.relocation, Field.copiedSlot.word, Field.moveCount.word, Field.pending.word,
            ] {
                header[word] = 1 << 20
                #expect(try !store.engine.isConsistent())
                header[word] = 0
            }
            #expect(try store.engine.isConsistent())
        }

        @Test("without a clean close the next boot rebuilds, and finds everything")
        func unclean() throws {
            defer { try? FileManager.default.removeItem(atPath: directory) }
            var options = Store.Options(capacity: 4 << 20)
            options.syncsAtClose = false
            let store = try Store(at: directory, options: options)
            for i in 0..<500 { try store.insert("value \(i)", for: "key \(i)") }
            try store.close()
            try reboot()
            let again = try open()
            #expect(try again.statistics().rebuilds == 1)
            for i in 0..<500 { #expect(try again.value(for: "key \(i)") == Array("value \(i)".utf8)) }
            #expect(again.brokenInvariants() == [])
        }

        @Test("two stores: the first close marks nothing")
        func two() throws {
            defer { try? FileManager.default.removeItem(atPath: directory) }
            let first = try open(), second = try open()
            try first.close()
            #expect(try word("shale.data", UInt64(Superblock.cleanMark)) == 0)
            try second.close()
            #expect(try word("shale.data", UInt64(Superblock.cleanMark)) != 0)
        }
    }
}
