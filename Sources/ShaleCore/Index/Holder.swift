import CShalePlatform

/// The holder of a cell that processes share, in one word: bits 34–63 its owner's number, bits 0–33 the milliseconds of
/// uptime at which its time ends, modulo 2^34. 0: no holder.
///
/// Others wait for a holder until its time or its process ends. (Read-only users wait for no holder.)
struct Holder: Equatable {
    private static let timeBits: UInt64 = 34, timeMask: UInt64 = 1 << timeBits - 1

    let word: UInt64

    init(_ word: UInt64) { self.word = word }

    init(_ owner: Owner, until end: Int64) {
        word = UInt64(owner.number) << Holder.timeBits | UInt64(bitPattern: end) & Holder.timeMask
    }

    private var number: UInt32 { UInt32(truncatingIfNeeded: word >> Holder.timeBits) }

    /// Whether its time has ended. A remaining time above `longest` is damage, or half a year old, and counts as ended.
    func isOver(at uptime: Int64, longest: Int64) -> Bool {
        let unused = 64 - Holder.timeBits
        let left = ((Int64(bitPattern: word) &- uptime) << unused) >> unused
        return word == 0 || left <= 0 || left > longest
    }

    /// Whether it has ended with its process or handle. Asks the kernel: call it after `isOver` and, where possible,
    /// under no lock.
    func isDead(_ asker: Owner) -> Bool { asker.hasEnded(number) }
}
