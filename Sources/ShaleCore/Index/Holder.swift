import CShalePlatform

/// The holder of a cell that processes share, in one word: bits 42–63 its process, bits 0–41 the milliseconds of uptime
/// at which its time ends. 0: no holder.
///
/// Others wait for a holder until its time or its process ends; if its number is reused, for the rest of its time. All
/// writers of an index share a PID namespace (`Trust`), and read-only users wait for no holder: so a number means the
/// same process to all that check it.
struct Holder: Equatable {
    private static let timeBits: UInt64 = 42, timeMask: UInt64 = 1 << timeBits - 1

    let word: UInt64

    init(_ word: UInt64) { self.word = word }

    init(process: UInt32, until end: Int64) {
        word = UInt64(process) << Holder.timeBits | UInt64(bitPattern: end) & Holder.timeMask
    }

    private var process: UInt32 { UInt32(truncatingIfNeeded: word >> Holder.timeBits) }

    /// Whether its time has ended. A remaining time above `longest` is damage and counts as ended.
    func isOver(at uptime: Int64, longest: Int64) -> Bool {
        let left = Int64(word & Holder.timeMask) &- uptime
        return left <= 0 || left > longest
    }

    /// Whether its process has ended. Asks the kernel unless it is the caller's own: call it after `isOver` and, where
    /// possible, under no lock.
    func isDead(own: UInt32) -> Bool { process != own && !shim_sys_has_process(process) }
}
