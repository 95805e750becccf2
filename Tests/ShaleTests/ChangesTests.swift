import Foundation
import Testing
@testable import Shale

@Suite("Changes", .timeLimit(.minutes(30)))
struct ChangesTests {
    private func words<Key, Value>(_ change: Cache<Key, Value>.Change) -> String {
        switch change {
        case .inserted(let key, _): "inserted \(key)"
        case .removed(let key): "removed \(key)"
        case .removedAll(let tag): "removed all \(tag ?? "")"
        case .evicted(let key): "evicted \(key)"
        case .evictedFromMemory(let key): "evicted \(key) from memory"
        }
    }

    @Test("every stream has this object's insertions, removals and evictions, in order, until the object is freed")
    func all() async throws {
        var cache: Cache<String, Int>? = try .small(memoryEntries: 2)
        let listeners = [cache?.changes, cache?.changes].compactMap { $0 }
        cache?["a"] = 1
        cache?["b"] = 2
        cache?["c"] = 3
        cache?["b"] = nil
        cache?["b"] = nil
        try cache?.removeAll(tagged: "t")
        try cache?.removeAll()
        _ = try await cache?.value(for: "d") { 4 }
        cache = nil
        for listener in listeners {
            var seen: [String] = []
            for await change in listener { seen.append(words(change)) }
            #expect(
                seen == [
                    "inserted a", "inserted b", "evicted a from memory", "inserted c", "removed b", "removed all t",
                    "removed all ", "inserted d",
                ])
        }
    }

    @Test("an eviction is reported to the entry's cache, even if another cache needed the room")
    func evictions() async throws {
        let store = try Store(at: nil, options: .init(capacity: 4 << 20, maxEntries: 3))
        let numbers = try Cache<Int, Int>(in: store, named: "numbers"),
            words = try Cache<String, Int>(in: store, named: "words")
        var ofNumbers = numbers.changes.makeAsyncIterator(), ofWords = words.changes.makeAsyncIterator()
        for i in 1...3 { numbers[i] = i }
        words["a"] = 1
        words["b"] = 2
        numbers[4] = 4
        words["c"] = 3
        for expected in ["inserted 1", "inserted 2", "inserted 3", "evicted 1", "evicted 2", "evicted 3", "inserted 4"]
        {
            #expect(await ofNumbers.next().map(self.words) == expected)
        }
        for expected in ["inserted a", "inserted b", "evicted a", "inserted c"] {
            #expect(await ofWords.next().map(self.words) == expected)
        }
    }

    @Test(
        "evictions of an entry with a new age and of a large one are reported; another handle's evictions are not"
    )
    func evictedKinds() async throws {
        let directory = TemporaryDirectory(), clock = TestClock()
        let mine = try Cache<String, Data>(at: directory.url, maxEntries: 2, capacity: 4 << 20, now: clock.now)
        let theirs = try Cache<String, Data>(at: directory.url, maxEntries: 2, capacity: 4 << 20, now: clock.now)
        var changes = mine.changes.makeAsyncIterator()
        mine["large"] = Data((0..<500_000).map { _ in .random(in: 0...255) })
        mine["touched"] = Data()
        try mine.touch("touched")
        mine["a"] = Data()
        mine["b"] = Data()
        theirs["theirs"] = Data()
        mine["c"] = Data()
        for expected in [
            "inserted large", "inserted touched", "evicted large", "inserted a", "evicted touched", "inserted b",
            "evicted b", "inserted c",
        ] {
            #expect(await changes.next().map(words) == expected)
        }
    }

    @Test("an insertion has its version")
    func version() async throws {
        let cache = try Cache<String, Int>.small()
        var changes = cache.changes.makeAsyncIterator()
        let version = try cache.insert(1, for: "a")
        guard case .inserted("a", version) = await changes.next() else { Issue.record("another change"); return }
    }

    @Test("an unread stream buffers the newest 1,024 changes")
    func slow() async throws {
        let cache = try Cache<String, Int>.small(memoryEntries: 0)
        var changes = cache.changes.makeAsyncIterator()
        for i in 0..<1030 { cache["\(i)"] = i }
        let first = try #require(await changes.next())
        #expect(words(first) == "inserted 6")
    }

    @Test("a stream that is freed is removed")
    func forgotten() async throws {
        let cache = try Cache<String, Int>.small()
        let other = cache.changes
        do {
            let brief = cache.changes
            cache["a"] = 1
            for await _ in brief { break }
        }
        cache["b"] = 2
        var changes = other.makeAsyncIterator()
        #expect(await changes.next().map(words) == "inserted a")
        #expect(await changes.next().map(words) == "inserted b")
    }
}
