import Foundation
import Synchronization
import Testing
@testable import Shale

/// What is called with one of our locks held cannot use the cache: the lock would be taken twice, which traps.
@Suite("Code of a cache's user may use the cache", .timeLimit(.minutes(10)))
struct LockTests {
    /// Uses a cache from wherever it is called, unless it already does so.
    final class User: Sendable {
        @TaskLocal static var isUsing = false
        private let cache = Mutex<Cache<String, Node>?>(nil)
        let uses = Mutex<[String: Int]>([:])

        func set(_ cache: Cache<String, Node>?) {
            let before = self.cache.withLock { before in
                defer { before = cache }
                return before
            }
            withExtendedLifetime(before) {}
        }

        func use(_ from: String) {
            guard !User.isUsing, let cache = cache.withLock({ $0 }) else { return }
            // A use sets off further ones, of observers for one.
            let count = uses.withLock { uses in
                uses[from, default: 0] += 1
                return uses[from, default: 0]
            }
            if count > 100 { return }
            User.$isUsing.withValue(true) {
                for key in ["a", "b", "new"] { _ = cache[key] }
                cache["new"] = Node(self)
                _ = try? cache.remove("new")
                _ = try? cache.touch("a")
                _ = try? cache.allKeys()
                _ = cache.prefetch("behind") { Node(self) }
                Task(executorPreference: AtOnce()) {
                    _ = try? await cache.value(for: "absent", policy: LockTests.options) { throw Offline() }
                }
                _ = cache.events
                _ = cache.changes
            }
        }
    }

    final class Node: Codable, Sendable {
        let user: User?
        init(_ user: User?) { self.user = user }
        init(from decoder: any Decoder) throws { user = decoder.userInfo[.user] as? User }
        func encode(to encoder: any Encoder) throws { try [0].encode(to: encoder) }
        deinit { user?.use("deinit") }
    }

    final class Failure: Error {
        let user: User
        init(_ user: User) { self.user = user }
        deinit { user.use("error's deinit") }
    }

    /// Goes on at once, within whatever resumes a task.
    final class AtOnce: TaskExecutor {
        func enqueue(_ job: consuming ExecutorJob) {
            UnownedJob(job).runSynchronously(on: asUnownedTaskExecutor())
        }
    }

    private static let options = LoadOptions(
        .staleIfError, softLimit: .seconds(100), hardLimit: .seconds(1000), pauseAfterFailure: .seconds(1))

    @Test("coder, clock, deinit, observer and loader all use the cache", arguments: [0, 2, 256])
    func all(memoryEntries: Int) async throws {
        let user = User(), clock = TestClock()
        let coder = Coder<Node>(
            encode: { _ in
                user.use("encode")
                return Data([1])
            },
            decode: { _ in
                user.use("decode")
                return Node(user)
            })
        let cache = try Cache<String, Node>.inMemory(
            maxAge: .seconds(60), maxEntries: 20, capacity: 1 << 20, memoryEntries: memoryEntries, coder: coder,
            now: {
                user.use("clock")
                return clock.date
            })
        user.set(cache)
        defer { user.set(nil) }
        let observers = [cache.changes.map { _ in () }, cache.changes.map { _ in () }].map { changes in
            Task(executorPreference: AtOnce()) { for await _ in changes { user.use("changes") } }
        }
        let listeners = (0..<2).map { _ in
            let events = cache.events
            return Task(executorPreference: AtOnce()) { for await _ in events { user.use("events") } }
        }
        for round in 0..<50 {
            cache["a"] = Node(user)
            cache["\(round)"] = Node(user)
            cache["failing"] = Node(user)
            _ = cache["a"]
            try cache.remove("\(round)")
            _ = try await cache.value(for: "loaded") {
                user.use("loader")
                return Node(user)
            }
            clock.advance(seconds: 61)
            for _ in 0..<2 {
                _ = try? await cache.entry(for: "failing", policy: LockTests.options) { _ in
                    user.use("loader")
                    throw Failure(user)
                }
            }
            // Else the next failure takes the place of this one.
            if round % 2 == 0 { _ = try await cache.value(for: "failing", policy: .reload) { Node(user) } }
            // Those who wait go on within the load's last step.
            await withTaskGroup { group in
                for _ in 0..<4 {
                    group.addTask(executorPreference: AtOnce()) {
                        _ = try? await cache.value(for: "b", policy: .reload) { Node(user) }
                        user.use("waiter")
                    }
                }
            }
            try cache.removeAll()
        }
        for task in observers + listeners { task.cancel() }
        let uses = user.uses.withLock { $0 }
        for from in [
            "encode", "decode", "clock", "deinit", "error's deinit", "changes", "events", "loader", "waiter",
        ] where memoryEntries == 0 || from != "decode" {
            #expect(uses[from, default: 0] > 0, "\(from)")
        }
    }

    @Test("a look at what is stored for one key holds up no load of another")
    func slowLook() async throws {
        let loader = Loader<String, Int>()
        let looking = Gate(), mayGo = DispatchSemaphore(value: 0)
        async let slow = onThread {
            try loader.join("slow", while: { _ in true }) {
                looking.open()
                mayGo.wait()
                return 1
            } load: { _ in
                2
            }
        }
        try await looking.wait()
        guard case .load(let hold) = try loader.join("other", while: { _ in true }, unless: { nil }, load: { _ in 3 })
        else {
            Issue.record("not loaded")
            return
        }
        #expect(try await hold.output() == 3)
        mayGo.signal()
        guard case .stored(1) = try await slow else {
            Issue.record("not found")
            return
        }
    }

    @Test("who looked while the load of another ended looks again")
    func lateLook() async throws {
        let loader = Loader<String, Int>(), stored = Mutex<Int?>(nil), loads = Counter()
        let load: @Sendable (LoadFence) async throws -> Int = { _ in
            loads.add()
            stored.withLock { $0 = 5 }
            return 5
        }
        let looks = Counter(), looking = Gate(), mayGo = DispatchSemaphore(value: 0)
        // The first look finds nothing; before it is over, another has loaded, stored and left.
        async let answer = onThread {
            try loader.join("key", while: { _ in true }) {
                let found = stored.withLock { $0 }
                if looks.add() == 1 {
                    looking.open()
                    mayGo.wait()
                }
                return found
            } load: {
                try await load($0)
            }
        }
        try await looking.wait()
        while case .load(let hold) = try loader.join(
            "key", while: { _ in true }, unless: { stored.withLock { $0 } }, load: load)
        { _ = try await hold.output() }
        mayGo.signal()
        let joined = try await answer
        guard case .stored(5) = joined else {
            Issue.record("loaded again")
            return
        }
        #expect(loads.count == 1 && looks.count == 2)
    }
}

extension CodingUserInfoKey {
    fileprivate static var user: CodingUserInfoKey { CodingUserInfoKey(rawValue: "user").unsafelyUnwrapped }
}
