import CShalePlatform

/// Whether the cache is still where it was opened. Once its files are removed, a handle would go on with them for ever,
/// while whoever comes later makes another cache at the same path.
///
/// A handle looks at most once in each second of the system's uptime, as often as its calls ask: all but those that a hit
/// answers.
struct Presence {
    /// The second from which on it is time to look.
    private var due: UInt64
    /// Every second is later than this one: there is nothing more to look for.
    fileprivate static let away: UInt64 = 0

    /// `isMemory`: there is no path that could lead elsewhere.
    init(isMemory: Bool) { due = isMemory ? .max : shim_recent_uptime_s() &+ 1 }
}

extension EngineRef {
    /// Threads change it by atomics, at the same time.
    @inline(__always) private var due: Memory { Memory(self) + MemoryLayout<ToldWaits>.size }

    /// Throws from when it is known that the cache is not there any more.
    @inline(__always)
    func checkPresence() throws(Failure) {
        if shim_load64(due) <= shim_recent_uptime_s() { try look() }
    }

    /// The same for the most frequent calls, of which only some look. (The clock takes a tenth of a miss.)
    @inline(__always)
    func checkPresence(atCall number: UInt64) throws(Failure) {
        if number & 15 == 0 || shim_load64(due) == Presence.away { try checkPresence() }
    }

    @inline(never)
    private func look() throws(Failure) {
        let time = shim_load64(due)
        if time != Presence.away {
            // Of several threads one looks, and the others go on.
            guard shim_cas64(due, time, shim_recent_uptime_s() &+ 1), pointee.files.areAway() else { return }
            shim_store64(due, Presence.away)
        }
        throw Message().adding(pointee.files.path).adding(": the cache was removed or replaced; open it again").failure(
            .busy)
    }

    @inline(__always)
    func checkWritable() throws(Failure) {
        if pointee.isReadOnly { throw pointee.readOnly() }
        try checkPresence()
    }
}
