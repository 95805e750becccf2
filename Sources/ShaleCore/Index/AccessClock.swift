import CShalePlatform

/// Estimates how long ago a shard's entries were used. A recency stamp counts uses and carries no time, so the writer
/// with the shard's lock records a pair of stamp and time now and then. Uses between two pairs are assumed to have come
/// at a steady rate.
///
/// The pairs go back to the oldest entry that may be evicted. Their distance is a thirty-second of those uses, at least
/// `Sizes.usesBetween`, and longer where no writer changed the shard.
///
/// Needs the shard's lock. A hint: a kill may lose a pair or record it twice.
struct AccessClock {
    private typealias Field = ShardHeader.Field
    private static let cells = Sizes.accessClock
    private static let cellSize = 16
    static let size = cells * cellSize

    // Offsets in a cell.
    private static let stamp = 0, time = 8

    let header: ShardHeader
    let at: Memory

    @inline(__always) private var count: Int { min(max(0, header[Field.accessClock]), AccessClock.cells) }
    private func cell(_ i: Int) -> Memory {
        assert(i >= 0 && i < AccessClock.size / AccessClock.cellSize, "a cell of the table")
        return at + i &* AccessClock.cellSize
    }
    private func stamp(_ i: Int) -> UInt64 { cell(i).u64(AccessClock.stamp) }

    /// Discards all pairs: nothing is known about earlier uses.
    func removeAll() {
        header[Field.accessClock] = 0
        header[Field.accessClockDue] = 0
    }

    @inline(__always) var isDue: Bool { header[Field.stamp] >= header[Field.accessClockDue] }

    /// Records the current stamp and `now`. `lowest`: no entry that may be evicted has a lower stamp.
    @inline(never)
    func note(_ now: UInt64, lowest: UInt64) {
        let newest = header[Field.stamp]
        var count = count, passed = 0
        while passed + 1 < count, stamp(passed + 1) <= lowest { passed += 1 }
        count -= passed
        // (Cells move down in order, so each is read before it is overwritten.)
        if passed > 0 {
            for i in 0..<count { move(passed + i, to: i) }
        } else if count == AccessClock.cells {
            count /= 2
            for i in 1..<count { move(2 * i, to: i) }
        }
        cell(count).set(AccessClock.stamp, newest)
        cell(count).set(AccessClock.time, now)
        header[Field.accessClock] = count + 1
        header[Field.accessClockDue] =
            newest &+ max(Sizes.usesBetween, (newest &- stamp(0)) / UInt64(AccessClock.cells / 2))
    }

    private func move(_ from: Int, to: Int) {
        cell(to).set(AccessClock.stamp, stamp(from))
        cell(to).set(AccessClock.time, cell(from).u64(AccessClock.time))
    }

    /// Estimates the milliseconds since the use with this stamp. Nil if the stamp is older than all pairs.
    @inline(__always)
    func idle(_ stamp: UInt64, now: UInt64) -> Int64? {
        let count = count
        guard count > 0, stamp >= self.stamp(0) else { return nil }
        var i = 1
        while i < count, self.stamp(i) <= stamp { i += 1 }
        let low = cell(i - 1)
        let end = i < count ? cell(i).u64(AccessClock.stamp) : header[Field.stamp],
            endTime = i < count ? cell(i).u64(AccessClock.time) : now
        // (Damage makes these numbers arbitrary. The share is a fraction of 65,536, so that nothing overflows.)
        let start = low.u64(AccessClock.stamp), startTime = low.u64(AccessClock.time)
        let part = ((stamp &- start) << 16) / max(1, end &- start)
        let between = (Int64(bitPattern: endTime &- startTime) &* Int64(bitPattern: part)) >> 16
        return Int64(bitPattern: now &- startTime) &- between
    }
}
