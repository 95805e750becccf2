import CShalePlatform

/// A slot's first word: the entry's record.
///
///     location in 8-byte units (32) · fingerprint: the low 24 of the hash bits (24) · displacement (4) ·
///     displacement bit (1) · pinned (1) · kind (2)
///
/// Location 0 means free. The displacement bits of a bucket's four slots, free or not, encode its maximum displacement.
struct SlotEntry: Equatable {
    let bits: UInt64
    @inline(__always) init(_ bits: UInt64) { self.bits = bits }

    static let displacementShift: UInt64 = 56
    static let displacementBit: UInt64 = 1 << 60
    static let pinnedBit: UInt64 = 1 << 61
    /// The kind of record, as far as it matters without reading it.
    enum Kind {
        static let plain: UInt64 = 0 << 62
        static let tagged: UInt64 = 1 << 62
        static let part: UInt64 = 2 << 62
        /// Points to a touch record, whose target may carry tags.
        static let touched: UInt64 = 3 << 62
        static let mask: UInt64 = 3 << 62
    }
    static let keptFlags = pinnedBit | Kind.mask
    /// Fingerprint and displacement.
    static let probed: UInt64 = 0x0FFF_FFFF << 32

    @inline(__always) var location: UInt32 { UInt32(truncatingIfNeeded: bits) }
    @inline(__always) var isFree: Bool { location == 0 }
    @inline(__always) var fingerprint: UInt64 { bits >> 32 & 0xFF_FFFF }
    @inline(__always) var displacement: Int { Int(truncatingIfNeeded: bits >> SlotEntry.displacementShift) & 15 }
    @inline(__always) var hasDisplacementBit: Bool { bits & SlotEntry.displacementBit != 0 }
    @inline(__always) var isPinned: Bool { bits & SlotEntry.pinnedBit != 0 }
    @inline(__always) var isPart: Bool { bits & Kind.mask == Kind.part }
    @inline(__always) var isTouched: Bool { bits & Kind.mask == Kind.touched }
    @inline(__always) var mayBeTagged: Bool { bits & Kind.tagged != 0 }

    /// Whether fingerprint and displacement equal those of another first word.
    @inline(__always) func matches(_ wanted: UInt64) -> Bool { (bits ^ wanted) & SlotEntry.probed == 0 }
    /// Whether the fingerprint matches a key's hash bits.
    @inline(__always) func mayBe(_ hashBits: UInt32) -> Bool { (bits >> 32 ^ UInt64(hashBits)) & 0xFF_FFFF == 0 }
    /// Whether it is the same entry: the displacement bit is the bucket's.
    @inline(__always) func isSame(as other: SlotEntry) -> Bool { (bits ^ other.bits) & ~SlotEntry.displacementBit == 0 }

    @inline(__always) func with(location: UInt32) -> SlotEntry { SlotEntry(bits & ~0xFFFF_FFFF | UInt64(location)) }
    @inline(__always) func with(location: UInt32, kind: UInt64) -> SlotEntry {
        SlotEntry(with(location: location).bits & ~Kind.mask | kind)
    }
    @inline(__always) func with(location: UInt32, flags: UInt64) -> SlotEntry {
        SlotEntry(with(location: location).bits & ~SlotEntry.keptFlags | flags)
    }
    /// The word of the slot once it is free: only the bucket's displacement bit stays.
    @inline(__always) var freed: SlotEntry { SlotEntry(bits & SlotEntry.displacementBit) }
}

/// A slot's second word: when the entry was used, and when it may expire. Readers change it without the lock.
///
///     recency stamp (38) · hits (2) · expiry in 64-second units (24)
struct SlotUse: Equatable {
    let bits: UInt64
    @inline(__always) init(_ bits: UInt64) { self.bits = bits }
    @inline(__always) init(stamp: UInt64, hits: UInt64 = 0, expiry: UInt64) {
        bits = stamp & SlotUse.stampMask | hits << 38 | expiry << 40
    }

    static let stampBits: UInt64 = 38
    static let stampMask: UInt64 = (1 << 38) - 1
    static let mostHits: UInt64 = 3
    private static let hit: UInt64 = 1 << 38

    @inline(__always) var stamp: UInt64 { bits & SlotUse.stampMask }
    @inline(__always) var hits: UInt64 { bits >> 38 & 3 }
    @inline(__always) var expiry: UInt64 { bits >> 40 }

    @inline(__always) var hitsAfterUse: UInt64 { min(hits + 1, SlotUse.mostHits) }
    @inline(__always) func used(stamp: UInt64) -> SlotUse {
        SlotUse(stamp: stamp, hits: hitsAfterUse, expiry: expiry)
    }
    /// Requires fewer than `mostHits`.
    @inline(__always) var withOneHitMore: SlotUse { SlotUse(bits &+ SlotUse.hit) }
    /// Requires at least one hit.
    @inline(__always) var withOneHitLess: SlotUse { SlotUse(bits &- SlotUse.hit) }
}

struct Slot: Equatable {
    static let size = 16

    let at: Memory
    @inline(__always) init(_ at: Memory) { self.at = at }

    /// Needs the lock, as every change does.
    @inline(__always) var entry: SlotEntry { SlotEntry(at.u64(0)) }
    /// Without the lock: acquires everything that was stored before it.
    @inline(__always) var acquiredEntry: SlotEntry { SlotEntry(at.acquire(0)) }
    @inline(__always) func release(_ entry: SlotEntry) { at.release(0, entry.bits) }

    @inline(__always) var use: SlotUse { SlotUse(at.u64(8)) }
    @inline(__always) var acquiredUse: SlotUse { SlotUse(at.acquire(8)) }
    @inline(__always) func release(_ use: SlotUse) { at.release(8, use.bits) }
    /// Replaces it with zero.
    @inline(__always) func takeUse() -> SlotUse { SlotUse(shim_exchange64(at + 8, 0)) }
    /// Returns false if a reader has changed it meanwhile.
    @inline(__always) func replace(_ use: SlotUse, with new: SlotUse) -> Bool { shim_cas64(at + 8, use.bits, new.bits) }
}
