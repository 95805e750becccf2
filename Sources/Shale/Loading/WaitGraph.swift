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
    /// By the load that waits, and by number: a load may wait for thousands of others.
    private typealias Waits = [LoadIdentity: [Int: Wait]]
    private let waits = Mutex((all: Waits(), last: 0))

    /// Runs `body`, which waits for a load. If that load waits for the calling one, throws ``LoadError/cycle(keys:)``
    /// instead.
    nonisolated(nonsending) func waiting<R>(
        for target: () throws -> (LoadIdentity, name: String), _ body: nonisolated(nonsending) () async throws -> R
    ) async throws -> R {
        guard let load = RunningLoad.current, !load.isOver else { return try await body() }
        let (target, name) = try target()
        let number = try begin(Wait(load: load, target: target), name)
        defer { end(load, number) }
        return try await body()
    }

    /// Returns the wait's number.
    private func begin(_ wait: Wait, _ name: String) throws(LoadError) -> Int {
        let (number, cycle) = waits.withLock { waits -> (Int, [String]?) in
            if let path = WaitGraph.path(from: wait.target, to: wait.load, waits.all) {
                return (0, path.map(\.name) + [name])
            }
            waits.last += 1
            waits.all[wait.load.identity, default: [:]][waits.last] = wait
            return (waits.last, nil)
        }
        if let cycle { throw .cycle(keys: cycle) }
        return number
    }

    private func end(_ load: RunningLoad, _ number: Int) {
        waits.withLock { waits in
            waits.all[load.identity]?[number] = nil
            if waits.all[load.identity]?.isEmpty == true { waits.all[load.identity] = nil }
        }
    }

    /// A path of loads from `start` to `end`, each of which waits for the next. Not recursive: a chain of loads may be
    /// longer than a thread's stack.
    private static func path(from start: LoadIdentity, to end: RunningLoad, _ waits: Waits) -> [RunningLoad]? {
        // The wait by which the search has reached a load; none for `start`.
        var reached: [LoadIdentity: Wait?] = [start: nil], rest = [start]
        while reached[end.identity] == nil, let next = rest.popLast() {
            // Tasks that outlive their load block no caller of it.
            for wait in (waits[next] ?? [:]).values where !wait.load.isOver && reached[wait.target] == nil {
                reached[wait.target] = .some(wait)
                rest.append(wait.target)
            }
        }
        guard var step = reached[end.identity] else { return nil }
        var path = [end]
        while let wait = step {
            path.append(wait.load)
            step = reached[wait.load.identity] ?? nil
        }
        return path.reversed()
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
