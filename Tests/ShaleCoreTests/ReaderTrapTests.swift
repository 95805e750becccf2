import CShalePlatform
import Testing
@testable import ShaleCore

#if DEBUG
extension CoreTests {
    /// The races that a reader without a lock can lose, each forced at the critical moment.
    @Suite("Readers held at the worst moment")
    struct ReaderTrapTests {
        @Test("the log goes round twice between a reader's first and last check")
        func twoLaps() throws {
            let store = try Store(at: nil, options: .init(capacity: 1 << 20))
            // Equal sizes, so that each lap's records land where those of the last one were.
            let size = 1000
            try store.insert([UInt8](repeating: 1, count: size), for: "key", uncompressed: true)
            let before = Shard(store.engine.ref, 0).log.headNumber
            ReadHook.beforeValidation {
                for i in 0..<2400 {
                    _ = try? store.insert(
                        [UInt8](repeating: 2, count: size), for: i % 3 == 0 ? "key" : "other \(i % 7)",
                        uncompressed: true)
                }
            }
            let value = try #require(try store.value(for: "key"))
            let laps =
                (Shard(store.engine.ref, 0).log.headNumber - before)
                / UInt64(Shard(store.engine.ref, 0).log.usableFrames)
            #expect(laps >= 2)
            #expect(value == [UInt8](repeating: 2, count: size), "bytes of two laps, or of the first")
        }

        @Test("the key is removed and its place recycled under the reader")
        func removed() throws {
            let store = try Store(at: nil, options: .init(capacity: 1 << 20))
            try store.insert([UInt8](repeating: 1, count: 1000), for: "key", uncompressed: true)
            ReadHook.beforeValidation {
                _ = try? store.removeValue(for: "key")
                for i in 0..<2400 {
                    _ = try? store.insert([UInt8](repeating: 2, count: 1000), for: "other \(i % 7)", uncompressed: true)
                }
            }
            #expect(try store.value(for: "key") == nil)
        }

        @Test("a lookup during a split: everything moves after the reader has chosen its bucket", arguments: 0..<40)
        func split(run: Int) throws {
            let store = try Store(at: nil, options: .init(capacity: 8 << 20))
            let shard = Shard(store.engine.ref, 0)
            var i = 0
            while !shard.table.shape.isGrowing
                || shard.table.shape.frontier > shard.table.shape.buckets * (run + 1) / 41
            {
                try store.insert("v", for: "key \(i)")
                i += 1
            }
            // Each key is looked up while the pass advances by a few buckets, or to its end.
            for j in 0..<i {
                ReadHook.beforeProbe {
                    shard.table.advance(j % 5 == 0 ? 1000 : 1) { _ in Issue.record("an entry found no place") }
                }
                #expect(try store.value(for: "key \(j)") != nil, "key \(j) of \(i)")
            }
            ReadHook.beforeProbe(nil)
            #expect(store.brokenInvariants() == [])
        }

        @Test("a walk goes on to the end of a table that grows in the middle of a step")
        func walkOfGrowth() throws {
            let store = try Store(at: nil, options: .init(capacity: 8 << 20))
            let table = Shard(store.engine.ref, 0).table
            for i in 0..<840 { try store.insert("v", for: "key \(i)") }
            let order = try keys(of: store)
            try #require(order.count == 840 && table.shape.buckets == Table.leastBuckets)
            // Close to the end, a step no longer finds its key and walks on. The entries ahead of it have just moved
            // up.
            let dead = order.count - 5
            func wait(_ gets: Int) {
                ReadHook.beforeProbe {
                    if gets > 0 { return wait(gets - 1) }
                    _ = try? store.removeValue(for: order[dead])
                    var guests = 0
                    while table.shape.frontier == 0 || table.shape.frontier == Table.leastBuckets {
                        _ = try? store.insert("v", for: "guest \(guests)")
                        guests += 1
                    }
                    for i in 0..<guests { _ = try? store.removeValue(for: "guest \(i)") }
                }
            }
            wait(dead)
            let met = try keys(of: store)
            #expect(table.shape.isGrowing)
            #expect(Set(met) == Set(order).subtracting([order[dead]]))
        }

        @Test("the place of the entry that a walk has chosen is recycled, for another key as a rule, before it is read")
        func walkOfRecycled() throws {
            let store = try Store(at: nil, options: .init(capacity: 1 << 20))
            let names = (0..<8).map { "key \($0)" }
            let log = Shard(store.engine.ref, 0).log
            // Equal sizes, so that each lap's records land where those of the last one were; in a changing order.
            func replaceAll() {
                let number = log.headNumber
                var i = 0
                while i < 8 || log.headNumber < number + 2 * UInt64(log.usableFrames) {
                    _ = try? store.insert(
                        [UInt8](repeating: 1, count: 1000), for: names[(i + i / 8 * 3) % 8], uncompressed: true)
                    i += 1
                }
            }
            replaceAll()
            func trap() {
                replaceAll()
                ReadHook.beforeKey(skip(1))
            }
            /// Not at the second look at the same entry, so that the walk continues.
            func skip(_ looks: Int) -> () -> Void {
                { looks > 0 ? ReadHook.beforeKey(skip(looks - 1)) : trap() }
            }
            ReadHook.beforeKey(trap)
            let met = try keys(of: store)
            ReadHook.beforeKey(nil)
            #expect(met.sorted() == names)
        }

        @Test("a damaged slot that leads to another entry's key shows that key once")
        func walkOfDamagedSlot() throws {
            let store = try Store(at: nil, options: .init(capacity: 1 << 20))
            for i in 0..<8 { try store.insert("v", for: "key \(i)") }
            var slots: [Slot] = []
            Shard(store.engine.ref, 0).table.forEachSlot { slot, _, _ in slots.append(slot) }
            slots[0].release(slots[0].entry.with(location: slots[7].entry.location))
            let met = try keys(of: store)
            #expect(met.count == 7 && Set(met).count == 7, "\(met)")
        }

        private func keys(of store: Store) throws -> [String] {
            var cursor = Cursor(store.engine), key = ValueBuffer(), value = ValueBuffer(), found = Found(), size = 0
            defer {
                shim_free(key.data)
                shim_free(value.data)
            }
            var keys: [String] = []
            while try cursor.next([], key: &key, keySize: &size, value: &value, &found) != .end {
                keys.append(String(decoding: UnsafeRawBufferPointer(start: key.data, count: size), as: UTF8.self))
            }
            return keys
        }

        @Test("entries that are moved to make room are found while they move")
        func displaced() throws {
            let store = try Store(at: nil, options: .init(capacity: 8 << 20))
            for i in 0..<3000 { try store.insert("v", for: "key \(i)") }
            var next = 3000
            for j in 0..<3000 {
                ReadHook.beforeProbe {
                    for _ in 0..<8 {
                        _ = try? store.insert("v", for: "key \(next)")
                        next += 1
                    }
                }
                #expect(try store.value(for: "key \(j)") != nil)
            }
            #expect(store.brokenInvariants() == [])
        }

        @Test("the value of a touch record is recycled under the reader")
        func touched() throws {
            let store = try Store(at: nil, options: .init(capacity: 1 << 20))
            try store.insert([UInt8](repeating: 1, count: 1000), for: "key", uncompressed: true)
            try store.touch("key", maxAge: .seconds(100))
            ReadHook.beforeValidation {
                for i in 0..<3000 {
                    _ = try? store.insert([UInt8](repeating: 2, count: 1000), for: "other \(i % 7)", uncompressed: true)
                    if i % 50 == 0 { _ = try? store.value(for: "key") }
                }
            }
            #expect(try store.value(for: "key") == [UInt8](repeating: 1, count: 1000))
            #expect(try store.entry(for: "key")?.expiresAt != nil)
            #expect(store.brokenInvariants() == [])
        }

        @Test("a large value is replaced each time that a reader has its manifest", arguments: [1, 63, 64, 1000])
        func replaced(times: Int) throws {
            let store = try Store(at: nil, options: .init(capacity: 8 << 20))
            func value(_ i: Int) -> [UInt8] { [UInt8](repeating: UInt8(truncatingIfNeeded: i), count: 300_000) }
            try store.insert(value(0), for: "key")
            var sets = 0
            func replace() {
                if sets == times { return }
                sets += 1
                #expect(throws: Never.self) { try store.insert(value(sets), for: "key") }
                ReadHook.beforeParts(replace)
            }
            ReadHook.beforeParts(replace)
            if times < ShardReader.mostAttempts {
                #expect(try store.value(for: "key") == value(times))
            } else {
                // After so many attempts, an error that says what to do; the value exists.
                let error = #expect(throws: ShaleError.self) { try store.value(for: "key") }
                #expect(error?.code == .busy)
                #expect(sets == ShardReader.mostAttempts)
            }
            ReadHook.beforeParts(nil)
            #expect(try store.value(for: "key") == value(sets))
            #expect(store.brokenInvariants() == [])
        }

        @Test("a large value whose manifest is recycled while its parts are read is whole")
        func recycledManifest() throws {
            let store = try Store(at: nil, options: .init(capacity: 8 << 20))
            let value = [UInt8](repeating: 1, count: 300_000)
            try store.insert(value, for: "key", uncompressed: true)
            let shard = Shard(store.engine.ref, 0)
            let number = shard.log.headNumber
            // The cleaner moves the manifest and its parts, once around the log.
            ReadHook.beforeParts {
                var i = 0
                while shard.log.headNumber < number + 2 * UInt64(shard.log.usableFrames) {
                    _ = try? store.insert([UInt8](repeating: 2, count: 5000), for: "other \(i % 7)", uncompressed: true)
                    _ = try? store.value(for: "key")
                    i += 1
                }
                ReadHook.beforeParts { Issue.record("a second attempt") }
            }
            #expect(try store.value(for: "key") == value)
            ReadHook.beforeParts(nil)
        }

        @Test("tags are emptied between a reader's slot and its look at them")
        func tags() throws {
            let store = try Store(at: nil, options: .init(capacity: 4 << 20))
            try store.insert("old", for: "key", tags: ["tag"])
            try store.removeAll(tagged: "tag")
            // The slot is still in use: invalidating costs nothing. Now the tag table fills and is emptied.
            ReadHook.beforeProbe { for i in 0..<500 { try? store.removeAll(tagged: "other \(i)") } }
            #expect(try store.value(for: "key") == nil)
        }
    }
}
#endif
