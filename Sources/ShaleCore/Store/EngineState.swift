import CShalePlatform

/// Everything a handle knows. It lives in raw memory, not in a class: a class
/// costs an atomic retain and release on a shared line for each call.
struct EngineState {
    var block: Superblock
    var geometry: Geometry
    var secret: UInt64

    var data: Memory
    var index: Memory
    var files: CacheFiles

    var isReadOnly: Bool
    var syncsAtClose: Bool
    var compression: Compression
    var maxAge: Int64
    var stale: Int64
    var clock: Clock
    /// The data file's generation when a read-only handle made an index of its own; 0: the index is the shared one.
    var privateGeneration: UInt64

    var scratch: ScratchPool
    var dictionaries: DictionaryCache
    #if !hasFeature(Embedded)
    /// The store's.
    var evictionObservers: Unmanaged<EvictionObservers>?
    #endif
}

typealias EngineRef = UnsafeMutablePointer<EngineState>

public enum Compression: Int32, Sendable { case dictionary = 0, lz4 = 1, none = 2 }

/// Wall-clock milliseconds since 1970, the caller's or the system's.
struct Clock: Sendable {
    typealias Function = @convention(c) (UnsafeMutableRawPointer?) -> Int64
    var function: Function?
    nonisolated(unsafe) var context: UnsafeMutableRawPointer?

    @inline(__always) var now: Int64 { function.map { shim_call_clock($0, context) } ?? shim_now_ms() }
    /// As records keep it: 48 bits.
    @inline(__always) var now48: UInt64 { Age.point(now) }

    /// Whether the point is ahead, where that can be told cheaply: ticks are never a second late.
    @inline(__always) func isWellBefore(_ point: UInt64) -> Bool { function == nil && Age.point(shim_recent_ms()) &+ 1000 < point }
}

/// Ages in records: points in time as 48-bit milliseconds.
enum Age {
    static let never = Int64.max
    static let none: Int64 = -1

    @inline(__always) static func point(_ ms: Int64) -> UInt64 {
        ms <= 0 ? 0 : ms >= Int64(RecordHeader.never) ? RecordHeader.never - 1 : UInt64(ms)
    }
    /// The point an age after `start`; `never` for ages beyond what 48 bits hold.
    @inline(__always) static func after(_ start: UInt64, age: Int64) -> UInt64 {
        if age == never { return RecordHeader.never }
        if age <= 0 { return start }
        let sum = start &+ UInt64(age)
        return sum >= RecordHeader.never || sum < start ? RecordHeader.never : sum
    }
    @inline(__always) static func publicPoint(_ ms: UInt64) -> Int64 { ms == RecordHeader.never ? never : Int64(ms) }
}

/// How long an entry lives, as its record keeps it.
struct Lifetime {
    let expires: UInt64
    /// Whether it is kept past its age.
    let keepsStale: Bool
    /// Until when; where it never expires, for how long it would be.
    let staleWord: UInt64

    init(expires: UInt64, keepsStale: Bool, staleWord: UInt64) {
        self.expires = expires
        self.keepsStale = keepsStale
        self.staleWord = staleWord
    }

    init(from now: UInt64, maxAge: Int64, stale: Int64) {
        expires = Age.after(now, age: maxAge)
        keepsStale = stale > 0
        staleWord = stale <= 0 ? 0 : expires == RecordHeader.never ? UInt64(stale) : Age.after(expires, age: stale)
    }

    static let forever = Lifetime(expires: RecordHeader.never, keepsStale: false, staleWord: 0)

    var gone: UInt64 { keepsStale && expires != RecordHeader.never ? staleWord : expires }
    var stale: Int64 {
        if !keepsStale { return Age.none }
        if expires == RecordHeader.never { return Int64(bitPattern: staleWord) }
        return staleWord == RecordHeader.never ? Age.never : staleWord <= expires ? Age.none : Int64(truncatingIfNeeded: staleWord - expires)
    }
    var flag: UInt8 { keepsStale ? RecordHeader.Flag.keepsStale : 0 }
}

/// The slots' 24-bit expiry, in units of 64 seconds from the cache's base,
/// rounded up: a first test. 0: never, 1: read the record, all ones: far away.
enum SlotExpiry {
    static let unit: UInt64 = 64_000
    static let far: UInt64 = 0xFF_FFFF

    static func of(gone: UInt64, base: UInt64) -> UInt64 {
        if gone == RecordHeader.never { return 0 }
        // (A damaged stale word may say any 64 bits.)
        let units = gone / unit + (gone % unit == 0 ? 0 : 1)
        if units <= base &+ 1 { return 1 }
        return min(units - base, far)
    }
    /// Whether the entry may be gone; the record decides.
    @inline(__always) static func mayBeGone(_ expiry: UInt64, now: UInt64, base: UInt64) -> Bool {
        if expiry == 0 { return false }
        if expiry == 1 || expiry == far { return true }
        return now > (base &+ expiry &- 1) &* unit
    }
}
