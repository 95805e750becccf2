import CShalePlatform

enum Outcome: Error {
    case absent, otherKey
    /// The bytes changed while they were read: look again.
    case moved
    case hit, stale, expired, invalidated
    case damaged
    case incomplete
    /// A large value was replaced before all its parts were read.
    case replaced
    case noMemory
    /// The shard of a part is being rebuilt for too long; the thread's error slot has the message.
    case busy
    /// The shard of a part cannot be rebuilt.
    case unavailable
}

/// A slot read without the lock, and where it pointed.
struct Sighting {
    let slot: Slot
    let word0: SlotEntry, word1: SlotUse
    let spot: Spot

    @inline(__always) var isUnchanged: Bool { Sighting.isUnchanged(slot, word0, spot.numberWord, spot.address.number) }
    /// (Takes words: with a struct, every read would keep it in memory for the call.)
    @inline(never)
    private static func isUnchanged(_ slot: Slot, _ word0: SlotEntry, _ numberWord: Memory, _ number: UInt64) -> Bool {
        shim_fence_acquire()
        return numberWord.acquire(0) == number && slot.acquiredEntry.isSame(as: word0)
    }
}
