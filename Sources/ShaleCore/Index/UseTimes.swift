import CShalePlatform

/// When the uses of a shard's entries were. A stamp counts uses and knows no time, so now and then whoever has the
/// shard's lock notes both. What lies between two such moments is taken to have been used at a steady rate.
///
/// The moments go back to the oldest entry that may be evicted, and are a thirty-second of those uses apart, or
/// `Sizes.usesBetween`. Where nobody changed the shard for long, they are as far apart as that.
///
/// Used under the shard's lock. A hint, without a promise: a kill may leave a moment out, or twice.
struct UseTimes {
    private typealias Field = ShardHeader.Field
    private static let cells = Sizes.useTimes
    private static let cellSize = 16
    static let size = cells * cellSize

    // Of a cell.
    private static let stamp = 0, time = 8

    let header: ShardHeader
    let at: Memory

    @inline(__always) private var count: Int { min(max(0, header[Field.useTimes]), UseTimes.cells) }
    private func cell(_ i: Int) -> Memory {
        assert(i >= 0 && i < UseTimes.size / UseTimes.cellSize, "a cell of the table")
        return at + i &* UseTimes.cellSize
    }
    private func stamp(_ i: Int) -> UInt64 { cell(i).u64(UseTimes.stamp) }

    /// Nothing is known of what was used before.
    func removeAll() {
        header[Field.useTimes] = 0
        header[Field.useTimeDue] = 0
    }

    @inline(__always) var isDue: Bool { header[Field.stamp] >= header[Field.useTimeDue] }

    /// `lowest`: no entry that may be evicted was used before.
    @inline(never)
    func note(_ now: UInt64, lowest: UInt64) {
        let newest = header[Field.stamp]
        var count = count, gone = 0
        while gone + 1 < count, stamp(gone + 1) <= lowest { gone += 1 }
        count -= gone
        // (They move down, so none is overwritten before it has moved.)
        if gone > 0 {
            for i in 0..<count { move(gone + i, to: i) }
        } else if count == UseTimes.cells {
            count /= 2
            for i in 1..<count { move(2 * i, to: i) }
        }
        cell(count).set(UseTimes.stamp, newest)
        cell(count).set(UseTimes.time, now)
        header[Field.useTimes] = count + 1
        header[Field.useTimeDue] = newest &+ max(Sizes.usesBetween, (newest &- stamp(0)) / UInt64(UseTimes.cells / 2))
    }

    private func move(_ from: Int, to: Int) {
        cell(to).set(UseTimes.stamp, stamp(from))
        cell(to).set(UseTimes.time, cell(from).u64(UseTimes.time))
    }

    /// About how long ago the use was that was given a stamp, in milliseconds. Nil where that is not known.
    @inline(__always)
    func idle(_ stamp: UInt64, now: UInt64) -> Int64? {
        let count = count
        guard count > 0, stamp >= self.stamp(0) else { return nil }
        var i = 1
        while i < count, self.stamp(i) <= stamp { i += 1 }
        let low = cell(i - 1)
        let end = i < count ? cell(i).u64(UseTimes.stamp) : header[Field.stamp],
            endTime = i < count ? cell(i).u64(UseTimes.time) : now
        // (Damage makes any number of these. Of 65,536, so that nothing overflows.)
        let start = low.u64(UseTimes.stamp), startTime = low.u64(UseTimes.time)
        let part = ((stamp &- start) << 16) / max(1, end &- start)
        let between = (Int64(bitPattern: endTime &- startTime) &* Int64(bitPattern: part)) >> 16
        return Int64(bitPattern: now &- startTime) &- between
    }
}
