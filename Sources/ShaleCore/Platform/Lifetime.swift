/// How long an entry lives, as kept in its record.
struct Lifetime {
    let expires: UInt64
    /// Whether it is kept past its age.
    let keepsStale: Bool
    /// The end of the stale period; if the entry never expires, the period's length.
    let staleWord: UInt64

    init(expires: UInt64, keepsStale: Bool, staleWord: UInt64) {
        self.expires = expires
        self.keepsStale = keepsStale
        self.staleWord = staleWord
    }

    init(from now: UInt64, maxAge: Int64, stale: Int64) {
        expires = Time48.after(now, age: maxAge)
        keepsStale = stale > 0
        staleWord = stale <= 0 ? 0 : expires == Time48.neverPoint ? UInt64(stale) : Time48.after(expires, age: stale)
    }

    static let forever = Lifetime(expires: Time48.neverPoint, keepsStale: false, staleWord: 0)

    /// When the entry may no longer be served, stale or not.
    @inline(__always) var deadline: UInt64 { keepsStale && expires != Time48.neverPoint ? staleWord : expires }
    @inline(__always) func isFresh(at now: UInt64) -> Bool { now < expires }
    @inline(__always) func isOver(at now: UInt64) -> Bool { now >= deadline }
    var stale: Int64 {
        if !keepsStale { return Time48.none }
        if expires == Time48.neverPoint { return Int64(bitPattern: staleWord) }
        return staleWord == Time48.neverPoint
            ? Time48.never : staleWord <= expires ? Time48.none : Int64(truncatingIfNeeded: staleWord - expires)
    }

    /// Returns the lifetime that ends at `time` at the latest; the stale period starts there.
    func ended(at time: UInt64) -> Lifetime {
        expires <= time ? self : Lifetime(from: time, maxAge: Time48.none, stale: stale)
    }
}

/// A slot's 24-bit expiry, in units of 64 seconds from the cache's base, rounded up: a first test. 0: never, 1: read
/// the record, all ones: far away.
enum SlotExpiry {
    static let unit: UInt64 = 64_000
    static let far: UInt64 = 0xFF_FFFF

    static func of(deadline: UInt64, base: UInt64) -> UInt64 {
        if deadline == Time48.neverPoint { return 0 }
        // (A damaged stale word may have any 64 bits.)
        let units = deadline / unit + (deadline % unit == 0 ? 0 : 1)
        if units <= base &+ 1 { return 1 }
        return min(units - base, far)
    }
    /// Whether the deadline may be over; the record decides.
    @inline(__always) static func mayBeDead(_ expiry: UInt64, now: UInt64, base: UInt64) -> Bool {
        if expiry == 0 { return false }
        if expiry == 1 || expiry == far { return true }
        return now > (base &+ expiry &- 1) &* unit
    }
}
