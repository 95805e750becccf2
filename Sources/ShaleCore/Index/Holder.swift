import CShalePlatform

/// Who holds a cell that processes share, and until when, in one word: bits 42–63 the process, bits 0–41 the milliseconds
/// of uptime at which its time is over. 0: nobody.
///
/// Others wait for a holder while its time is not over and its process exists. If another process has got its number,
/// they wait for the rest of its time, and nothing else happens. All who write to an index share a PID namespace
/// (`Trust`), and who only reads waits for no holder: so each number means the same process to all who judge it.
struct Holder: Equatable {
    private static let timeBits: UInt64 = 42, timeMask: UInt64 = 1 << timeBits - 1

    let word: UInt64

    init(_ word: UInt64) { self.word = word }

    init(process: UInt32, until end: Int64) {
        word = UInt64(process) << Holder.timeBits | UInt64(bitPattern: end) & Holder.timeMask
    }

    private var process: UInt32 { UInt32(truncatingIfNeeded: word >> Holder.timeBits) }

    /// What seems to last longer than any does is damage, and counts as over.
    func isOver(at uptime: Int64, longest: Int64) -> Bool {
        let left = Int64(word & Holder.timeMask) &- uptime
        return left <= 0 || left > longest
    }

    /// Whether its process has ended. Asks the kernel, unless it is the caller's own: to be asked after the time was
    /// judged and, where that can be arranged, under no lock.
    func isGone(own: UInt32) -> Bool { process != own && !shim_sys_has_process(process) }
}
