import CShalePlatform
import Foundation
import Testing
@testable import ShaleCore

#if DEBUG
extension CoreTests {
    /// A bookmark that still counts stands for a whole read: what changes an entry must end it.
    @Suite("Bookmarks of entries")
    struct BookmarkTests {
        private let clock = TestTime()

        private func store(_ capacity: Int = 1 << 20, at directory: String? = nil, maxEntries: Int? = nil) throws
            -> Store
        {
            var options = Store.Options(capacity: capacity, maxEntries: maxEntries)
            options.now = { [clock] in clock.now }
            return try Store(at: directory, options: options)
        }
        private func mark(_ key: String, in store: Store) throws -> Bookmark {
            try #require(try store.readVersion(of: Array(key.utf8))).bookmark
        }
        private func value(_ byte: UInt8) -> [UInt8] { [UInt8](repeating: byte, count: 1000) }

        @Test("it counts as a hit and as a use")
        func counts() throws {
            let store = try store(maxEntries: 3)
            for i in 1...3 { try store.insert("v", for: "\(i)") }
            let bookmark = try mark("1", in: store)
            for i in 2...3 { _ = try store.value(for: "\(i)") }
            let before = try store.statistics().hits
            #expect(try store.hits(bookmark))
            #expect(try store.statistics().hits == before + 1)
            try store.insert("v", for: "4")
            #expect(try (1...4).map { try store.entry(for: "\($0)") != nil } == [true, false, true, true])
            let clear = try #require(try? mark("1", in: store))
            try store.removeAll()
            #expect(try !store.hits(clear) && !store.hits(.none))
            #expect(try store.statistics().hits == before + 2)
        }

        @Test("no change by another handle is missed, and other entries' changes end nothing")
        func changes() throws {
            let directory = FileManager.default.temporaryDirectory.appendingPathComponent("shale-\(UUID())").path
            defer { try? FileManager.default.removeItem(atPath: directory) }
            let mine = try store(at: directory), theirs = try store(at: directory)
            let changes: [(what: String, needsTag: Bool, make: (Store) throws -> Void)] = [
                ("replaced", false, { try $0.insert("other", for: "key") }),
                ("removed", false, { _ = try $0.removeValue(for: "key") }),
                ("touched", false, { _ = try $0.touch("key", maxAge: .zero) }),
                ("expired", false, { _ = try $0.expire("key") }),
                ("invalidated by its tag", true, { try $0.removeAll(tagged: "tag") }),
                ("expired by its tag", true, { try $0.expireAll(tagged: "tag") }),
                ("cleared", false, { try $0.removeAll() }),
                ("evicted", false, { while try $0.evict(1) > 0 {} }),
            ]
            for change in changes {
                for tags in [["tag"], []] {
                    try theirs.insert("value", for: "key", maxAge: .seconds(60), staleFor: .seconds(60), tags: tags)
                    let bookmark = try mark("key", in: mine)
                    try theirs.insert("value", for: "neighbour", tags: ["another"])
                    try theirs.removeAll(tagged: "another")
                    #expect(try mine.hits(bookmark), "before it is \(change.what)")
                    try change.make(theirs)
                    #expect(try mine.hits(bookmark) == (change.needsTag && tags.isEmpty), "\(change.what)")
                }
            }
        }

        @Test("its age ends it, by the handle's clock")
        func age() throws {
            let store = try store()
            try store.insert("v", for: "key", maxAge: .milliseconds(100), staleFor: .seconds(1))
            let bookmark = try mark("key", in: store)
            clock.now += 99
            #expect(try store.hits(bookmark))
            clock.now += 1
            #expect(try !store.hits(bookmark))
            let system = try Store(at: nil, options: .init(capacity: 1 << 20))
            for (age, isFresh) in [(Age.forever, true), (.hours(1), true), (.zero, false)] {
                try system.insert("v", for: "key", maxAge: age, staleFor: .seconds(60))
                let known = try #require(try system.readVersion(of: Array("key".utf8), includingStale: true))
                #expect(try system.hits(known.bookmark) == isFresh)
            }
        }

        @Test(
            "a touched entry counts with its new age, but not once tags have changed: its record does not have its own")
        func touched() throws {
            for tags in [[], ["tag"]] {
                let store = try store()
                try store.insert("v", for: "key", maxAge: .milliseconds(10), tags: tags)
                try store.touch("key", maxAge: .milliseconds(100))
                let bookmark = try mark("key", in: store)
                clock.now += 99
                #expect(try store.hits(bookmark))
                try store.removeAll(tagged: "another")
                #expect(try !store.hits(bookmark))
                let other = try mark("key", in: store)
                clock.now += 1
                #expect(try !store.hits(other))
            }
        }

        @Test("damaged tags name others")
        func damaged() throws {
            let store = try store()
            try store.insert("v", for: "key", tags: ["tag"])
            try store.removeAll(tagged: "another")
            let bookmark = try mark("key", in: store)
            #expect(try store.hits(bookmark))
            let log = Shard(store.engine.ref, 0).log
            let record = try #require(log.record(bookmark.word0.location))
            UnsafeMutablePointer(mutating: record.tags)[0] ^= 1
            #expect(try !store.hits(bookmark))
        }

        @Test("the same slot word in a later lap of the log is another entry")
        func laps() throws {
            let store = try store()
            try store.insert(value(1), for: "key", uncompressed: true)
            let bookmark = try mark("key", in: store)
            var returns = 0
            for i in 0..<20_000 where returns < 3 {
                if i % 3 != 0 {
                    try store.insert(value(2), for: "other \(i % 7)", uncompressed: true)
                    continue
                }
                try store.insert(value(2), for: "key", uncompressed: true)
                if try mark("key", in: store).word0 == bookmark.word0 { returns += 1 }
                #expect(try !store.hits(bookmark), "after \(i) sets")
            }
            #expect(returns == 3)
        }

        @Test("an entry that the cleaner or a growing table has moved gets another bookmark")
        func moves() throws {
            let store = try store(8 << 20)
            var bookmarks: [String: (version: UInt64, bookmark: Bookmark)] = [:]
            for i in 0..<40_000 {
                let key = "key \(i % 4000)"
                if i % 3 != 0 { try store.insert(value(UInt8(i & 255)), for: "filler \(i % 50_000)") }
                if i < 4000 || i % 17 == 0 { try store.insert(value(UInt8(i & 255)), for: key, uncompressed: true) }
                if let known = bookmarks[key], try store.hits(known.bookmark) {
                    #expect(try store.entry(for: key)?.version == known.version)
                }
                bookmarks[key] = try store.readVersion(of: Array(key.utf8)).map { ($0.version, $0.bookmark) }
                if let known = bookmarks[key] { #expect(try store.hits(known.bookmark)) }
            }
        }

        @Test("tags that are emptied between its looks at the slot and at the tags")
        func emptied() throws {
            let store = try store(4 << 20)
            try store.insert("old", for: "key", tags: ["tag"])
            let bookmark = try mark("key", in: store)
            try store.removeAll(tagged: "tag")
            ReadHook.beforeValidation { for i in 0..<500 { try? store.removeAll(tagged: "other \(i)") } }
            #expect(try !store.hits(bookmark))
        }

        @Test("a use by another reader at the same time")
        func uses() throws {
            let store = try store(maxEntries: 2)
            try store.insert("v", for: "key")
            try store.insert("v", for: "other")
            let bookmark = try mark("key", in: store), before = try store.statistics().hits
            ReadHook.beforeValidation { _ = try? store.value(for: "key") }
            #expect(try !store.hits(bookmark))
            #expect(try store.statistics().hits == before + 1)
            #expect(try store.hits(bookmark))
        }

        @Test("pages that a shrunk table has given back are not looked at")
        func shrunk() throws {
            let store = try store(64 << 20)
            var bookmarks: [Bookmark] = []
            for i in 0..<20_000 {
                try store.insert("v", for: "key \(i)")
                bookmarks.append(try mark("key \(i)", in: store))
            }
            let table = Shard(store.engine.ref, 0).table, last = try #require(bookmarks.max { $0.slot < $1.slot })
            let page = Memory(bitPattern: UInt(bitPattern: table.slot(last.slot).at) & ~4095)
            #expect(shim_sys_is_resident(page))
            try store.removeAll()
            #expect(!shim_sys_is_resident(page))
            #expect(try !store.hits(last))
            #expect(!shim_sys_is_resident(page))
        }

        @Test("a read-only handle has none")
        func readOnly() throws {
            let directory = FileManager.default.temporaryDirectory.appendingPathComponent("shale-\(UUID())").path
            defer { try? FileManager.default.removeItem(atPath: directory) }
            let writer = try store(at: directory)
            try writer.insert("v", for: "key")
            var options = Store.Options()
            options.isReadOnly = true
            let reader = try Store(at: directory, options: options)
            let bookmark = try mark("key", in: reader)
            #expect(try !reader.hits(bookmark))
            #expect(try writer.hits(try mark("key", in: writer)))
        }

        @Test(
            "random changes by two handles of a small cache: a bookmark counts only for what a read finds",
            arguments: 1...4)
        func random(seed: UInt64) throws {
            let directory = FileManager.default.temporaryDirectory.appendingPathComponent("shale-\(UUID())").path
            defer { try? FileManager.default.removeItem(atPath: directory) }
            let mine = try store(at: directory), theirs = try store(at: directory)
            var random = Steps(state: seed), known: [String: (version: UInt64, bookmark: Bookmark)] = [:], hits = 0
            for step in 0..<20_000 {
                let key = "key \(random.next() % 60)", tag = "tag \(random.next() % 5)"
                let other = step % 2 == 0 ? mine : theirs
                switch random.next() % 400 {
                case 0..<120:
                    try other.insert(
                        value(1), for: key, maxAge: .milliseconds(random.next() % 1000 + 1),
                        staleFor: .milliseconds(100),
                        tags: random.next() % 2 == 0 ? [tag] : [], uncompressed: true)
                case 120..<150: try other.removeValue(for: key)
                case 150..<180: try other.touch(key, maxAge: .milliseconds(random.next() % 500))
                case 180..<190: try other.expire(key)
                case 190..<195: try other.removeAll(tagged: tag)
                case 195..<200: try other.expireAll(tagged: tag)
                case 200: _ = try other.purge()
                case 201: _ = try other.evict(5)
                case 202: if random.next() % 10 == 0 { try other.removeAll() }
                case 203..<220: clock.now += Int64(random.next() % 50)
                default: known[key] = try mine.readVersion(of: Array(key.utf8)).map { ($0.version, $0.bookmark) }
                }
                for _ in 0..<5 {
                    let key = "key \(random.next() % 60)"
                    guard let known = known[key], try mine.hits(known.bookmark) else { continue }
                    hits += 1
                    #expect(try mine.entry(for: key)?.version == known.version, "seed \(seed), step \(step), \(key)")
                }
            }
            #expect(hits > 5000)
            #expect(mine.brokenInvariants() == [])
        }

        /// The high bits of the linear congruential generator of Numerical Recipes.
        private struct Steps {
            var state: UInt64
            mutating func next() -> Int {
                state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
                return Int(state >> 33)
            }
        }
    }
}
#endif
