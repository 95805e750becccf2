import Synchronization

/// The waits-for graph of this process's loads, which detects cycles.
///
/// It records only waits of loads: calls by a loader or by a task that it started. Loads are identified by store and
/// key, not by cache object: the store's lease makes a load wait for one of the same key that another object began.
final class WaitGraph: Sendable {
    static let shared = WaitGraph()

    private struct Wait {
        let load: RunningLoad
        let target: LoadIdentity
    }
    private let waits = Mutex<[LoadIdentity: [Wait]]>([:])

    /// Runs `body`, which waits for a load. If that load waits for the calling one, throws ``LoadError/cycle(keys:)``
    /// instead.
    nonisolated(nonsending) func waiting<R>(
        for target: () throws -> (LoadIdentity, name: String), _ body: nonisolated(nonsending) () async throws -> R
    ) async throws -> R {
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

    /// A path of loads from `start` to `end`, each of which waits for the next.
    private static func path(
        from start: LoadIdentity, to end: RunningLoad, _ waits: [LoadIdentity: [Wait]], _ seen: inout Set<LoadIdentity>
    ) -> [RunningLoad]? {
        if start == end.identity { return [end] }
        guard seen.insert(start).inserted else { return nil }
        // Tasks that outlive their load block no caller of it.
        for wait in waits[start] ?? [] where !wait.load.isOver {
            if let rest = path(from: wait.target, to: end, waits, &seen) { return [wait.load] + rest }
        }
        return nil
    }
}

/// The subject of a load: a store and an encoded key.
struct LoadIdentity: Hashable, Sendable {
    let store: StoreIdentity
    let key: [UInt8]
}

/// A load under way. The loader's task and its children inherit it as a task-local value.
final class RunningLoad: Sendable {
    @TaskLocal static var current: RunningLoad?

    let identity: LoadIdentity
    /// For error messages.
    let name: String
    private let hasEnded = Atomic(false)
    /// True for tasks that outlive their loader: they are no longer part of a load.
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
