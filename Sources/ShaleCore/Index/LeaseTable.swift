import CShalePlatform

/// A shard's leases: which process loads which key, until a time and as long as the process exists.
///
/// A lease is a hint that all processes share. No value's correctness depends on it, and it is lost with the index. Its
/// time is the system's uptime, so setting the clock neither ends nor prolongs it.
///
/// The cells lie in groups. Two parts of a key's hash select two groups, and a new lease takes a cell of the one with
/// more free cells. So nearly all cells get used: putting 4,096 leases into 5,120 cells finds two full groups one time
/// in 300,000 (simulated), and putting 256 into 288, one time in 50.
///
/// Changes need the shard's lock. A kill within a change leaves a cell whose lease is over. The kernel is asked about
/// holders under no lock: `take` and `firstDead` return the one to ask about, and `end` frees a dead one's cells.
struct LeaseTable {
    private static let cellSize = 24, groupSize = Sizes.leases.group * cellSize
    /// Milliseconds. A longer remaining time is damage and counts as over.
    static let longest: Int64 = 60 * 60 * 1000

    // Offsets in a cell.
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
        case full
    }

    /// Returns the groups that a key's lease may be in.
    private func candidates(_ keyHash: UInt64) -> (Memory, Memory) {
        func group(_ hash: UInt64) -> Memory {
            at + scaled(UInt32(truncatingIfNeeded: hash), to: groups) * LeaseTable.groupSize
        }
        // (The high half selects the shard, so within a shard few of its bits differ.)
        return (group(keyHash), group((keyHash &* 0x9E37_79B9_7F4A_7C15) >> 32))
    }
    private func cells(_ group: Memory) -> StrideTo<Memory> {
        stride(from: group, to: group + LeaseTable.groupSize, by: LeaseTable.cellSize)
    }

    private func holder(_ cell: Memory) -> Holder { Holder(cell.u64(LeaseTable.holder)) }
    private func isOver(_ cell: Memory, _ uptime: Int64) -> Bool {
        holder(cell).isOver(at: uptime, longest: LeaseTable.longest)
    }

    /// Returns the cell of a key's lease.
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

    /// Returns a free cell of the group that has more of them.
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

    /// Makes the caller the lease's holder. Returns false if the lease is over, has another token, or was never
    /// recorded.
    func renew(_ keyHash: UInt64, token: UInt64, holder: Holder, uptime: Int64) -> Bool {
        guard let held = held(keyHash, uptime), held.u64(LeaseTable.token) == token else { return false }
        held.release(LeaseTable.holder, holder.word)
        return true
    }

    /// Ends a lease. Returns false if it is over, has another token, or was never recorded.
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

    /// Without the lock: returns the first dead holder among the key's cells, from the `next`th on.
    @inline(never)
    func firstDead(_ keyHash: UInt64, from next: inout Int, _ asker: Owner) -> Holder? {
        let both = candidates(keyHash)
        while next < 2 * Sizes.leases.group {
            let (which, i) = next.quotientAndRemainder(dividingBy: Sizes.leases.group)
            let holder = holder((which == 0 ? both.0 : both.1) + i * LeaseTable.cellSize)
            next += 1
            if holder.isDead(asker) { return holder }
        }
        return nil
    }

    /// Frees the key's cells that a dead holder still has, and no cell that has another holder by now.
    @inline(never)
    func end(_ dead: Holder, _ keyHash: UInt64) {
        @inline(never)
        func end(in group: Memory) {
            for cell in cells(group) where holder(cell) == dead { cell.set(LeaseTable.holder, 0) }
        }
        let (first, second) = candidates(keyHash)
        end(in: first)
        end(in: second)
    }
}
