import CShalePlatform

/// A slot, 16 bytes.
///
///     word 0   location in 8-byte units (32) · fingerprint: the low 24 bits of the hash fraction ·
///              displacement (4) · reach (1) · pinned (1) · kind (2)
///     word 1   recency stamp (38) · hits (2) · expiry in 64-second units (24)
///
/// A slot with location 0 is free. The reach bits of a bucket's four slots say
/// how far its entries may have been displaced, also where the slot is free.
enum Slot {
    static let size = 16

    static let displacementShift: UInt64 = 56
    static let reachBit: UInt64 = 1 << 60
    static let pinnedBit: UInt64 = 1 << 61
    /// What the record is, as far as it matters without reading it.
    enum Kind {
        static let plain: UInt64 = 0 << 62
        static let tagged: UInt64 = 1 << 62
        static let part: UInt64 = 2 << 62
        /// Points to a touch record, whose target may carry tags.
        static let touched: UInt64 = 3 << 62
        static let mask: UInt64 = 3 << 62
    }
    static let keptFlags = pinnedBit | Kind.mask
    @inline(__always) static func isPart(_ w: UInt64) -> Bool { w & Kind.mask == Kind.part }
    @inline(__always) static func isTouched(_ w: UInt64) -> Bool { w & Kind.mask == Kind.touched }
    @inline(__always) static func isPinned(_ w: UInt64) -> Bool { w & pinnedBit != 0 }
    @inline(__always) static func mayBeTagged(_ w: UInt64) -> Bool { w & Kind.tagged != 0 }

    @inline(__always) static func location(_ w: UInt64) -> UInt32 { UInt32(truncatingIfNeeded: w) }
    @inline(__always) static func isFree(_ w: UInt64) -> Bool { UInt32(truncatingIfNeeded: w) == 0 }
    @inline(__always) static func displacement(_ w: UInt64) -> Int {
        Int(truncatingIfNeeded: w >> displacementShift) & 15
    }
    /// Whether fingerprint and displacement are those of another first word.
    @inline(__always) static func matches(_ w: UInt64, _ wanted: UInt64) -> Bool { (w ^ wanted) & probed == 0 }
    /// Whether the fingerprint is that of a key's hash fraction.
    @inline(__always) static func mayBe(_ fraction: UInt32, _ w: UInt64) -> Bool {
        (w >> 32 ^ UInt64(fraction)) & 0xFF_FFFF == 0
    }
    static let probed: UInt64 = 0x0FFF_FFFF << 32
    @inline(__always) static func with(_ w: UInt64, location: UInt32) -> UInt64 { w & ~0xFFFF_FFFF | UInt64(location) }

    static let stampBits: UInt64 = 38
    static let stampMask: UInt64 = (1 << 38) - 1
    @inline(__always) static func stamp(_ w: UInt64) -> UInt64 { w & stampMask }
    @inline(__always) static func hits(_ w: UInt64) -> UInt64 { w >> 38 & 3 }
    @inline(__always) static func expiry(_ w: UInt64) -> UInt64 { w >> 40 }
    @inline(__always) static func word1(stamp: UInt64, hits: UInt64 = 0, expiry: UInt64) -> UInt64 {
        stamp & stampMask | hits << 38 | expiry << 40
    }
    static let mostHits: UInt64 = 3, hit: UInt64 = 1 << 38
    @inline(__always) static func hitsAfterUse(_ w: UInt64) -> UInt64 { min(hits(w) + 1, mostHits) }
    @inline(__always) static func used(_ w: UInt64, stamp: UInt64) -> UInt64 {
        word1(stamp: stamp, hits: hitsAfterUse(w), expiry: expiry(w))
    }
}
