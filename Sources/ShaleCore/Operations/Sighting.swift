import CShalePlatform

/// How a try at one slot ended.
enum Outcome: Error {
    case absent, otherKey
    /// What was read changed meanwhile: look again.
    case moved
    case hit, stale, expired, invalidated
    case damaged
    /// A part of a large value is not there.
    case incomplete
    /// A large value was replaced before all its parts were read.
    case replaced
    case noMemory
    /// The shard of a part is being rebuilt for too long; the thread's error slot has the sentence.
    case busy
    /// The shard of a part cannot be rebuilt.
    case unavailable
}

/// A slot that was read without the lock, and where it pointed.
struct Sighting {
    let slot: Slot
    let word0: SlotEntry, word1: SlotUse
    let spot: Spot

    /// Whether it still points there, to what it pointed to.
    @inline(__always) var isUnchanged: Bool { Sighting.isUnchanged(slot, word0, spot.numberWord, spot.address.number) }
    /// (By words: a struct would be kept in memory for the call, by every read.)
    @inline(never)
    private static func isUnchanged(_ slot: Slot, _ word0: SlotEntry, _ numberWord: Memory, _ number: UInt64) -> Bool {
        shim_fence_acquire()
        return numberWord.acquire(0) == number && slot.acquiredEntry.isSame(as: word0)
    }
}
