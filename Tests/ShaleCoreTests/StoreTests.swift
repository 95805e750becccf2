import Foundation
import Synchronization
import Testing
@testable import ShaleCore

@_silgen_name("fork") private func forkProcess() -> Int32

extension CoreTests {
    @Suite("Store: the engine in Swift's terms")
    struct StoreTests {
        @Test("a value comes back with what was stored beside it")
        func roundTrip() throws {
            let store = try Store(at: nil, options: .init(capacity: 4 << 20))
            let version = try store.insert("value", for: "key", maxAge: .seconds(60), tags: ["t"], meta: [1, 2, 3])
            #expect(try store.value(for: "key") == Array("value".utf8))
            let entry = try #require(try store.entry(for: "key"))
            #expect(entry.meta == [1, 2, 3])
            #expect(entry.version == version)
            #expect(entry.size == 5)
            #expect(try store.withSpan(for: "key") { $0.byteCount } == 5)
            try store.removeAll(tagged: "t")
            #expect(try store.value(for: "key") == nil)
        }

        @Test("errors carry code, sentence and errno")
        func errors() throws {
            let store = try Store(at: nil, options: .init(capacity: 4 << 20))
            let error = #expect(throws: ShaleError.self) { try store.insert("v", for: "") }
            #expect(error?.code == .invalid)
            #expect(error?.message.contains("key is empty") == true)
            let missing = #expect(throws: ShaleError.self) { try Store(at: "/proc/nowhere/cache") }
            #expect(missing?.code == .inputOutput)
            #expect(missing?.errno != 0)
            #expect(missing?.message.contains("/proc/nowhere/cache") == true)
        }

        @Test("the clock can be replaced")
        func clock() throws {
            let clock = TestTime()
            var options = Store.Options(capacity: 4 << 20)
            options.now = { clock.now }
            let store = try Store(at: nil, options: options)
            try store.insert("v", for: "k", maxAge: .milliseconds(100), staleFor: .milliseconds(50))
            clock.now += 99
            #expect(try store.value(for: "k") != nil)
            clock.now += 1
            #expect(try store.value(for: "k") == nil)
            #expect(try store.entry(for: "k", includingStale: true)?.isStale == true)
            clock.now += 50
            #expect(try store.entry(for: "k", includingStale: true) == nil)
        }

        @Test("walking visits every entry")
        func walk() throws {
            let store = try Store(at: nil, options: .init(capacity: 4 << 20))
            for i in 0..<1000 { try store.insert([UInt8(i & 255)], for: "key \(i)") }
            var seen = Set<String>()
            try store.forEach { key, entry, value in
                #expect(entry.size == value.count)
                seen.insert(String(decoding: key, as: UTF8.self))
                return true
            }
            #expect(seen.count == 1000)
        }

        @Test("conditions, increment, touch, remove, evict, purge")
        func rest() throws {
            let store = try Store(at: nil, options: .init(capacity: 4 << 20))
            let first = try #require(try store.insert("1", for: "k", condition: .ifAbsent))
            #expect(try store.insert("2", for: "k", condition: .ifAbsent) == nil)
            #expect(try store.insert("3", for: "k", condition: .ifVersion(first)) != nil)
            #expect(try store.insert("4", for: "k", condition: .ifVersion(first)) == nil)
            #expect(try store.increment("n", by: 5, initial: 10) == 15)
            #expect(try store.touch("k", maxAge: .seconds(5)))
            try store.insert("5", for: "old", staleFor: .forever, tags: ["t"])
            #expect(try store.expire("old"))
            #expect(try store.value(for: "old") == nil && store.value(for: "old", includingStale: true) != nil)
            #expect(try store.touch("old"))
            try store.expireAll(tagged: "t")
            #expect(try store.value(for: "old") == nil && store.value(for: "old", includingStale: true) != nil)
            #expect(try store.removeValue(for: "old") && !store.expire("old"))
            #expect(try store.removeValue(for: "k"))
            #expect(try !store.removeValue(for: "k"))
            #expect(try store.evict(10) == 1)
            #expect(try store.purge() == 0)
            #expect(try store.verify().corruptRecords == 0)
        }

        // A child holds the locks of every open cache, so no other test may run beside it: Scripts/test runs it alone.
        @Test(
            "A forked child waits for no lock of a thread that it does not have",
            .enabled(
                if: ProcessInfo.processInfo.environment["SHALE_TEST_FORK"] != nil, "Scripts/test runs it by itself"))
        func fork() throws {
            let store = try Store(at: nil, options: .init(capacity: 4 << 20))
            try store.insert("value", for: "key")
            // Swift's runtime creates a generic type at its first use, under a lock that fork() copies as it is. So the
            // child's calls are made once before, and the only locks that the child meets are the cache's.
            let first = try Store(at: nil, options: .init(capacity: 4 << 20))
            #expect(Self.readsAndCloses(store, closing: first))
            let readers = Readers()
            for _ in 0..<2 {
                readers.group.enter()
                Thread.detachNewThread {
                    while !readers.areDone.load(ordering: .relaxed) { _ = try? store.value(for: "key") }
                    readers.group.leave()
                }
            }
            var failed = 0
            for _ in 0..<100 {
                let child = forkProcess()
                if child == 0 { _exit(Self.readsAndCloses(store, closing: store) ? 0 : 1) }
                if !Self.succeeds(child, within: 600) { failed += 1 }
            }
            readers.areDone.store(true, ordering: .relaxed)
            readers.group.wait()
            #expect(failed == 0)
        }

        private static func readsAndCloses(_ store: Store, closing closed: Store) -> Bool {
            let isThere = (try? store.value(for: "key")) == Array("value".utf8)
            return isThere && (try? closed.close()) != nil
        }

        /// The parent watches the time: an alarm in the child would never arrive, as Dispatch's threads block signals.
        private static func succeeds(_ child: pid_t, within seconds: Double) -> Bool {
            let end = Date(timeIntervalSinceNow: seconds)
            var status: Int32 = 0
            while waitpid(child, &status, WNOHANG) == 0 {
                if Date() > end { kill(child, SIGKILL) }
                usleep(1000)
            }
            return status == 0
        }

        private final class Readers: @unchecked Sendable {
            let areDone = Atomic(false)
            let group = DispatchGroup()
        }
    }
}

final class TestTime: @unchecked Sendable {
    var now: Int64 = 1_800_000_000_000
}
