import Foundation
import Synchronization
import Testing
@testable import Shale

@Suite("Loads of a cache in memory", .timeLimit(.minutes(30)))
struct MemoryLoadingTests {
    /// Neither Codable nor Equatable.
    private final class Image: Sendable {
        let number: Int
        init(_ number: Int) { self.number = number }
    }
    /// All keys have one hash.
    private struct Key: Hashable, Sendable {
        let name: String
        init(_ name: String) { self.name = name }
        func hash(into hasher: inout Hasher) {}
    }
    private let clock = TestClock()
    private let cache: MemoryCache<Key, Image>

    init() { cache = MemoryCache(dateProvider: clock.now, entryLifetime: 60) }

    /// Two callers whose load waits for `gate`, once both wait.
    private func twoCallers(_ key: String, _ gate: Gate, number: Int = 1) async throws -> [Task<Int, any Error>] {
        let begun = Counter(), asked = Counter()
        let line = LineExecutor()
        let callers = (0..<2).map { _ in
            Task(executorPreference: line) { [cache] in
                asked.add()
                return try await cache.value(for: Key(key)) {
                    begun.add()
                    await gate.waitRegardless()
                    return Image(number)
                }.number
            }
        }
        try await asked.wait(for: 2)
        try await begun.wait(for: 1)
        // The line has run both up to their waits.
        await Task(executorPreference: line) {}.value
        #expect(begun.count == 1)
        return callers
    }

    @Test("1,000 tasks that ask for a missing key cause one load, and so does the next miss")
    func once() async throws {
        let loads = Counter()
        for round in 1...3 {
            try await withThrowingTaskGroup(of: Int.self) { group in
                for _ in 0..<1000 {
                    group.addTask { [cache] in try await cache.value(for: Key("key")) { Image(loads.add()) }.number }
                }
                for try await number in group { #expect(number == round) }
            }
            #expect(loads.count == round && cache.value(for: Key("key"))?.number == round)
            clock.advance(seconds: 60)
        }
        #expect(cache.loadKeys.isEmpty)
    }

    @Test("keys of one hash have loads of their own")
    func collisions() async throws {
        try await withThrowingTaskGroup(of: Void.self) { group in
            for number in 0..<200 {
                group.addTask { [cache] in
                    let image = try await cache.value(for: Key("\(number % 20)")) { Image(number % 20) }
                    #expect(image.number == number % 20)
                }
            }
            try await group.waitForAll()
        }
        #expect(cache.count == 20 && cache.loadKeys.isEmpty)
    }

    @Test("reload loads although there is a value; other policies do not")
    func policies() async throws {
        cache[Key("key")] = Image(1)
        for policy in [LoadPolicy.default, .staleIfError, .staleWhileRevalidate] {
            #expect(try await cache.value(for: Key("key"), options: LoadOptions(policy)) { Image(2) }.number == 1)
        }
        #expect(try await cache.value(for: Key("key"), options: .reload) { Image(3) }.number == 3)
        #expect(cache[Key("key")]?.number == 3)
        await #expect(throws: ShaleError.self) {
            try await cache.value(for: Key("key"), options: LoadOptions(jitter: 2)) { Image(4) }
        }
    }

    @Test("an error goes to all callers, and nothing is stored")
    func failing() async throws {
        let gate = Gate(), asked = Counter(), line = LineExecutor()
        let callers = (0..<3).map { _ in
            Task(executorPreference: line) { [cache] in
                asked.add()
                _ = try await cache.value(for: Key("key")) {
                    try await gate.wait()
                    throw Offline()
                }
            }
        }
        try await asked.wait(for: 3)
        await Task(executorPreference: line) {}.value
        gate.open()
        for caller in callers { await #expect(throws: Offline.self) { try await caller.value } }
        #expect(cache[Key("key")] == nil)
    }

    @Test("a cancelled caller leaves; the last one cancels the load, and then nothing is stored")
    func cancelling() async throws {
        let gate = Gate(), callers = try await twoCallers("key", gate)
        callers[0].cancel()
        await #expect(throws: CancellationError.self) { try await callers[0].value }
        callers[1].cancel()
        await #expect(throws: CancellationError.self) { try await callers[1].value }
        gate.open()
        // Begins when the cancelled load has ended.
        #expect(try await cache.value(for: Key("key")) { Image(7) }.number == 7)
        #expect(cache[Key("key")]?.number == 7)
    }

    enum Change: CaseIterable, Sendable { case insert, remove, removeAll, update, updateAbsent }

    @Test("a change during a load stays, and a later caller loads again", arguments: Change.allCases)
    func changes(_ change: Change) async throws {
        let cache = cache
        if change == .update { cache[Key("key")] = Image(4) }
        let gate = Gate()
        let options: LoadOptions = change == .update ? .reload : .default
        let begun = Gate()
        let early = Task {
            try await cache.value(for: Key("key"), options: options) {
                begun.open()
                await gate.waitRegardless()
                return Image(1)
            }.number
        }
        try await begun.wait()
        switch change {
        case .insert: cache[Key("key")] = Image(5)
        case .remove: cache[Key("key")] = nil
        case .removeAll: cache.removeAll()
        case .update: cache.update({ $0 = Image(5) }, for: Key("key"))
        case .updateAbsent: cache.update({ $0 = Image(5) }, for: Key("key"), default: Image(0))
        }
        let late = Task { try await cache.value(for: Key("key"), options: .reload) { Image(6) }.number }
        gate.open()
        #expect(try await early.value == 1)
        #expect(try await late.value == 6)
        #expect(cache[Key("key")]?.number == 6)
    }

    @Test("a load does not undo a removal during it, nor one of another key its own", arguments: [false, true])
    func removed(isOther: Bool) async throws {
        let cache = cache
        let number = try await cache.value(for: Key("key")) {
            cache[Key(isOther ? "other" : "key")] = nil
            return Image(1)
        }.number
        #expect(number == 1 && (cache[Key("key")] != nil) == isOther)
    }

    @Test("a hard limit ends the wait; loads that wait for each other fail")
    func limits() async throws {
        let cache = cache, gate = Gate()
        let error = await #expect(throws: LoadError.self) {
            try await cache.value(for: Key("key"), options: LoadOptions(hardLimit: .milliseconds(1))) {
                try await gate.wait()
                return Image(1)
            }
        }
        guard case .hardLimit? = error else { Issue.record("\(String(describing: error))"); return }
        let cycle = await #expect(throws: LoadError.self) {
            try await cache.value(for: Key("a")) {
                try await cache.value(for: Key("b")) { try await cache.value(for: Key("a")) { Image(1) } }
            }
        }
        guard case .cycle? = cycle else { Issue.record("\(String(describing: cycle))"); return }
        #expect(try await cache.value(for: Key("a")) { Image(2) }.number == 2)
    }

    @Test("jitter shortens lifetimes")
    func jitter() async throws {
        let cache = MemoryCache<Int, Int>(dateProvider: clock.now, entryLifetime: 60, maximumEntryCount: 0)
        for key in 0..<100 { _ = try await cache.value(for: key, options: LoadOptions(jitter: 1)) { key } }
        clock.advance(seconds: 30)
        #expect((10..<90).contains(cache.count))
    }
}
