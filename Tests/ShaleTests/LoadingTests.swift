import Foundation
import Testing
@testable import Shale

@Suite("Loading", .timeLimit(.minutes(30)))
struct LoadingTests {
    private let clock = TestClock()
    private let policies: [LoadOptions] = [.default, .staleIfError, .staleWhileRevalidate, .reload]

    @Test("10,000 tasks that ask for one missing key cause exactly one load")
    func stampede() async throws {
        let cache = try Cache<String, Int>.small(clock: clock)
        let asked = Counter(), loads = Counter()
        let sum = try await withThrowingTaskGroup(of: Int.self) { group in
            for _ in 0..<10_000 {
                group.addTask {
                    asked.add()
                    return try await cache.value(for: "key") {
                        try await asked.wait(for: 10_000)
                        loads.add()
                        return 7
                    }
                }
            }
            return try await group.reduce(0, +)
        }
        #expect(sum == 70_000)
        #expect(loads.count == 1)
        #expect(cache.statistics.loads == 1)
    }

    @Test("waves of tasks that arrive while loads end cause one load each", arguments: 0..<20)
    func waves(_: Int) async throws {
        let cache = try Cache<Int, Int>.small(clock: clock)
        let loads = Counter()
        await withTaskGroup(of: Void.self) { group in
            for i in 0..<1000 {
                group.addTask {
                    let value = try? await cache.value(for: i % 10) {
                        loads.add()
                        await Task.yield()
                        return i % 10
                    }
                    #expect(value == i % 10)
                }
            }
        }
        #expect(loads.count == 10)
    }

    @Test("a fresh value is served without a load, except by reload")
    func fresh() async throws {
        for policy in policies {
            let cache = try Cache<String, Int>.small(clock: clock)
            cache["key"] = 1
            let loads = Counter()
            let value = try await cache.value(for: "key", options: policy) {
                loads.add()
                return 2
            }
            #expect(value == (policy == .reload ? 2 : 1), "\(policy)")
            #expect(loads.count == (policy == .reload ? 1 : 0), "\(policy)")
            #expect(cache["key"] == value)
        }
    }

    @Test("a missing value is loaded, stored with its age and tags, and reported as loaded", arguments: [0, 256])
    func missing(memoryEntries: Int) async throws {
        for policy in policies {
            let cache = try Cache<String, Int>.small(memoryEntries: memoryEntries, clock: clock)
            #expect(try await cache.value(for: "key", options: policy, maxAge: .seconds(5), tags: ["news"]) { 1 } == 1)
            let stored = try #require(try cache.entry(for: "key"))
            #expect(stored.value == 1 && stored.expiresAt == clock.date + 5 && stored.tags == ["news"])
            let entry = try await cache.entry(for: "other", options: policy) { present in
                #expect(present == nil)
                return .value(2, etag: "e", pinned: true)
            }
            #expect(entry.source == .loader && entry.etag == "e" && entry.isPinned && !entry.isStale)
            #expect(entry.version == (try cache.entry(for: "other")?.version))
            #expect(entry.expiresAt == clock.date + 60)
        }
    }

    @Test("stale: default and reload load; staleIfError loads; staleWhileRevalidate serves and loads in the background")
    func stale() async throws {
        for policy in policies {
            let cache = try Cache<String, Int>.small(clock: clock)
            cache["key"] = 1
            clock.advance(seconds: 60)
            var changes = cache.changes.makeAsyncIterator()
            let entry = try await cache.entry(for: "key", options: policy) { present in
                #expect(present?.value == 1 && present?.isStale == true)
                return .value(2)
            }
            #expect(entry.value == (policy == .staleWhileRevalidate ? 1 : 2), "\(policy)")
            #expect(entry.isStale == (policy == .staleWhileRevalidate), "\(policy)")
            _ = await changes.next()
            #expect(cache["key"] == 2, "\(policy)")
        }
    }

    @Test("a failed load: staleIfError serves the stale value, the others throw; nothing is stored")
    func failing() async throws {
        for policy in policies where policy != .staleWhileRevalidate {
            let cache = try Cache<String, Int>.small(clock: clock)
            await #expect(throws: Offline.self) {
                try await cache.value(for: "key", options: policy) { throw Offline() }
            }
            #expect(try cache.entry(for: "key", includingStale: true) == nil)
            cache["key"] = 1
            clock.advance(seconds: 60)
            if policy == .staleIfError {
                let entry = try await cache.entry(for: "key", options: policy) { _ in throw Offline() }
                #expect(entry.value == 1 && entry.isStale)
            } else {
                await #expect(throws: Offline.self) {
                    try await cache.value(for: "key", options: policy) { throw Offline() }
                }
            }
            #expect(try cache.entry(for: "key", includingStale: true)?.value == 1)
            #expect(try await cache.value(for: "key", options: policy) { 2 } == 2)
        }
    }

    @Test("staleIfError does not serve a value that was removed during the load")
    func removedMeanwhile() async throws {
        let cache = try Cache<String, Int>.small(clock: clock)
        cache["key"] = 1
        clock.advance(seconds: 60)
        await #expect(throws: Offline.self) {
            try await cache.value(for: "key", options: .staleIfError) {
                try cache.removeValue(for: "key")
                throw Offline()
            }
        }
    }

    @Test("staleWhileRevalidate: readers are served while one load goes on, and a failed load leaves the stale value")
    func behind() async throws {
        let cache = try Cache<String, Int>.small(clock: clock)
        cache["key"] = 1
        clock.advance(seconds: 60)
        let gate = Gate(), loads = Counter()
        for _ in 0..<100 {
            let value = try await cache.value(for: "key", options: .staleWhileRevalidate) {
                loads.add()
                try await gate.wait()
                throw Offline()
            }
            #expect(value == 1)
        }
        gate.open()
        // Joins that load, or begins the next.
        _ = try? await cache.value(for: "key") { throw Offline() }
        #expect(loads.count == 1)
        #expect(try cache.entry(for: "key", includingStale: true)?.value == 1)
    }

    @Test(
        "an entry that another handle renews or replaces just after it was read as stale is not loaded again",
        arguments: [true, false])
    func renewedMeanwhile(isReplaced: Bool) async throws {
        let store = try Store(at: nil, options: .init(capacity: 4 << 20))
        let other = try Cache<String, String>(in: store, named: "c", maxAge: .forever)
        let reads = Counter(), loads = Counter()
        let cache = try Cache<String, String>(
            in: store, named: "c", memoryEntries: 0,
            coder: Coder(
                encode: { Data($0.utf8) },
                decode: { data in
                    if reads.add() == 1 {
                        if isReplaced { try other.insert("new", for: "key") } else { try other.touch("key") }
                    }
                    return String(decoding: data, as: UTF8.self)
                }))
        try other.insert("old", for: "key", maxAge: .zero)
        let stale = try await cache.entry(for: "key", options: .staleWhileRevalidate) { _ in
            loads.add()
            return .value("loaded")
        }
        #expect(stale.value == "old" && stale.isStale)
        // Would join a load if there were one, or begin after it.
        #expect(try await cache.value(for: "key", options: .reload) { "reloaded" } == "reloaded")
        #expect(loads.count == 0)
    }

    @Test("not modified: the stored value gets a new age, and keeps everything else")
    func notModified() async throws {
        for policy in [LoadOptions.default, .staleIfError, .reload] {
            let cache = try Cache<String, Int>.small(clock: clock)
            let version = try cache.insert(1, for: "key", tags: ["t"], etag: "e")
            clock.advance(seconds: 60)
            let entry = try await cache.entry(for: "key", options: policy) { present in
                #expect(present?.etag == "e")
                return .notModified(maxAge: .seconds(9))
            }
            #expect(
                entry.value == 1 && !entry.isStale && entry.version == version && entry.etag == "e"
                    && entry.tags == ["t"])
            #expect(entry.expiresAt == clock.date + 9)
        }
    }

    @Test("not modified, but evicted during the load: it is stored again; with nothing stored it is an error")
    func notModifiedButEvicted() async throws {
        let cache = try Cache<String, Int>.small(staleFor: .seconds(10), clock: clock)
        try cache.insert(1, for: "key", tags: ["t"], etag: "e", pinned: true)
        clock.advance(seconds: 60)
        let entry = try await cache.entry(for: "key") { _ in
            clock.advance(seconds: 10)
            _ = try cache.store.purge()
            return .notModified()
        }
        #expect(entry.value == 1 && entry.etag == "e")
        let again = try #require(try cache.entry(for: "key"))
        #expect(again.tags == ["t"] && again.isPinned && again.expiresAt == clock.date + 60)
        await #expect(throws: ShaleError.self) { try await cache.entry(for: "other") { _ in .notModified() } }
    }

    @Test("a loaded value that cannot be stored is returned and counted")
    func unstored() async throws {
        let cache = try Cache<String, Data>.small(clock: clock)
        let large = Data(count: 2 << 20)
        #expect(throws: ShaleError.self) { try cache.insert(large, for: "key") }
        #expect(try await cache.value(for: "key") { large } == large)
        #expect(cache.statistics.unstored == 1)
        #expect(cache["key"] == nil)
    }

    @Test("a value that is stale at once goes to all waiters, and is loaded again for the next caller")
    func staleAtOnce() async throws {
        let cache = try Cache<String, Int>.small(staleFor: .zero, clock: clock)
        let loads = Counter()
        for i in 1...3 { #expect(try await cache.value(for: "key", maxAge: .zero) { loads.add() } == i) }
    }

    @Test("a cancelled waiter returns at once; the load continues for the others")
    func cancelOne() async throws {
        let cache = try Cache<String, Int>.small(clock: clock)
        let gate = Gate(), begun = Gate()
        let load: @Sendable () async throws -> Int = {
            begun.open()
            try await gate.wait()
            return 1
        }
        let waiter = Task { try await cache.value(for: "key", load: load) }
        try await begun.wait()
        let token = cache.prefetch("key", load: load)
        waiter.cancel()
        await #expect(throws: CancellationError.self) { try await waiter.value }
        let other = Task { try await cache.value(for: "key", load: load) }
        gate.open()
        #expect(try await other.value == 1)
        token.cancel()
        #expect(cache["key"] == 1)
        #expect(cache.statistics.loads == 1)
    }

    @Test("cancelling the last waiter cancels the load, and nothing is stored, even if the load runs to its end")
    func cancelLast() async throws {
        for policy in policies {
            let cache = try Cache<String, Int>.small(clock: clock)
            if policy == .staleIfError { cache["key"] = 0 }
            clock.advance(seconds: 60)
            let gate = Gate(), begun = Gate(), sawCancellation = Counter()
            let waiter = Task {
                try await cache.value(for: "key", options: policy) {
                    begun.open()
                    await gate.waitRegardless()
                    if Task.isCancelled { sawCancellation.add() }
                    return 1
                }
            }
            try await begun.wait()
            waiter.cancel()
            await #expect(throws: CancellationError.self, "\(policy)") { try await waiter.value }
            gate.open()
            // Begins when the cancelled one has ended.
            #expect(
                try await cache.value(for: "key", options: .reload) {
                    try cache.entry(for: "key", includingStale: true)?.value == 1 ? -1 : 2
                } == 2)
            #expect(sawCancellation.count == 1)
        }
    }

    @Test("an already cancelled task loads nothing")
    func cancelledBefore() async throws {
        let cache = try Cache<String, Int>.small(clock: clock)
        let gate = Gate(), loads = Counter()
        let task = Task {
            await gate.waitRegardless()
            return try await cache.value(for: "key") { loads.add() }
        }
        task.cancel()
        gate.open()
        await #expect(throws: CancellationError.self) { try await task.value }
        #expect(try await cache.value(for: "key") { 5 } == 5)
        #expect(loads.count == 0)
    }

    @Test("prefetch loads in the background; callers wait for it; its handle cancels")
    func prefetch() async throws {
        let cache = try Cache<String, Int>.small(clock: clock)
        let gate = Gate()
        cache.prefetch("key") {
            try await gate.wait()
            return 1
        }
        gate.open()
        #expect(try await cache.value(for: "key") { 2 } == 1)

        let never = Gate(), cancelled = Counter(), begun = Gate()
        let token = cache.prefetch("other") {
            begun.open()
            do { try await never.wait() } catch {
                cancelled.add()
                throw error
            }
            return 1
        }
        try await begun.wait()
        token.cancel()
        token.cancel()
        try await cancelled.wait(for: 1)
        #expect(try await cache.value(for: "other") { 2 } == 2)
    }

    @Test("prefetch does not load a fresh value, and stores no failure")
    func prefetchRest() async throws {
        let cache = try Cache<String, Int>.small(clock: clock)
        cache["key"] = 1
        let loads = Counter()
        cache.prefetch("key") { loads.add() }.cancel()
        let failed = Gate()
        cache.prefetch("other") {
            failed.open()
            throw Offline()
        }
        try await failed.wait()
        #expect(try await cache.value(for: "other", options: .reload) { 2 } == 2)
        #expect(loads.count == 0 && cache["key"] == 1)
    }

    @Test("entries: first the stored entry, even stale, then the loaded one")
    func entries() async throws {
        let cache = try Cache<String, Int>.small(clock: clock)
        func all(_ load: @escaping @Sendable () async throws -> Int) async throws -> [Int] {
            var seen: [Int] = []
            for try await entry in cache.entries(for: "key", load: load) {
                seen.append(entry.isStale ? -entry.value : entry.value)
            }
            return seen
        }
        #expect(try await all { 1 } == [1])
        #expect(try await all { 2 } == [1])
        clock.advance(seconds: 60)
        #expect(try await all { 3 } == [-1, 3])
        clock.advance(seconds: 60)
        var iterator = cache.entries(for: "key") { _ in throw Offline() }.makeAsyncIterator()
        #expect(try await iterator.next()?.value == 3)
        await #expect(throws: Offline.self) { try await iterator.next() }
        #expect(try await iterator.next() == nil)
    }

    @Test("entries: the load begins with the second element, and ends with the task that requests it")
    func entriesCancelled() async throws {
        let cache = try Cache<String, Int>.small(clock: clock)
        cache["key"] = 1
        clock.advance(seconds: 60)
        let begun = Gate(), never = Gate(), cancelled = Counter()
        let load: @Sendable () async throws -> Int = {
            begun.open()
            do { try await never.wait() } catch {
                cancelled.add()
                throw error
            }
            return 2
        }
        for try await entry in cache.entries(for: "key", load: load) {
            #expect(entry.value == 1)
            break
        }
        #expect(cache.statistics.loads == 0)
        let task = Task { for try await _ in cache.entries(for: "key", load: load) {} }
        try await begun.wait()
        task.cancel()
        try await cancelled.wait(for: 1)
    }

    @Test("early refresh: a fresh hit loads in the background when it is due, once")
    func early() async throws {
        let cache = try Cache<String, Int>.small(refreshAhead: 1e15, clock: clock)
        let loads = Counter()
        let load: @Sendable () async throws -> Int = { [clock] in
            clock.advance(milliseconds: 10)
            return loads.add()
        }
        var changes = cache.changes.makeAsyncIterator()
        #expect(try await cache.value(for: "key", load: load) == 1)
        _ = await changes.next()
        // With this factor all but one draw in 10^10 load.
        #expect(try await cache.value(for: "key", load: load) == 1)
        guard case .inserted = await changes.next() else { Issue.record("no load"); return }
        #expect(cache["key"] == 2)

        let calm = try Cache<String, Int>.small(refreshAhead: 1e-15, clock: clock)
        for _ in 0..<100 { #expect(try await calm.value(for: "key", load: load) == 3) }
        // An inserted value has no load time, and is not refreshed.
        cache["by hand"] = 9
        for _ in 0..<100 { #expect(try await cache.value(for: "by hand", load: load) == 9) }
        #expect(loads.count == 3)
    }

    @Test("a loader that validates: entries has the stored entry, then the same with a new age; prefetch renews")
    func validating() async throws {
        let cache = try Cache<String, Int>.small(clock: clock)
        try cache.insert(1, for: "key", etag: "v1")
        for _ in 0..<2 {
            clock.advance(seconds: 60)
            var seen: [Cache<String, Int>.Entry] = []
            for try await entry in cache.entries(
                for: "key", options: .default, load: { stored in stored?.etag == "v1" ? .notModified() : .value(2) })
            { seen.append(entry) }
            #expect(seen.map(\.value) == [1, 1] && seen.map(\.isStale) == [true, false])
            #expect(seen.first?.version == seen.last?.version)
        }
        clock.advance(seconds: 60)
        var kept: [Int] = []
        for try await entry in cache.entries(for: "key", options: .staleIfError, load: { _ in throw Offline() }) {
            kept.append(entry.value)
        }
        #expect(kept == [1])
        await #expect(throws: Offline.self) {
            for try await _ in cache.entries(for: "none", options: .staleIfError, load: { _ in throw Offline() }) {}
        }
        let asked = Gate()
        cache.prefetch(
            "key",
            load: { stored in
                asked.open()
                return stored?.etag == "v1" ? .notModified() : .value(2)
            })
        try await asked.wait()
        while cache["key"] == nil { await Task.yield() }
        #expect(cache["key"] == 1)
        kept = []
        for try await entry in cache.entries(for: "key", options: .reload, load: { _ in .value(2) }) {
            kept.append(entry.value)
        }
        #expect(kept == [1, 2])
    }

    @Test("a load inherits the task-local values of its first caller")
    func taskLocal() async throws {
        let cache = try Cache<String, String>.small(clock: clock)
        let value = try await Trace.$name.withValue("caller") { try await cache.value(for: "key") { Trace.name } }
        #expect(value == "caller")
    }
    private enum Trace { @TaskLocal static var name = "" }

    @Test("after threads read, write and load the same keys at once, the last stored value remains")
    func together() async throws {
        let directory = TemporaryDirectory()
        let caches = try (0..<2).map { _ in try Cache<Int, Int>(at: directory.url, capacity: 4 << 20, memoryEntries: 4)
        }
        await withTaskGroup(of: Void.self) { group in
            for worker in 0..<8 {
                group.addTask {
                    let cache = caches[worker % 2]
                    for step in 0..<500 {
                        let key = (worker + step) % 8
                        switch step % 5 {
                        case 0: cache[key] = key * 1000 + step
                        case 1: cache[key] = nil
                        case 2: _ = try? await cache.value(for: key, options: .staleWhileRevalidate) { key * 1000 }
                        default: if let value = cache[key] { #expect(value / 1000 == key) }
                        }
                    }
                }
            }
        }
        for key in 0..<8 {
            caches[0][key] = key
            #expect(caches[1][key] == key)
        }
    }

    @Test(
        "an invalid argument of the loader's result is an error of the load, not a value that every call loads again"
    )
    func ownErrors() async throws {
        let cache = try Cache<String, Int>.small(), loads = Counter()
        let eight = (0..<8).map(String.init)
        for _ in 0..<2 {
            let error = await #expect(throws: ShaleError.self) {
                try await cache.value(for: "tags", tags: eight) { loads.add() }
            }
            #expect(error?.code == .invalid)
        }
        for loaded in [
            Cache<String, Int>.Loaded.value(1, tags: [""]), .value(1, maxAge: .seconds(-1)),
            .missing(tags: eight), .missing(maxAge: .seconds(-1)),
        ] {
            await #expect(throws: ShaleError.self) { try await cache.entry(for: "key") { _ in loaded } }
        }
        try cache.insert(1, for: "old", maxAge: .zero)
        await #expect(throws: ShaleError.self) {
            try await cache.entry(for: "old") { _ in .notModified(maxAge: .seconds(-1)) }
        }
        #expect(cache.statistics.failedLoads == 7 && cache.statistics.unstored == 0)
        #expect(try cache.allKeys().isEmpty)
        // Errors of the store are not theirs.
        let large = try Cache<String, Data>.small()
        #expect(try await large.value(for: "large") { Data(count: 3 << 20) }.count == 3 << 20)
        #expect(large.statistics.unstored == 1)
    }

    @Test("\"not modified\" does not renew a value that was stored while its predecessor was validated")
    func validatedVersion() async throws {
        let clock = TestClock()
        let cache = try Cache<String, Int>.small(clock: clock)
        try cache.insert(1, for: "key", maxAge: .seconds(1))
        clock.advance(seconds: 1)
        let entry = try await cache.entry(for: "key") { stored in
            #expect(stored?.value == 1)
            try cache.insert(2, for: "key", maxAge: .seconds(5))
            return .notModified(maxAge: .seconds(1000))
        }
        #expect(entry.value == 1 && entry.isStale)
        let stored = try #require(try cache.entry(for: "key"))
        #expect(stored.value == 2 && stored.expiresAt == clock.date + 5)
    }

    @Test("no entry has version 0, which means that a value was not stored")
    func versionZero() throws {
        let cache = try Cache<String, Int>.small()
        let version = try cache.insert(1, for: "key")
        #expect(
            try !cache.removeValue(for: "key", ifVersion: 0) && !cache.removeValue(for: "key", ifVersion: version + 1))
        #expect(try !cache.store.touch(cache.stored("key"), ifVersion: 0, maxAge: .zero))
        #expect(try cache.insert(2, for: "key", ifVersion: 0) == nil)
        #expect(cache["key"] == 1)
        #expect(try cache.removeValue(for: "key", ifVersion: version))
        #expect(cache["key"] == nil)
    }
}
