import CShalePlatform

/// What happened to keys and tags lately, and when: for sets that are to happen only if nothing has happened to their key
/// and their tags since a moment. Moments and changes are numbers of one sequence, the lsn.
///
/// A cache line for each part of the hashes. It has seven cells, each with the number of the last change of a key or a
/// tag, and the highest number that has left them: the lowest leaves for a new one. So a change that no cell names is no
/// later than that. Where many others change between a moment and its set, a line forgets what it has to know and the set
/// is refused: limits.md says how often.
///
/// A slot gives back the low 32 bits of its key's hash, so the line comes from bits 16 to 31 and the mark from bits 0 to
/// 15, which makes 65,536 lines at most.
///
/// Used under the shard's lock. A cell is one word, so that a kill leaves it whole: 16 bits of the hash, and the last 48
/// of the number.
struct FenceTable {
    private static let lineSize = Sizes.fenceLine, numberBits: UInt64 = 48, numberMask: UInt64 = 1 << numberBits - 1

    /// A hundredth of what a shard may store when its index is made.
    static func lines(capacity: Int) -> Int { max(Sizes.leastFenceLines, min(capacity / Sizes.fenceShare / lineSize, 1 << 16)) }
    static func size(lines: Int) -> Int { lines * lineSize }

    let at: Memory
    let lines: Int

    private func line(_ hash: UInt32) -> Memory {
        at + Table.scale(hash, lines) &* FenceTable.lineSize
    }
    private static func mark(_ hash: UInt32) -> UInt64 { UInt64(hash) << numberBits }

    /// The number in a cell, of those up to `now`. One that has come round once more seems later than it was.
    private static func number(_ cell: UInt64, now: UInt64) -> UInt64 {
        if cell == 0 { return 0 }
        let number = now & ~numberMask | cell & numberMask
        return number <= now ? number : number > numberMask ? number &- (1 << numberBits) : now
    }

    /// Notes a change that has this number, of those up to `now`.
    func note(_ hash: UInt32, _ number: UInt64, now: UInt64) {
        let line = line(hash), mark = FenceTable.mark(hash), floor = line.u64(0)
        // (No token that is above the floor is below the change.)
        if number <= floor { return }
        var cell = 8, lowest = UInt64.max
        for i in stride(from: 8, to: FenceTable.lineSize, by: 8) {
            let word = line.u64(i), its = FenceTable.number(word, now: now)
            if word != 0, (word ^ mark) & ~FenceTable.numberMask == 0 {
                if number > its { line.release(i, mark | number & FenceTable.numberMask) }
                return
            }
            if its < lowest { (cell, lowest) = (i, its) }
        }
        if min(lowest, number) > floor { line.release(0, min(lowest, number)) }
        if number > lowest { line.release(cell, mark | number & FenceTable.numberMask) }
    }

    /// The last change of a key or a tag is no later than either: its own, and those that have left its line.
    func lastChange(of hash: UInt32, now: UInt64) -> (own: UInt64, ofLine: UInt64) {
        let line = line(hash), mark = FenceTable.mark(hash)
        var own: UInt64 = 0
        for i in stride(from: 8, to: FenceTable.lineSize, by: 8)
        where (line.u64(i) ^ mark) & ~FenceTable.numberMask == 0 {
            own = max(own, FenceTable.number(line.u64(i), now: now))
        }
        return (own, line.u64(0))
    }
}
