import Foundation
import Synchronization
import Testing
@testable import Shale

/// Other calls in the middle of a call, in a fixed order by code of the client, and from other threads.
@Suite("Calls of a cache in memory that meet others", .timeLimit(.minutes(5)))
struct MemoryRaceTests {
    /// A key whose comparison runs a body, once. All keys have one hash.
    private struct Key: Hashable {
        let id: Int
        let comparison: Mutex<(@Sendable () -> Void)?>.Box
        static func == (a: Key, b: Key) -> Bool {
            a.comparison.value.withLock { $0.take() }?()
            return a.id == b.id
        }
        func hash(into hasher: inout Hasher) {}
    }

    @Test("an update whose body removes all entries finds that its own has left")
    func removeAllInUpdate() {
        let cache = MemoryCache<String, Int>()
        cache["a"] = 1
        let removed = cache.update(
            {
                $0 += 1
                cache.removeAll()
            }, for: "a")
        #expect(removed == nil && cache.keys.isEmpty)
        cache["a"] = 1
        let replaced = cache.update(
            {
                $0 += 1
                cache.removeAll()
                // It gets the place of the old entry.
                cache["b"] = 5
            }, for: "a")
        #expect(replaced == nil && cache.keys == ["b"] && cache["b"] == 5)
    }

    @Test("reads, changes and removals of all entries by several threads")
    func removeAllAmongThreads() async throws {
        let cache = MemoryCache<Int, Int>(), others = Counter(), isOver = Atomic(false)
        let remover = Task {
            try await onThread { while !isOver.load(ordering: .relaxed) { cache.removeAll() } }
        }
        for _ in 0..<2 {
            Task {
                try await onThread {
                    for i in 0..<20_000 {
                        let key = i % 10
                        cache[key] = key
                        if let value = cache[key] { #expect(value == key) }
                        if let value = cache.update({ $0 += 0 }, for: key) { #expect(value == key) }
                        if let value = cache[key + 1] { #expect(value == key + 1) }
                        if i % 3 == 0 { cache[key] = nil }
                    }
                }
                others.add()
            }
        }
        try await others.wait(for: 2)
        isOver.store(true, ordering: .relaxed)
        try await remover.value
        for key in 0..<10 { cache[key] = key }
        #expect(cache.keys == Array(0..<10))
    }

    @Test("an entry that is replaced during the search for it is found, beside others of its hash")
    func replacedDuringSearch() {
        let comparison = Mutex<(@Sendable () -> Void)?>.Box(nil)
        func key(_ id: Int) -> Key { Key(id: id, comparison: comparison) }
        let cache = MemoryCache<Key, Int>(), searched = key(1)
        cache[searched] = 1
        /// The next search compares with this entry first, and then `searched` is the newest.
        func begin() {
            cache[key(2)] = 2
            comparison.value.withLock { $0 = { cache[Key(id: 1, comparison: comparison)] = 10 } }
        }
        begin()
        #expect(cache[searched] == 10)
        begin()
        #expect(cache.update({ $0 += 1 }, for: searched) == 11)
        begin()
        #expect(cache.update({ $0 += 1 }, for: searched, default: 0) == 11)
        begin()
        cache[searched] = nil
        #expect(cache[searched] == nil && cache.count == 1)
    }

    @Test("changes by several threads lose none, if all keys have one hash", arguments: [false, true])
    func counting(hasDefault: Bool) async throws {
        let comparison = Mutex<(@Sendable () -> Void)?>.Box(nil)
        @Sendable func key(_ id: Int) -> Key { Key(id: id, comparison: comparison) }
        let cache = MemoryCache<Key, Int>()
        if !hasDefault { for id in 0..<3 { cache[key(id)] = 0 } }
        try await withThrowingTaskGroup(of: Void.self) { group in
            for _ in 0..<4 {
                group.addTask {
                    for i in 0..<3000 {
                        if hasDefault {
                            cache.update({ $0 += 1 }, for: key(i % 3), default: 0)
                        } else {
                            #expect(cache.update({ $0 += 1 }, for: key(i % 3)) != nil)
                        }
                    }
                }
            }
            try await group.waitForAll()
        }
        for id in 0..<3 { #expect(cache[key(id)] == 4000) }
    }
}

extension Mutex where Value: Sendable {
    /// A mutex that values share.
    fileprivate final class Box: Sendable {
        let value: Mutex<Value>
        init(_ initial: Value) { value = Mutex(initial) }
    }
}
