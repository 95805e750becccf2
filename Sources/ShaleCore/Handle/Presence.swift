import CShalePlatform

/// Whether the cache is still where it was opened. After its files are removed, a handle would use them for ever, while
/// later callers create another cache at the same path.
///
/// A handle looks at most once in each second of the system's uptime, when a call asks: all do but those that a hit
/// answers. Threads change it concurrently, by atomics.
struct Presence {
    /// The second of uptime from which on to look.
    private var due: UInt64
    /// Lower than every second: the cache is known to be removed or replaced.
    private static let away: UInt64 = 0

    /// `isMemory`: there is no path that could lead elsewhere.
    init(isMemory: Bool) { due = isMemory ? .max : shim_recent_uptime_s() &+ 1 }

    @inline(__always)
    static func isDue(_ presence: Memory) -> Bool { shim_load64(presence) <= shim_recent_uptime_s() }

    @inline(__always)
    static func isKnownAway(_ presence: Memory) -> Bool { shim_load64(presence) == away }

    /// Throws once the cache is known to be removed or replaced.
    @inline(never)
    static func look(_ presence: Memory, _ files: CacheFiles) throws(Failure) {
        let time = shim_load64(presence)
        if time != away {
            // Of several threads one looks, and the others continue.
            guard shim_cas64(presence, time, shim_recent_uptime_s() &+ 1), files.areAway() else { return }
            shim_store64(presence, away)
        }
        throw Message().adding(files.path).adding(": the cache was removed or replaced; open it again").failure(.busy)
    }
}
