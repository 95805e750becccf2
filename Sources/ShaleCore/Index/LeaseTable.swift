import CShalePlatform

/// Who is loading what: a shard's leases, each for one key and until a time.
///
/// A lease is a hint in memory that all processes share. It protects nothing that a value's correctness depends on,
/// and is lost with the index. Its time is the system's uptime, so a clock that jumps neither ends nor prolongs it;
/// a killed holder's lease ends with its time. Where all cells are taken, a lease is granted that nobody sees.
///
/// Used under the shard's lock. A kill within a change leaves a cell whose lease is over.
struct LeaseTable {
    private static let cells = Sizes.leases
    private static let cellSize = 24
    static let size = cells * cellSize
    /// Milliseconds. What seems to last longer is damage, and counts as over.
    static let longest: Int64 = 60 * 60 * 1000

    // Of a cell.
    private static let keyHash = 0, token = 8, end = 16

    let at: Memory

    /// Milliseconds that are left of it, at most 0 where it is over.
    private func left(_ cell: Memory, _ uptime: Int64) -> Int64 {
        let left = Int64(bitPattern: cell.u64(LeaseTable.end)) &- uptime
        return left > LeaseTable.longest ? 0 : left
    }

    /// The cell of a key's lease, or else one whose lease is over.
    private func cell(_ keyHash: UInt64, _ uptime: Int64) -> (held: Memory?, free: Memory?) {
        var free: Memory?
        for i in 0..<LeaseTable.cells {
            let cell = at + i * LeaseTable.cellSize
            if left(cell, uptime) <= 0 {
                free = free ?? cell
            } else if cell.u64(LeaseTable.keyHash) == keyHash {
                return (cell, nil)
            }
        }
        return (nil, free)
    }

    /// False where another has it. To renew a lease, its time must not be over.
    func take(_ keyHash: UInt64, token: UInt64, renews: Bool, milliseconds: Int64, uptime: Int64) -> Bool {
        let (held, free) = cell(keyHash, uptime)
        if let held, held.u64(LeaseTable.token) != token { return false }
        guard let cell = held ?? (renews ? nil : free) else { return !renews }
        cell.set(LeaseTable.end, 0)
        cell.set(LeaseTable.keyHash, keyHash)
        cell.set(LeaseTable.token, token)
        cell.release(LeaseTable.end, UInt64(bitPattern: uptime &+ milliseconds))
        return true
    }

    func removeAll() { at.zero(LeaseTable.size) }

    /// False where the lease was over, or never seen.
    func release(_ keyHash: UInt64, token: UInt64, uptime: Int64) -> Bool {
        guard let held = cell(keyHash, uptime).held, held.u64(LeaseTable.token) == token else { return false }
        held.set(LeaseTable.end, 0)
        return true
    }
}
