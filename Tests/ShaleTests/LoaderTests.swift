import Testing
@testable import Shale

@Suite("One load at a time for a key", .timeLimit(.minutes(30)))
struct LoaderTests {
    private let loader = Loader<String, Int>()
    private func join(_ key: String, unless stored: Int?, _ load: @escaping @Sendable () async throws -> Int) throws
        -> Joined<Int>
    {
        try loader.join(key, while: { _ in true }, unless: { stored }, load: { _ in try await load() })
    }
    private func join(_ load: @escaping @Sendable () async throws -> Int) throws -> Hold<Int> {
        guard case .load(let hold) = try join("key", unless: nil, load) else { throw Offline() }
        return hold
    }

    @Test("all callers that join get the same result; a later caller begins another load")
    func shared() async throws {
        let gate = Gate(), loads = Counter()
        let holds = try (0..<10).map { _ in
            try join {
                try await gate.wait()
                return loads.add()
            }
        }
        gate.open()
        for hold in holds { #expect(try await hold.output() == 1) }
        // The load leaves the table after its result is delivered; until then, joining it fails.
        #expect(try await join { loads.add() }.output() == 2)
    }

    @Test("a load that returns an entry from the store does not serve later callers")
    func answersFromTheStore() async throws {
        let looked = Gate(), gate = Gate()
        guard
            case .load(let first) = try loader.join(
                "key", while: { _ in true }, unless: { nil },
                load: { fence in
                    fence.set(.closed)
                    looked.open()
                    try await gate.wait()
                    return 1
                })
        else { throw Offline() }
        try await looked.wait()
        let second = try join { 2 }
        gate.open()
        #expect(try await first.output() == 1)
        #expect(try await second.output() == 2)
    }

    @Test("waiters are resumed in the order of their calls, except those that have left")
    func order() async throws {
        let gate = Gate(), line = LineExecutor(), resumed = Counter()
        let holds = try (0..<1000).map { _ in
            try join {
                try await gate.wait()
                return 1
            }
        }
        let waiters = holds.map { hold in
            Task(executorPreference: line) {
                _ = try await hold.output()
                return resumed.add()
            }
        }
        // Tasks run one after the other: when this one runs, all others wait.
        await Task(executorPreference: line) {
            for number in stride(from: 0, to: 1000, by: 7) { holds[number].release() }
            gate.open()
        }.value
        var places: [Int] = []
        for waiter in waiters { if case .success(let place) = await waiter.result { places.append(place) } }
        #expect(places == Array(1...(1000 - 143)))
    }

    @Test("without a load under way, the stored value is the result")
    func stored() async throws {
        guard case .stored(5) = try join("key", unless: 5, { 6 }) else {
            Issue.record("loaded"); return
        }
        let gate = Gate()
        let hold = try join {
            try await gate.wait()
            return 7
        }
        guard case .load(let second) = try join("key", unless: 5, { 6 }) else {
            Issue.record("not joined"); return
        }
        gate.open()
        #expect(try await hold.output() == 7)
        #expect(try await second.output() == 7)
    }

    @Test("all callers get the error")
    func error() async throws {
        let gate = Gate()
        let holds = try (0..<3).map { _ in
            try join {
                try await gate.wait()
                throw Offline()
            }
        }
        gate.open()
        for hold in holds { await #expect(throws: Offline.self) { try await hold.output() } }
    }

    @Test("a cancelled waiter returns at once; the others wait")
    func oneCancelled() async throws {
        let gate = Gate(), cancelled = Counter()
        let holds = try (0..<3).map { _ in
            try join {
                do { try await gate.wait() } catch {
                    cancelled.add()
                    throw error
                }
                return 1
            }
        }
        let waiters = holds.map { hold in Task { try await hold.output() } }
        waiters[1].cancel()
        await #expect(throws: CancellationError.self) { try await waiters[1].value }
        waiters[0].cancel()
        await #expect(throws: CancellationError.self) { try await waiters[0].value }
        gate.open()
        #expect(try await waiters[2].value == 1)
        #expect(cancelled.count == 0)
    }

    @Test("the load is cancelled with its last holder, waiting or not")
    func lastCancelled() async throws {
        let never = Gate(), begun = Gate(), cancelled = Counter()
        let load: @Sendable () async throws -> Int = {
            begun.open()
            do { try await never.wait() } catch {
                cancelled.add()
                throw error
            }
            return 1
        }
        let first = try join(load), second = try join(load)
        try await begun.wait()
        let waiter = Task { try await first.output() }
        second.release()
        second.release()
        #expect(cancelled.count == 0)
        waiter.cancel()
        await #expect(throws: CancellationError.self) { try await waiter.value }
        try await cancelled.wait(for: 1)
        await #expect(throws: CancellationError.self) { try await second.output() }
    }

    @Test("a load begins after the end of the cancelled one before it")
    func afterCancelled() async throws {
        let begun = Gate(), stubborn = Gate(), running = Counter(), ended = Counter()
        let first = try join {
            begun.open()
            running.add()
            await stubborn.waitRegardless()
            ended.add()
            return 1
        }
        try await begun.wait()
        first.release()
        let never = Counter()
        // Cancelled before it began: it never runs.
        try join { never.add() }.release()
        let thirdBegun = Gate(), gate = Gate()
        let third = try join {
            #expect(ended.count == 1)
            thirdBegun.open()
            try await gate.wait()
            return 3
        }
        stubborn.open()
        try await thirdBegun.wait()
        // The first one's end has not taken the third from the table.
        let fourth = try join { never.add() }
        gate.open()
        #expect(try await third.output() == 3)
        #expect(try await fourth.output() == 3)
        #expect(never.count == 0)
        #expect(running.count == 1)
    }

    @Test("keys do not wait for each other")
    func keys() async throws {
        let gate = Gate()
        let slow = try join {
            try await gate.wait()
            return 1
        }
        guard case .load(let quick) = try join("other", unless: nil, { 2 }) else {
            Issue.record("not loaded"); return
        }
        #expect(try await quick.output() == 2)
        gate.open()
        #expect(try await slow.output() == 1)
    }
}
