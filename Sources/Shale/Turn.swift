import ShaleCore

/// A load's turn: nobody else loads the key until it ends. Or what another has stored meanwhile.
struct Turn<Entry: Sendable>: Sendable {
    let current: Entry?
    private let renewal: Task<Void, Never>?
    private let release: @Sendable () -> Void

    /// With a lease that is kept up for as long as the load takes: its time is that of a killed process alone.
    init(_ lease: Lease, of key: [UInt8], in store: Store, for time: Duration) {
        current = nil
        renewal = Task {
            while (try? await Task.sleep(for: time / 3)) != nil, (try? store.renew(lease, of: key, for: time)) == true {}
        }
        release = { _ = try? store.release(lease, of: key) }
    }

    init(_ current: Entry? = nil) {
        self.current = current
        renewal = nil
        release = {}
    }

    func end() {
        renewal?.cancel()
        release()
    }
}
