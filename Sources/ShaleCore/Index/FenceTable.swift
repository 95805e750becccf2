import CShalePlatform

/// The latest changes of keys and tags. A fenced set is refused if its key or one of its tags changed after its token
/// was drawn. Tokens and changes are numbers of one sequence, the lsn.
///
/// The hash of a key or tag selects two lines of the table, one cache line each. A line has seven cells, each with the
/// number of one key's or tag's latest change, and the highest number that was displaced from it. A change goes to the
/// line with the lower displaced number and replaces its lowest cell. So a change that no cell names is at most the
/// higher displaced number of its two lines. If many others change between a token and its set, that number is above
/// the token, and the set is refused: limits.md says how often. (With one line instead of two, eight colliding changes
/// suffice.)
///
/// Hashes have 32 bits, because a slot yields only the low 32 bits of its key's hash.
///
/// Needs the shard's lock. A cell is one word, so that a kill leaves it whole: the low 48 bits of the number, and 16
/// bits of the hash. 0 means free.
struct FenceTable {
    private static let lineSize = Sizes.fenceLine, markBits: UInt64 = 16, markMask: UInt64 = 1 << markBits - 1
    private static let mostLines = 1 << 16

    /// A hundredth of a shard's capacity when its index is created.
    static func lines(capacity: Int) -> Int {
        max(Sizes.leastFenceLines, min(capacity / Sizes.fenceShare / lineSize, mostLines))
    }
    static func size(lines: Int) -> Int { lines * lineSize }

    let at: Memory
    let lines: Int

    /// Returns the two lines of a hash, which may be the same.
    private func pair(_ hash: UInt32) -> (Memory, Memory) {
        let other = (hash & UInt32(truncatingIfNeeded: (UInt64(1) << Sizes.hashBitCount) - 1)) &* 0x9E37_79B1
        return (
            at + TableShape.scale(hash, lines) &* FenceTable.lineSize,
            at + TableShape.scale(other, lines) &* FenceTable.lineSize
        )
    }

    /// Returns how far a cell's number lies below `now`, with the mark's bits to the right; the maximum for a free
    /// cell.
    @inline(__always) private static func age(_ cell: UInt64, _ now: UInt64) -> UInt64 {
        cell == 0 ? .max : now << markBits &- cell & ~markMask
    }

    func removeAll() { at.zero(FenceTable.size(lines: lines)) }

    /// Records a change with this number. `now`: the newest number.
    func note(_ hash: UInt32, _ number: UInt64, now: UInt64) {
        let (first, second) = pair(hash)
        let line = first.u64(0) <= second.u64(0) ? first : second
        // (Every token above the higher displaced number is above this change, too.)
        if number <= max(first.u64(0), second.u64(0)) { return }
        let cell = number << FenceTable.markBits | UInt64(hash) & FenceTable.markMask
        let age = FenceTable.age(cell, now)
        var oldest = 8, most: UInt64 = 0, i = 8
        while i < FenceTable.lineSize {
            let word = line.u64(i), its = FenceTable.age(word, now)
            if (word ^ cell) & FenceTable.markMask == 0, word != 0 {
                if age < its { line.release(i, cell) }
                return
            }
            if its > most { (oldest, most) = (i, its) }
            i &+= 8
        }
        if most != .max {
            let left = now &- max(age, most) >> FenceTable.markBits
            if left > line.u64(0) { line.release(0, left) }
        }
        if age < most { line.release(oldest, cell) }
    }

    /// Returns the latest change of a key or tag that a cell names, and the highest number displaced from its lines.
    /// The latest change is at most the higher of the two.
    func lastChange(of hash: UInt32, now: UInt64) -> (own: UInt64, ofLine: UInt64) {
        let (first, second) = pair(hash)
        let own = max(lastChange(in: first, hash, now), lastChange(in: second, hash, now))
        return (own, max(first.u64(0), second.u64(0)))
    }

    private func lastChange(in line: Memory, _ hash: UInt32, _ now: UInt64) -> UInt64 {
        var last: UInt64 = 0
        for i in stride(from: 8, to: FenceTable.lineSize, by: 8) {
            let word = line.u64(i)
            if (word ^ UInt64(hash)) & FenceTable.markMask == 0, word != 0 {
                last = max(last, now &- FenceTable.age(word, now) >> FenceTable.markBits)
            }
        }
        return last
    }
}

extension FenceTable {
    /// Why a fenced set is refused.
    enum Refusal: Int {
        /// Its key was set, removed or expired since the token; its entry may have left the index since.
        case key
        /// One of its tags was invalidated or expired since the token.
        case tag
        /// So many others have changed that a line of its key or of one of its tags no longer goes back to the token.
        case line
        /// The index was rebuilt or cleared since the token.
        case floor
    }
}
