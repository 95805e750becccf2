import Foundation
import Testing
@testable import ShaleCore

extension CoreTests {
    /// What a rebuild must not trust, and must not lose, after damage to what was synced.
    @Suite("Damage to what was synced")
    struct DamageTests {
        private let directory = FileManager.default.temporaryDirectory.appendingPathComponent(
            "shale-damage-\(UInt64.random(in: 0 ... .max))"
        ).path

        private func open(_ capacity: Int = 1 << 20) throws -> Store {
            try Store(at: directory, options: .init(capacity: capacity))
        }
        private func removeIndex() throws { try FileManager.default.removeItem(atPath: "\(directory)/shale.index") }
        private func zero(_ offset: Int, _ count: Int) throws {
            let handle = try FileHandle(forUpdating: URL(fileURLWithPath: "\(directory)/shale.data"))
            defer { try? handle.close() }
            try handle.seek(toOffset: UInt64(offset))
            try handle.write(contentsOf: Data(repeating: 0, count: count))
        }

        /// New values survive two further rebuilds: the damage is not found again.
        private func goesOn() throws {
            for round in 0..<2 {
                let store = try open()
                if round == 0 {
                    for i in 0..<20 { try store.insert("new \(i)", for: "new \(i)") }
                } else {
                    for i in 0..<20 {
                        #expect(try store.value(for: "new \(i)") == Array("new \(i)".utf8), "round \(round)")
                    }
                }
                try store.sync()
                try store.close()
                try removeIndex()
            }
            let last = try open()
            for i in 0..<20 { #expect(try last.value(for: "new \(i)") != nil) }
            #expect(last.brokenInvariants() == [])
        }

        @Test("the newest segment is lost: what it removed does not come back")
        func newestSegment() throws {
            defer { try? FileManager.default.removeItem(atPath: directory) }
            let store = try open()
            let shard = Shard(store.engine.ref, 0)
            try store.insert("old", for: "key")
            let first = shard.log.headFrame
            var i = 0
            while shard.log.headFrame == first {
                try store.insert(
                    [UInt8](repeating: UInt8(i & 255), count: 1000), for: "filler \(i % 20)", uncompressed: true)
                i += 1
            }
            try store.removeValue(for: "key")
            try store.sync()
            let lost = shard.log.offset(ofFrame: shard.log.headFrame)
            try store.close()
            try zero(lost, SegmentHeader.size)
            try removeIndex()
            let again = try open()
            #expect(try again.value(for: "key") == nil)
            #expect(try again.statistics().corruptRecords > 0)
            try again.close()
            try goesOn()
        }

        @Test(
            "a segment in the middle of what was synced is lost: what it removed does not come back, and what came later stays"
        )
        func middleSegment() throws {
            defer { try? FileManager.default.removeItem(atPath: directory) }
            let store = try open()
            let shard = Shard(store.engine.ref, 0)
            func fillSegment() throws {
                let place = shard.log.headFrame
                var i = 0
                while shard.log.headFrame == place {
                    try store.insert(
                        [UInt8](repeating: UInt8(i & 255), count: 1000), for: "filler \(i % 20)", uncompressed: true)
                    i += 1
                }
            }
            try store.insert("old", for: "key")
            try fillSegment()
            let lost = shard.log.offset(ofFrame: shard.log.headFrame)
            try store.removeValue(for: "key")
            try fillSegment()
            try store.insert("young", for: "other key")
            try store.close()
            try zero(lost, SegmentHeader.size)
            try removeIndex()
            let again = try open()
            #expect(try again.value(for: "key") == nil)
            #expect(try again.value(for: "other key") == Array("young".utf8))
            #expect(try again.statistics().corruptRecords > 0)
            try again.close()
            try goesOn()
        }

        @Test("the last synced record is lost: what it removed does not come back, and what is written later stays")
        func lastRecord() throws {
            defer { try? FileManager.default.removeItem(atPath: directory) }
            let store = try open()
            let shard = Shard(store.engine.ref, 0)
            try store.insert("old", for: "key")
            let before = shard.log.headOffset
            try store.removeValue(for: "key")
            try store.sync()
            let lost = shard.log.offset(ofFrame: shard.log.headFrame) + before
            try store.close()
            try zero(lost, RecordHeader.size)
            try removeIndex()
            let again = try open()
            #expect(try again.value(for: "key") == nil)
            try again.close()
            try goesOn()
        }

        @Test("a dictionary is lost: no later one gets its number while records name it")
        func dictionaryNumber() throws {
            defer { try? FileManager.default.removeItem(atPath: directory) }
            func fill(_ store: Store, _ kind: String) throws {
                for i in 0..<3000 {
                    try store.insert(
                        "{\"kind\":\"\(kind)\",\"number\":\(i),\"text\":\"the \(kind) of number \(i) is \(i * 7)\"}",
                        for: "\(kind) \(i)")
                }
            }
            let store = try open(8 << 20)
            try fill(store, "apple")
            let ref = store.engine.ref
            let last = ref.pointee.head[IndexHead.dictionaryLast]
            #expect(last > 0)
            let geometry = ref.pointee.geometry
            try store.close()
            for frame in 0..<geometry.dictionaryFrames {
                try zero(geometry.dictionaries + frame * geometry.dictionarySize, 64)
            }
            try removeIndex()
            let again = try open(8 << 20)
            #expect(again.engine.ref.pointee.head[IndexHead.dictionaryLast] >= last)
            try fill(again, "pear")
            #expect(again.engine.ref.pointee.head[IndexHead.dictionaryLast] > last)
            try again.close()
            try removeIndex()
            // Every value that comes back is the one that was stored.
            let third = try open(8 << 20)
            var found = 0
            try third.forEach { key, _, value in
                let name = String(decoding: key, as: UTF8.self)
                let parts = name.split(separator: " ")
                let i = Int(parts[1]) ?? -1
                #expect(
                    String(decoding: value, as: UTF8.self)
                        == "{\"kind\":\"\(parts[0])\",\"number\":\(i),\"text\":\"the \(parts[0]) of number \(i) is \(i * 7)\"}"
                )
                found += 1
                return true
            }
            #expect(found >= 3000)
        }
    }
}
