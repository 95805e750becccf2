import Testing
@testable import Shale

@Suite("Changes", .timeLimit(.minutes(30)))
struct ChangesTests {
    private func words<Value>(_ change: Cache<String, Value>.Change) -> String {
        switch change {
        case .inserted(let key, _): "inserted \(key)"
        case .removed(let key): "removed \(key)"
        case .removedAll(let tag): "removed all \(tag ?? "")"
        case .evictedFromMemory(let key): "evicted \(key)"
        }
    }

    @Test("every listener sees what this object inserts, removes and evicts, in order, until it goes")
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
            #expect(seen == ["inserted a", "inserted b", "evicted a", "inserted c", "removed b", "removed all t", "removed all ", "inserted d"])
        }
    }

    @Test("an insertion says its version")
    func version() async throws {
        let cache = try Cache<String, Int>.small()
        var changes = cache.changes.makeAsyncIterator()
        let version = try cache.insert(1, for: "a")
        guard case .inserted("a", version) = await changes.next() else { Issue.record("another change"); return }
    }

    @Test("a listener that does not read keeps the newest 1,024")
    func slow() async throws {
        let cache = try Cache<String, Int>.small(memoryEntries: 0)
        var changes = cache.changes.makeAsyncIterator()
        for i in 0..<1030 { cache["\(i)"] = i }
        let first = try #require(await changes.next())
        #expect(words(first) == "inserted 6")
    }

    @Test("a listener that goes is forgotten")
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
