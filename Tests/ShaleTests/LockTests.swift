import Foundation
import Synchronization
import Testing
@testable import Shale

/// Code that is called with a lock of the cache held cannot use the cache: taking the lock twice traps.
@Suite("Client code may use the cache", .timeLimit(.minutes(30)))
struct LockTests {
    /// Uses a cache wherever it is called, but not recursively.
    final class User: Sendable {
        @TaskLocal static var isUsing = false
        private let body = Mutex<(@Sendable () -> Void)?>(nil)
        let uses = Mutex<[String: Int]>([:])

        /// What a use does.
        func set(_ body: (@Sendable () -> Void)?) {
            let before = self.body.withLock { before in
                defer { before = body }
                return before
            }
            withExtendedLifetime(before) {}
        }

        func use(_ from: String) {
            guard !User.isUsing, let body = body.withLock({ $0 }) else { return }
            // A use causes further ones, for example by observers.
            let count = uses.withLock { uses in
                uses[from, default: 0] += 1
                return uses[from, default: 0]
            }
            if count <= 30 { User.$isUsing.withValue(true) { body() } }
        }

        func expect(_ places: [String]) {
            for place in places { #expect(uses.withLock { $0[place] ?? 0 } > 0, "\(place)") }
        }
    }

    /// A key or a value.
    final class Node: Codable, Hashable, Sendable {
        let user: User?
        let name: String
        init(_ user: User?, _ name: String = "") {
            self.user = user
            self.name = name
            user?.use("init")
        }
        init(from decoder: any Decoder) throws {
            user = decoder.userInfo[.user] as? User
            name = try decoder.singleValueContainer().decode(String.self)
        }
        func encode(to encoder: any Encoder) throws {
            user?.use("key's encode")
            try name.encode(to: encoder)
        }
        static func == (a: Node, b: Node) -> Bool {
            a.user?.use("==")
            return a.name == b.name
        }
        func hash(into hasher: inout Hasher) {
            user?.use("hash")
            hasher.combine(name.count)
        }
        deinit { user?.use("deinit") }
    }

    final class Failure: Error {
        let user: User
        init(_ user: User) { self.user = user }
        deinit { user.use("error's deinit") }
    }

    /// Runs at once, on the thread that resumes a task.
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
        @Sendable func key(_ name: String) -> Node { Node(user, name) }
        let cache = try Cache<Node, Node>.inMemory(
            maxAge: .seconds(60), maxEntries: 20, capacity: 1 << 20, memoryEntries: memoryEntries, coder: coder,
            now: {
                user.use("clock")
                return clock.date
            })
        user.set {
            for name in ["a", "b", "new"] { _ = cache[key(name)] }
            cache[key("new")] = Node(user)
            _ = try? cache.removeValue(for: key("new"))
            _ = try? cache.touch(key("a"))
            _ = try? cache.allKeys()
            _ = cache.prefetch(key("behind")) { Node(user) }
            Task(executorPreference: AtOnce()) {
                _ = try? await cache.value(for: key("absent"), options: LockTests.options) { throw Offline() }
            }
            _ = cache.events
            _ = cache.changes
        }
        defer { user.set(nil) }
        let observers = [cache.changes.map { _ in () }, cache.changes.map { _ in () }].map { changes in
            Task(executorPreference: AtOnce()) { for await _ in changes { user.use("changes") } }
        }
        let listeners = (0..<2).map { _ in
            let events = cache.events
            return Task(executorPreference: AtOnce()) { for await _ in events { user.use("events") } }
        }
        for round in 0..<50 {
            cache[key("a")] = Node(user)
            cache[key("\(round)")] = Node(user)
            cache[key("failing")] = Node(user)
            _ = cache[key("a")]
            try cache.removeValue(for: key("\(round)"))
            _ = try await cache.value(for: key("loaded")) {
                user.use("loader")
                return Node(user)
            }
            clock.advance(seconds: 61)
            for _ in 0..<2 {
                _ = try? await cache.entry(for: key("failing"), options: LockTests.options) { _ in
                    user.use("loader")
                    throw Failure(user)
                }
            }
            // Otherwise the next failure would replace this one.
            if round % 2 == 0 { _ = try await cache.value(for: key("failing"), options: .reload) { Node(user) } }
            // Waiters resume within the load's last step.
            await withTaskGroup { group in
                for _ in 0..<4 {
                    group.addTask(executorPreference: AtOnce()) {
                        _ = try? await cache.value(for: key("b"), options: .reload) { Node(user) }
                        user.use("waiter")
                    }
                }
            }
            try cache.removeAll()
        }
        for task in observers + listeners { task.cancel() }
        user.expect([
            "init", "encode", "key's encode", "clock", "deinit", "error's deinit", "changes", "events", "loader",
            "waiter",
        ])
        if memoryEntries == 0 { user.expect(["decode"]) }
    }

    @Test("in memory: keys of one hash, values, costs, the clock and the loader use the cache", arguments: [2, 50])
    func memory(maximumEntryCount: Int) async throws {
        let user = User(), clock = TestClock()
        let cache = MemoryCache<Node, Node>(
            dateProvider: {
                user.use("clock")
                return clock.date
            }, entryLifetime: 60, maximumEntryCount: maximumEntryCount, maximumTotalCost: 1000,
            cost: { _ in
                user.use("cost")
                return 30
            })
        user.set {
            for name in ["a", "b", "n"] { _ = cache[Node(user, name)] }
            cache[Node(user, "n")] = Node(user)
            cache[Node(user, "n")] = nil
            cache[Node(user, "a"), default: Node(user)] = Node(user)
            cache.update({ $0 = Node(user) }, for: Node(user, "b"))
            _ = cache.allKeys()
            _ = cache.count
            Task(executorPreference: AtOnce()) {
                _ = try? await cache.value(for: Node(user, "c")) { Node(user) }
            }
        }
        defer { user.set(nil) }
        for round in 0..<50 {
            for name in ["a", "b", "c", "d", "a", "\(round)"] { cache[Node(user, name)] = Node(user, name) }
            for name in ["a", "b", "\(round)"] { _ = cache[Node(user, name)] }
            cache[Node(user, "b")] = nil
            await withTaskGroup { group in
                for _ in 0..<3 {
                    group.addTask {
                        _ = try? await cache.value(for: Node(user, "l")) {
                            user.use("loader")
                            return Node(user, "l")
                        }
                    }
                }
            }
            cache[Node(user, "l")] = nil
            if round % 3 == 0 { cache.removeAll() }
            if round % 5 == 0 { clock.advance(seconds: 61) }
            #expect(cache[Node(user, "absent")] == nil)
        }
        user.expect(["init", "deinit", "==", "hash", "clock", "cost", "loader"])
    }

    @Test("reading the stored entry of one key does not block the load of another")
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

    @Test("a lookup during which a load ended is repeated")
    func lateLook() async throws {
        let loader = Loader<String, Int>(), stored = Mutex<Int?>(nil), loads = Counter()
        let load: @Sendable (LoadFence) async throws -> Int = { _ in
            loads.add()
            stored.withLock { $0 = 5 }
            return 5
        }
        let looks = Counter(), looking = Gate(), mayGo = DispatchSemaphore(value: 0)
        // The first lookup finds nothing; before it is over, another load has stored and ended.
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
