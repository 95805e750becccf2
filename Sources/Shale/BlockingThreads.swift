import Synchronization

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#else
import Dispatch
#endif

extension Cache {
    /// Runs calls that may take long on a thread of their own, and waits without blocking one of the cooperative pool,
    /// of which there are as many as cores: for inserting and reading large values, for calls that visit many entries,
    /// and for writes that must not stop all tasks while another process holds a lock of the store.
    ///
    /// ```swift
    /// try await videos.onThread { try $0.insert(video, for: id) }
    /// let keys = try await videos.onThread { try $0.allKeys() }
    /// ```
    ///
    /// The process has at most 64 such threads; further calls wait for one. Costs some 30 microseconds. Cancellation
    /// does not stop the body. Throws what the body throws.
    @discardableResult
    public nonisolated(nonsending) func onThread<R: Sendable>(
        _ body: @escaping @Sendable (Cache) throws -> R
    ) async throws -> R {
        try await blocking(body)
    }

    nonisolated(nonsending) func blocking<R: Sendable, E: Error>(
        _ body: @escaping @Sendable (Cache) throws(E) -> R
    ) async throws(E) -> R {
        try await BlockingThreads.shared.result { () throws(E) in try body(self) }
    }

    /// A value of this size, encoded, takes about a millisecond to store or to read.
    static var largeSize: Int { 1 << 20 }

    /// Runs a read of the key's value, on a thread of its own if the value is large.
    nonisolated(nonsending) func reading<R: Sendable, E: Error>(
        _ key: Key, _ read: @escaping @Sendable (Cache) throws(E) -> R
    ) async throws(E) -> R {
        if isLarge(key) { return try await blocking(read) }
        return try read(self)
    }

    private func isLarge(_ key: Key) -> Bool {
        guard let memoryKey = try? memoryKey(for: key), memory.item(for: memoryKey) == nil,
            let storedKey = try? stored(key, at: memoryKey),
            let known = try? store.entry(for: storedKey, includingStale: true)
        else { return false }
        return known.size >= Cache.largeSize
    }
}

extension Store {
    /// Waits while the lock of the key's shard is taken: its holder may be stopped. Blocks no thread of the cooperative
    /// pool, as the call that needs the lock would. Returns false if the lock is still taken at the store's
    /// `lockTimeout`.
    nonisolated(nonsending) func awaitLock(of key: [UInt8]) async -> Bool {
        if !isLocked(key) { return true }
        return await BlockingThreads.ofLocks.result { (try? self.fence(for: key)) != nil }
    }
}

/// Threads for calls that may block. They begin as needed, and end when there are no more calls.
final class BlockingThreads: Sendable {
    static let shared = BlockingThreads(limit: 64)
    /// Its own, so that waits for one store do not delay the calls of others.
    static let ofLocks = BlockingThreads(limit: 64)

    typealias Call = @Sendable () -> Void
    private struct State {
        var calls = Deque<Call>()
        var threads = 0
    }
    private let state = Mutex(State())
    private let limit: Int

    init(limit: Int) { self.limit = limit }

    /// Runs the call on a thread that may block, after those that came before it if there is no free one.
    func run(_ call: @escaping Call) {
        let begins = state.withLock { state in
            state.calls.append(call)
            if state.threads == limit { return false }
            state.threads += 1
            return true
        }
        if begins { beginThread { while let call = self.next() { call() } } }
    }

    nonisolated(nonsending) func result<R: Sendable, E: Error>(
        of call: @escaping @Sendable () throws(E) -> R
    ) async throws(E) -> R {
        let result: Result<R, E> = await withCheckedContinuation { continuation in
            run { continuation.resume(returning: Result(catching: call)) }
        }
        return try result.get()
    }

    private func next() -> Call? {
        state.withLock { state in
            let call = state.calls.popFirst()
            if call == nil { state.threads -= 1 }
            return call
        }
    }
}

#if canImport(Glibc) || canImport(Musl)
private final class Job: Sendable {
    let run: @Sendable () -> Void
    init(_ run: @escaping @Sendable () -> Void) { self.run = run }
}

/// Not Dispatch, whose threads run the tasks on this platform. If no thread can be created, runs on the caller's
/// thread.
private func beginThread(_ run: @escaping @Sendable () -> Void) {
    let job = Unmanaged.passRetained(Job(run))
    var thread = pthread_t()
    let status = pthread_create(
        &thread, nil,
        { argument in
            if let argument { Unmanaged<Job>.fromOpaque(argument).takeRetainedValue().run() }
            return nil
        }, job.toOpaque())
    if status == 0 { pthread_detach(thread) } else { job.takeRetainedValue().run() }
}
#else
private func beginThread(_ run: @escaping @Sendable () -> Void) { DispatchQueue.global().async(execute: run) }
#endif
