import CShalePlatform

/// Which keys were removed lately, and when: for sets that are to happen only if nothing has happened to their key
/// since a moment. Moments and changes are numbers of one sequence, the lsn.
///
/// A cache line for each part of the keys' hashes. It has seven cells, each with the number of a key's last removal, and
/// the highest number that has left them: the lowest leaves for a new one. So a removal that no cell names is no later
/// than that. With 512 lines, 1,000 removals a second, and a load of a second, one load in a thousand is told of a
/// removal that never was.
///
/// Used under the shard's lock. A cell is one word, so that a kill leaves it whole: 16 bits of the hash, and the last 48
/// of the number.
struct FenceTable {
    private static let lineSize = Sizes.fenceLine, numberBits: UInt64 = 48, numberMask: UInt64 = 1 << numberBits - 1

    static func lines(frameBytes: Int) -> Int {
        frameBytes >= Sizes.manyFences ? Sizes.fences.many : Sizes.fences.few
    }
    static func size(lines: Int) -> Int { lines * lineSize }

    let at: Memory
    let lines: Int

    private func line(_ keyHash: UInt64) -> Memory {
        at + Int(truncatingIfNeeded: keyHash >> 16) & (lines - 1) * FenceTable.lineSize
    }

    /// The number in a cell, of those up to `now`. One that has come round once more seems later than it was.
    private static func number(_ cell: UInt64, now: UInt64) -> UInt64 {
        if cell == 0 { return 0 }
        let number = now & ~numberMask | cell & numberMask
        return number <= now ? number : number > numberMask ? number &- (1 << numberBits) : now
    }

    /// `now`: the removal's number, the highest of all.
    func note(_ keyHash: UInt64, _ now: UInt64) {
        let line = line(keyHash), mark = keyHash << FenceTable.numberBits
        var cell = 8, lowest = UInt64.max
        for i in stride(from: 8, to: FenceTable.lineSize, by: 8) {
            let word = line.u64(i), number = FenceTable.number(word, now: now)
            let isItsOwn = word != 0 && (word ^ mark) & ~FenceTable.numberMask == 0
            if isItsOwn || number < lowest { (cell, lowest) = (i, isItsOwn ? 0 : number) }
            if isItsOwn { break }
        }
        if lowest > line.u64(0) { line.release(0, lowest) }
        line.release(cell, mark | now & FenceTable.numberMask)
    }

    /// A key's last removal is no later than this.
    func lastRemoval(of keyHash: UInt64, now: UInt64) -> UInt64 {
        let line = line(keyHash), mark = keyHash << FenceTable.numberBits
        var last = line.u64(0)
        for i in stride(from: 8, to: FenceTable.lineSize, by: 8)
        where (line.u64(i) ^ mark) & ~FenceTable.numberMask == 0 {
            last = max(last, FenceTable.number(line.u64(i), now: now))
        }
        return last
    }
}
