import Synchronization

/// Which loads of this process wait for which others, so that none waits for itself.
///
/// A wait is noted only where a load waits: where a loader, or a task that it started, asks for a value. Loads are told
/// apart by store and key, not by cache object: whichever object a load was begun through, the store's lease makes it
/// wait for the one that is under way.
final class WaitGraph: Sendable {
    static let shared = WaitGraph()

    private struct Wait {
        let load: RunningLoad
        let target: LoadIdentity
    }
    private let waits = Mutex<[LoadIdentity: [Wait]]>([:])

    /// Runs `body`, which waits for a load. Where that load waits for the one that asks, throws ``LoadError/cycle(keys:)`` instead.
    func waiting<R>(for target: () throws -> (LoadIdentity, name: String), _ body: () async throws -> R) async throws
        -> R
    {
        guard let load = RunningLoad.current, !load.isOver else { return try await body() }
        let (target, name) = try target()
        try begin(Wait(load: load, target: target), name)
        defer { end(load, target) }
        return try await body()
    }

    private func begin(_ wait: Wait, _ name: String) throws(LoadError) {
        let cycle: [String]? = waits.withLock { waits in
            var seen = Set<LoadIdentity>()
            if let path = WaitGraph.path(from: wait.target, to: wait.load, waits, &seen) {
                return path.map(\.name) + [name]
            }
            waits[wait.load.identity, default: []].append(wait)
            return nil
        }
        if let cycle { throw .cycle(keys: cycle) }
    }

    private func end(_ load: RunningLoad, _ target: LoadIdentity) {
        waits.withLock { waits in
            guard let index = waits[load.identity]?.firstIndex(where: { $0.load === load && $0.target == target })
            else { return }
            waits[load.identity]?.remove(at: index)
            if waits[load.identity]?.isEmpty == true { waits[load.identity] = nil }
        }
    }

    /// Loads that each wait for the next, down to `end`.
    private static func path(
        from start: LoadIdentity, to end: RunningLoad, _ waits: [LoadIdentity: [Wait]], _ seen: inout Set<LoadIdentity>
    ) -> [RunningLoad]? {
        if start == end.identity { return [end] }
        guard seen.insert(start).inserted else { return nil }
        // What a load has left behind keeps nobody waiting.
        for wait in waits[start] ?? [] where !wait.load.isOver {
            if let rest = path(from: wait.target, to: end, waits, &seen) { return [wait.load] + rest }
        }
        return nil
    }
}

/// What is loaded: a key, as its store has it.
struct LoadIdentity: Hashable, Sendable {
    let place: StorePlace
    let key: [UInt8]
}

/// A load under way, as its loader's task and those that it starts know it.
final class RunningLoad: Sendable {
    @TaskLocal static var current: RunningLoad?

    let identity: LoadIdentity
    /// For people.
    let name: String
    private let hasEnded = Atomic(false)
    /// A task that the loader has left behind is no load any more.
    var isOver: Bool { hasEnded.load(ordering: .relaxed) }

    init(_ identity: LoadIdentity, name: String) {
        self.identity = identity
        self.name = name
    }

    func during<R: Sendable>(_ load: @Sendable () async throws -> R) async throws -> R {
        defer { hasEnded.store(true, ordering: .relaxed) }
        return try await RunningLoad.$current.withValue(self) { try await load() }
    }
}
