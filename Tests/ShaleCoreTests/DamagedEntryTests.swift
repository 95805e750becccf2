import CShalePlatform
import Testing
@testable import ShaleCore

extension CoreTests {
    /// Whichever call finds the damage: a rebuild does not bring back what the damaged entry had superseded.
    @Suite("Damage that was found")
    struct DamagedEntryTests {
        private typealias Field = ShardHeader.Field
        enum Part: CaseIterable { case head, key, body }

        private let store: Store
        private let shard: Shard

        init() throws {
            store = try Store(at: nil, options: .init(capacity: 1 << 20))
            shard = Shard(store.engine.ref, 0)
        }

        private func set(_ key: String, _ value: [UInt8]) throws {
            try store.insert(value, for: key, uncompressed: true)
        }
        private func set(_ key: String, _ value: String) throws { try set(key, Array(value.utf8)) }
        private func text(_ key: String) throws -> String? {
            try store.value(for: key).map { String(decoding: $0, as: UTF8.self) }
        }

        private func slot(_ key: String) -> Slot? {
            key.withStoreBytes { shard.reader.lookup(Key($0, secret: shard.secret)) }
        }
        private func location(_ key: String) throws -> UInt32 { try #require(slot(key)).entry.location }

        private func damage(_ location: UInt32, _ part: Part) {
            let p = shard.log.address(location), record = RecordHeader(at: p)
            let at =
                switch part {
                case .head: 1
                case .key: record.keyOffset
                case .body: record.storedOffset
                }
            (p + at).storeBytes(of: (p + at).load(as: UInt8.self) ^ 0x10, as: UInt8.self)
        }

        /// Rebuilds, as after a writer that died in a rebuild.
        private func rebuild() throws {
            let rebuilds = try store.statistics().rebuilds
            shard.header[Field.state] = ShardHeader.State.rebuilding
            try shard.settle()
            #expect(try store.statistics().rebuilds == rebuilds + 1)
        }

        /// Sets values until the head is in another segment.
        private func fillSegment() throws {
            let number = shard.log.headNumber
            var i = 0
            while shard.log.headNumber == number {
                try set("filler \(i % 30)", [UInt8](repeating: UInt8(i & 255), count: 2000))
                i += 1
            }
        }

        private func clean() throws {
            var change = Change.withoutTime
            let cleaned = try shard.write(&change) { shard throws(Failure) in
                try Cleaner(shard).cleanRecord(shard)
            }
            #expect(cleaned > 0)
        }

        @Test("by verify", arguments: Part.allCases)
        func verify(part: Part) throws {
            try set("key", "old")
            try set("key", "new")
            damage(try location("key"), part)
            #expect(try store.verify().corruptRecords == 1)
            #expect(try text("key") == nil)
            #expect(try store.statistics().corruptRecords == 1)
            #expect(store.brokenInvariants() == [])
            try rebuild()
            #expect(try text("key") == nil)
        }

        @Test("by verify, where the log has no room but by cleaning")
        func verifyFull() throws {
            for i in 0..<3000 { try set("key \(i % 600)", [UInt8](repeating: UInt8(i % 251), count: 900)) }
            let keys = (0..<600).map { "key \($0)" }.filter { slot($0) != nil }
            let damaged = keys.enumerated().filter { $0.offset % 3 == 0 }.map(\.element)
            for key in damaged { damage(try location(key), .head) }
            _ = try store.verify()
            #expect(try store.verify().corruptRecords == 0)
            #expect(store.brokenInvariants() == [])
            try rebuild()
            for key in damaged { #expect(try text(key) == nil) }
        }

        @Test("of a touch record: the age that the value had before does not come back", arguments: [Part.head, .body])
        func touched(part: Part) throws {
            try store.insert("value", for: "key", maxAge: .seconds(3600))
            #expect(try store.touch("key", maxAge: .seconds(1)))
            damage(try location("key"), part)
            #expect(try store.verify().corruptRecords == 1)
            try rebuild()
            #expect(try store.entry(for: "key", includingStale: true) == nil)
        }

        @Test("by the cleaner", arguments: [Part.head, .key])
        func cleaner(part: Part) throws {
            try set("key", "old")
            try set("key", "new")
            let damaged = try location("key")
            damage(damaged, part)
            try fillSegment()
            // (Entries that need a damaged segment are searched for at its end.)
            let number = shard.log.tailNumber
            while shard.log.tailNumber == number { try clean() }
            #expect(try store.statistics().corruptRecords == 1)
            #expect(store.brokenInvariants() == [])
            try rebuild()
            #expect(try text("key") == nil)
        }

        @Test("by the cleaner, in a touch record whose value it merges", arguments: [Part.head, .body])
        func cleanerTouched(part: Part) throws {
            try store.insert("value", for: "key", maxAge: .seconds(3600))
            let value = try location("key")
            try fillSegment()
            #expect(try store.touch("key", maxAge: .seconds(1)))
            let touch = try location("key")
            damage(touch, part)
            while shard.log.tailOffset <= shard.log.offsetInSegment(value) { try clean() }
            if part == .body {
                // The value seemed to have no owner; the cleaner reaches the touch record later.
                try fillSegment()
                while shard.log.numberWord(shard.log.queued(0)).u64(0) < shard.log.recordAddress(of: touch).number {
                    try clean()
                }
                while shard.log.tailOffset <= shard.log.offsetInSegment(touch) { try clean() }
            }
            #expect(try store.statistics().corruptRecords == 1)
            try rebuild()
            #expect(try store.entry(for: "key", includingStale: true) == nil)
        }

        @Test("by a touch")
        func byTouch() throws {
            try set("key", "old")
            try set("key", "new")
            damage(try location("key"), .head)
            #expect(try store.touch("key", maxAge: .seconds(60)) == false)
            #expect(try store.statistics().corruptRecords == 1)
            try rebuild()
            #expect(try text("key") == nil)
        }

        @Test("a damaged age ends nothing without a trace")
        func damagedAge() throws {
            try set("key", "old")
            try store.insert("new", for: "key", maxAge: .seconds(3600))
            // It seems to have expired long ago, and the slot's expiry sends every caller to the record.
            let entry = try #require(self.slot("key"))
            shard.log.address(entry.entry.location).set(40, 0)
            entry.release(SlotUse(stamp: entry.use.stamp, expiry: 1))
            #expect(try store.purge() == 0)
            #expect(try text("key") == nil)
            #expect(try store.statistics().corruptRecords == 1)
            try rebuild()
            #expect(try text("key") == nil)
        }

        @Test("a value that was set since stays", arguments: [false, true])
        func newer(byGet: Bool) throws {
            try set("key", "old")
            // Its key is damaged: the set does not find it.
            damage(try location("key"), .key)
            try set("key", "new")
            if byGet { _ = try text("key") } else { #expect(try store.verify().corruptRecords == 1) }
            #expect(try text("key") == "new")
            try rebuild()
            #expect(try text("key") == "new")
        }

        @Test("by a get whose own room is made by moving the entry")
        func movedMeanwhile() throws {
            // Until each set finds that cleaning is due, as only sets of a full log do.
            var i = 0
            while i < 3000 || i < 20_000 && shard.log.availableFrames >= shard.log.wantedFree {
                try set("key \(i % 600)", [UInt8](repeating: UInt8(i % 251), count: 900))
                i += 1
            }
            try #require(shard.log.availableFrames < shard.log.wantedFree)
            // The next record to be copied.
            var key = ""
            while true {
                let place = shard.log.queued(0), offset = shard.log.tailOffset
                let p = shard.engine.pointee.data + shard.log.offset(ofFrame: place) + offset
                let record = RecordHeader(at: p)
                if record.isKind(.value), offset < shard.log.segmentSize - 4096 {
                    key = String(
                        decoding: UnsafeRawBufferPointer(start: p + record.keyOffset, count: record.keyLength),
                        as: UTF8.self)
                    if let slot = slot(key),
                        slot.entry.location == shard.log.location(frame: place, offset: offset)
                    {
                        break
                    }
                }
                try clean()
            }
            let before = try location(key)
            damage(before, .body)
            #expect(try text(key) == nil)
            #expect(shard.log.tailOffset > shard.log.offsetInSegment(before))
            #expect(try store.verify().corruptRecords == 0)
            #expect(try store.statistics().corruptRecords == 1)
            #expect(store.brokenInvariants() == [])
            try rebuild()
            #expect(try text(key) == nil)
        }

        @Test("the lengths of a manifest are bounded by where its segment ends")
        func manifestAtTheEnd() throws {
            try set("key", "value")
            let place = shard.log.headFrame, length = RecordHeader.size + 8 + Manifest.size
            for (room, isInside) in [(length, true), (length - 8, false)] {
                let location = shard.log.location(frame: place, offset: shard.log.segmentSize - room)
                let p = shard.log.address(location)
                RecordHeader(kind: .manifest, keyLength: 8, storedLength: Manifest.size, rawLength: 0).writeUnsealed(
                    to: p)
                p.set(16, RecordHeader(kind: .manifest, keyLength: 8, storedLength: Manifest.size, rawLength: 0).word2)
                #expect((shard.reader.manifest(at: location) != nil) == isInside)
            }
        }
    }
}
