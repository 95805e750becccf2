import CShalePlatform

/// Who is loading what: a shard's leases, each for one key, until a time, and as long as its holder's process exists.
///
/// A lease is a hint in memory that all processes share. It protects nothing that a value's correctness depends on,
/// and is lost with the index. Its time is the system's uptime, so a clock that jumps neither ends nor prolongs it.
///
/// The cells lie in groups. Two parts of a key's hash name two groups, and a new lease takes a cell of the one that has
/// more free ones. So nearly all cells get used: where 4,096 leases are put into 5,120 cells, one time in 300,000 one of
/// them meets two full groups (simulated), and where 256 are put into 288 cells, one time in 50.
///
/// Changed under the shard's lock. A kill within a change leaves a cell whose lease is over. The kernel is asked about a
/// holder under no lock: `take` and `firstGone` say about whom, and `end` ends what it still holds.
struct LeaseTable {
    private static let cellSize = 24, groupSize = Sizes.leases.group * cellSize
    /// Milliseconds. What seems to last longer is damage, and counts as over.
    static let longest: Int64 = 60 * 60 * 1000

    // Of a cell.
    private static let keyHash = 0, token = 8, holder = 16

    static func groups(frameBytes: Int) -> Int {
        min(Sizes.leases.most, max(Sizes.leases.least, frameBytes / Sizes.leases.bytesPerGroup))
    }
    static func size(groups: Int) -> Int { groups * groupSize }

    let at: Memory
    let groups: Int

    enum Answer {
        case given
        case held(Holder)
        /// No cell is free.
        case full
    }

    /// The groups that a key's lease may be in.
    private func candidates(_ keyHash: UInt64) -> (Memory, Memory) {
        func group(_ hash: UInt64) -> Memory {
            at + scaled(UInt32(truncatingIfNeeded: hash), to: groups) * LeaseTable.groupSize
        }
        // (The high half chooses the shard, so of its bits alone few would differ.)
        return (group(keyHash), group((keyHash &* 0x9E37_79B9_7F4A_7C15) >> 32))
    }
    private func cells(_ group: Memory) -> StrideTo<Memory> {
        stride(from: group, to: group + LeaseTable.groupSize, by: LeaseTable.cellSize)
    }

    private func holder(_ cell: Memory) -> Holder { Holder(cell.u64(LeaseTable.holder)) }
    private func isOver(_ cell: Memory, _ uptime: Int64) -> Bool {
        holder(cell).isOver(at: uptime, longest: LeaseTable.longest)
    }

    /// The cell of a key's lease.
    @inline(never)
    private func held(_ keyHash: UInt64, _ uptime: Int64) -> Memory? {
        @inline(never)
        func held(in group: Memory) -> Memory? {
            for cell in cells(group) where cell.u64(LeaseTable.keyHash) == keyHash && !isOver(cell, uptime) {
                return cell
            }
            return nil
        }
        let (first, second) = candidates(keyHash)
        return held(in: first) ?? held(in: second)
    }

    /// A free cell of the group that has more of them.
    @inline(never)
    private func free(_ keyHash: UInt64, _ uptime: Int64) -> Memory? {
        @inline(never)
        func free(in group: Memory) -> (cell: Memory?, count: Int) {
            var found: Memory?
            var count = 0
            for cell in cells(group) where isOver(cell, uptime) { (found, count) = (cell, count + 1) }
            return (found, count)
        }
        let both = candidates(keyHash)
        let first = free(in: both.0), second = free(in: both.1)
        return second.count > first.count ? second.cell : first.cell
    }

    func take(_ keyHash: UInt64, token: UInt64, holder new: Holder, uptime: Int64) -> Answer {
        if let held = held(keyHash, uptime) { return .held(holder(held)) }
        guard let free = free(keyHash, uptime) else { return .full }
        fill(free, keyHash, token, new)
        return .given
    }

    private func fill(_ cell: Memory, _ keyHash: UInt64, _ token: UInt64, _ holder: Holder) {
        cell.set(LeaseTable.holder, 0)
        cell.set(LeaseTable.keyHash, keyHash)
        cell.set(LeaseTable.token, token)
        cell.release(LeaseTable.holder, holder.word)
    }

    /// Makes the caller its holder. False where its time was over, or it is another's, or was never recorded.
    func renew(_ keyHash: UInt64, token: UInt64, holder: Holder, uptime: Int64) -> Bool {
        guard let held = held(keyHash, uptime), held.u64(LeaseTable.token) == token else { return false }
        held.release(LeaseTable.holder, holder.word)
        return true
    }

    /// False where the lease was over, or never recorded.
    func release(_ keyHash: UInt64, token: UInt64, uptime: Int64) -> Bool {
        guard let held = held(keyHash, uptime), held.u64(LeaseTable.token) == token else { return false }
        held.set(LeaseTable.holder, 0)
        return true
    }

    func removeAll() {
        // (Pages that hold no lease stay clean.)
        for i in 0..<groups {
            for cell in cells(at + i * LeaseTable.groupSize) where holder(cell).word != 0 {
                cell.set(LeaseTable.holder, 0)
            }
        }
    }

    // MARK: Holders whose process has ended

    /// Without the lock: the first of the key's cells, from the `next`th on, whose holder is gone.
    @inline(never)
    func firstGone(_ keyHash: UInt64, from next: inout Int, own: UInt32) -> Holder? {
        let both = candidates(keyHash)
        while next < 2 * Sizes.leases.group {
            let (which, i) = next.quotientAndRemainder(dividingBy: Sizes.leases.group)
            let holder = holder((which == 0 ? both.0 : both.1) + i * LeaseTable.cellSize)
            next += 1
            if holder.isGone(own: own) { return holder }
        }
        return nil
    }

    /// Ends what a holder that is gone still holds of the key's cells: unless another has it by now.
    @inline(never)
    func end(_ gone: Holder, _ keyHash: UInt64) {
        @inline(never)
        func end(in group: Memory) {
            for cell in cells(group) where holder(cell) == gone { cell.set(LeaseTable.holder, 0) }
        }
        let (first, second) = candidates(keyHash)
        end(in: first)
        end(in: second)
    }
}
