import CShalePlatform

/// Whether the cache is still where it was opened. Once its files are removed, a handle would go on with them for ever,
/// while whoever comes later makes another cache at the same path.
///
/// A handle looks at most once in each second of the system's uptime, as often as its calls ask: all but those that a hit
/// answers. Threads change it by atomics, at the same time.
struct Presence {
    /// The second from which on it is time to look.
    private var due: UInt64
    /// Every second is later than this one: there is nothing more to look for.
    private static let away: UInt64 = 0

    /// `isMemory`: there is no path that could lead elsewhere.
    init(isMemory: Bool) { due = isMemory ? .max : shim_recent_uptime_s() &+ 1 }

    @inline(__always)
    static func isDue(_ presence: Memory) -> Bool { shim_load64(presence) <= shim_recent_uptime_s() }

    @inline(__always)
    static func isKnownAway(_ presence: Memory) -> Bool { shim_load64(presence) == away }

    /// Throws from when it is known that the cache is not there any more.
    @inline(never)
    static func look(_ presence: Memory, _ files: CacheFiles) throws(Failure) {
        let time = shim_load64(presence)
        if time != away {
            // Of several threads one looks, and the others go on.
            guard shim_cas64(presence, time, shim_recent_uptime_s() &+ 1), files.areAway() else { return }
            shim_store64(presence, away)
        }
        throw Message().adding(files.path).adding(": the cache was removed or replaced; open it again").failure(.busy)
    }
}
