import ShaleCore

/// A lease that is kept up for as long as a load takes, so that its time is that of a stopped process alone, and of a
/// load that goes on after its cancellation.
final class HeldLease: Sendable {
    private let store: Store
    private let lease: Lease
    private let key: [UInt8]
    private let time: Duration

    init(_ lease: Lease, of key: [UInt8], in store: Store, for time: Duration) {
        self.lease = lease
        self.key = key
        self.store = store
        self.time = time
    }

    /// Runs the load, and gives the lease back.
    func during<R>(_ load: () async throws -> R) async throws -> R {
        // It keeps nothing open while it sleeps: it may wake up after the load's end.
        let renewal = Task { [weak self, time] in
            while (try? await Task.sleep(for: time / 3)) != nil, self?.renew() == true {}
        }
        defer {
            renewal.cancel()
            _ = try? store.release(lease, of: key)
        }
        return try await withTaskCancellationHandler {
            try await load()
        } onCancel: {
            renewal.cancel()
        }
    }

    /// False where it was given back, or its time was over.
    private func renew() -> Bool { (try? store.renew(lease, of: key, for: time)) == true }
}
