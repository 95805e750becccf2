import ShaleCore

/// A lease that is renewed during a load, so that it expires only if the process is stopped, or if the load continues
/// after its cancellation.
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

    /// Runs the load, then releases the lease.
    func during<R>(_ load: () async throws -> R) async throws -> R {
        // Weak: the sleeping task may outlive the load and must not keep the store open.
        let renewal = Task { [weak self, time] in
            while (try? await Task.sleep(for: time / 3)) != nil, await self?.renew() == true {}
        }
        let result: Result<R, any Error>
        do {
            let loaded = try await withTaskCancellationHandler {
                try await load()
            } onCancel: {
                renewal.cancel()
            }
            result = .success(loaded)
        } catch { result = .failure(error) }
        renewal.cancel()
        if await store.awaitLock(of: key) { _ = try? store.release(lease, of: key) }
        return try result.get()
    }

    /// Returns false if the lease was released or has expired.
    private func renew() async -> Bool {
        guard await store.awaitLock(of: key) else { return false }
        return (try? store.renew(lease, of: key, for: time)) == true
    }
}
