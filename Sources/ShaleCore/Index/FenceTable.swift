import CShalePlatform

/// The latest changes of keys and tags, for sets that happen only if their key and tags have not changed since a moment.
/// Moments and changes are numbers of one sequence, the lsn.
///
/// A key or a tag has two lines of the table, cache lines that its hash names. A line has seven cells, each with the number
/// of a key's or a tag's last change, and the highest number that has left them. A change goes to that line from which the
/// older one has left, and there takes the cell of the lowest number. So one that no cell names is no later than what has
/// left one of its lines. Where many others change between a moment and its set, that is later than the moment, and the
/// set is refused: limits.md says how often. (With one line for each, eight changes that meet by chance suffice.)
///
/// A slot gives back the low 32 bits of its key's hash, and no more.
///
/// Used under the shard's lock. A cell is one word, so that a kill leaves it whole: the last 48 bits of the number, and 16
/// bits of the hash. It is free where it is 0.
struct FenceTable {
    private static let lineSize = Sizes.fenceLine, markBits: UInt64 = 16, markMask: UInt64 = 1 << markBits - 1
    private static let mostLines = 1 << 16

    /// A hundredth of what a shard may store when its index is made.
    static func lines(capacity: Int) -> Int {
        max(Sizes.leastFenceLines, min(capacity / Sizes.fenceShare / lineSize, mostLines))
    }
    static func size(lines: Int) -> Int { lines * lineSize }

    let at: Memory
    let lines: Int

    /// The two lines of a hash, which may be the same.
    private func pair(_ hash: UInt32) -> (Memory, Memory) {
        let other = (hash & UInt32(truncatingIfNeeded: (UInt64(1) << Sizes.fractionBits) - 1)) &* 0x9E37_79B1
        return (
            at + TableShape.scale(hash, lines) &* FenceTable.lineSize,
            at + TableShape.scale(other, lines) &* FenceTable.lineSize
        )
    }

    /// How long ago a cell's change was, in numbers of the sequence, with the mark's bits to the right. The highest of all
    /// where it is free.
    @inline(__always) private static func age(_ cell: UInt64, _ now: UInt64) -> UInt64 {
        cell == 0 ? .max : now << markBits &- cell & ~markMask
    }

    func removeAll() { at.zero(FenceTable.size(lines: lines)) }

    /// Notes a change that has this number, of those up to `now`.
    func note(_ hash: UInt32, _ number: UInt64, now: UInt64) {
        let (first, second) = pair(hash)
        let line = first.u64(0) <= second.u64(0) ? first : second
        // (No token that is above the higher floor is below the change.)
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

    /// The last change of a key or a tag is no later than either: its own, and those that have left its lines.
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
        /// Its key was set, removed or expired since; its entry may have left the index again.
        case key
        /// One of its tags was invalidated or expired since.
        case tag
        /// So many others have changed that a line of the key's, or of a tag's, does not go back to the token.
        case line
        /// The index was made anew since, or cleared.
        case floor
    }
}
