import Foundation
import Synchronization
import Testing
@testable import Shale

/// Other calls in the middle of a call, in a fixed order by code of the client, and from other threads.
@Suite("Calls of a cache in memory that meet others", .timeLimit(.minutes(30)))
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
        #expect(removed == nil && cache.allKeys().isEmpty)
        cache["a"] = 1
        let replaced = cache.update(
            {
                $0 += 1
                cache.removeAll()
                // It gets the place of the old entry.
                cache["b"] = 5
            }, for: "a")
        #expect(replaced == nil && cache.allKeys() == ["b"] && cache["b"] == 5)
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
        #expect(cache.allKeys() == Array(0..<10))
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

    @Test("64 threads with costs, expiry, one hash for many keys, and a clock that uses the cache leave sums right")
    func sums() async throws {
        struct Few: Hashable {
            let id: Int
            func hash(into hasher: inout Hasher) { hasher.combine(id % 3) }
        }
        let clock = TestClock(), shared = Mutex<MemoryCache<Few, Int>?>.Box(nil), calls = Atomic(0)
        let cache = MemoryCache<Few, Int>(
            dateProvider: {
                if calls.add(1, ordering: .relaxed).newValue % 50 == 0 {
                    shared.value.withLock { $0 }?.removeValue(for: Few(id: 1))
                }
                return clock.date
            }, entryLifetime: 5, maximumEntryCount: 12, maximumTotalCost: 100,
            cost: { $0 == 7 ? .max : $0 == 8 ? .min : $0 % 40 })
        shared.value.withLock { $0 = cache }
        defer { shared.value.withLock { $0 = nil } }
        try await withThrowingTaskGroup(of: Void.self) { group in
            for thread in 0..<64 {
                group.addTask {
                    try await onThread {
                        for step in 0..<300 {
                            let key = Few(id: (thread * 31 + step * 7) % 30)
                            switch (thread + step) % 8 {
                            case 0, 1: cache[key] = step
                            case 2: cache[key] = nil
                            case 3: cache.update({ $0 += 1 }, for: key)
                            case 4: cache.update({ $0 += 1 }, for: key, default: step)
                            case 5: _ = cache.count
                            case 6 where step % 20 == 0: cache.removeAll()
                            case 6 where step % 5 == 0: clock.advance(seconds: 1)
                            default: _ = cache[key]
                            }
                        }
                    }
                }
            }
            try await group.waitForAll()
        }
        let entries = cache.table.entries.compactMap(\.self)
        #expect(entries.count == cache.table.places.count && entries.count <= 12)
        #expect(entries.reduce(0) { $0 + $1.cost } == cache.table.totalCost && cache.table.totalCost <= 100)
        #expect(Set(entries.map(\.key)).count == entries.count && cache.allKeys().allSatisfy { cache[$0] != nil })
    }
}

extension Mutex where Value: Sendable {
    /// A mutex that values share.
    fileprivate final class Box: Sendable {
        let value: Mutex<Value>
        init(_ initial: Value) { value = Mutex(initial) }
    }
}
