import ShaleCore
import Synchronization

/// A lease that is kept up for as long as a load takes, so that its time is that of a killed process alone, and of a
/// load that goes on after its cancellation.
final class HeldLease: Sendable {
    private let store: Store
    private let lease: Lease
    private let key: [UInt8]
    private let time: Duration
    private let isOver = Mutex(false)

    init(_ lease: Lease, of key: [UInt8], in store: Store, for time: Duration) {
        self.lease = lease
        self.key = key
        self.store = store
        self.time = time
    }

    /// Runs the load, and gives the lease back. After that nothing uses the store: its user may close it.
    func during<R>(_ load: () async throws -> R) async throws -> R {
        let renewal = Task { [self] in
            while (try? await Task.sleep(for: time / 3)) != nil, renew() {}
        }
        defer {
            renewal.cancel()
            release()
        }
        return try await withTaskCancellationHandler {
            try await load()
        } onCancel: {
            renewal.cancel()
        }
    }

    private func renew() -> Bool { isOver.withLock { !$0 && (try? store.renew(lease, of: key, for: time)) == true } }

    private func release() {
        isOver.withLock { isOver in
            isOver = true
            _ = try? store.release(lease, of: key)
        }
    }
}
