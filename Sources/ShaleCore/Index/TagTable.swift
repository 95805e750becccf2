import CShalePlatform

/// A shard's invalidated and expired tags: an entry is gone if one of its tags was
/// invalidated after it was written, that is, under a higher lsn; it is stale if
/// one was expired.
///
/// Open addressing over cells of four words: the tag, the lsn of its last
/// invalidation, the lsn of its last expiry, and the time of that one. Tag 0 is
/// free. Cells are only added or raised. When it is full, the shard clears the
/// slots that it names and empties it under a new epoch, so that a reader that
/// saw a slot before it was cleared does not trust a table that was emptied after.
struct TagTable {
    static let cells = Sizes.tags
    static let most = Sizes.mostTags
    static let cellSize = 32
    static let size = cells * cellSize
    private enum Word { static let invalidated = 8, expired = 16, time = 24 }

    /// What is noted of a tag.
    enum Mark {
        case invalidation
        /// When: milliseconds since 1970.
        case expiry(UInt64)
    }

    /// What its tags make of an entry.
    enum Verdict {
        case untouched, invalidated
        /// Since when it is stale.
        case expired(UInt64)
    }

    let header: ShardHeader
    let at: Memory

    var isFull: Bool { header[ShardHeader.Field.tagCount] >= TagTable.most }

    private static func start(_ tag: UInt64) -> Int { Int(truncatingIfNeeded: tag >> 32) & (cells - 1) }

    /// The tag's cell, or nil.
    @inline(__always)
    private func cell(of tag: UInt64) -> Memory? {
        var i = TagTable.start(tag), left = TagTable.cells
        while left > 0 {
            let cell = at + i * TagTable.cellSize, found = cell.acquire(0)
            if found == tag { return cell }
            if found == 0 { return nil }
            i = (i + 1) & (TagTable.cells - 1)
            left -= 1
        }
        return nil
    }

    func has(_ tag: UInt64) -> Bool { cell(of: tag) != nil }

    /// The lsn under which the tag was last invalidated or expired, or 0.
    func lastChange(of tag: UInt64) -> UInt64 { cell(of: tag).map { TagTable.lastChange($0) } ?? 0 }

    private static func lastChange(_ cell: Memory) -> UInt64 { max(cell.u64(Word.invalidated), cell.u64(Word.expired)) }

    /// The lsn of the latest change of any tag, since the table was emptied.
    var lastChange: UInt64 {
        var last: UInt64 = 0
        forEachCell { last = max(last, TagTable.lastChange($0)) }
        return last
    }

    /// Whether one of the record's tags was invalidated or expired after it was written; where several were expired, the
    /// first time counts.
    @inline(__always)
    func verdict(on record: RecordHeader, at p: Memory) -> Verdict {
        var time = UInt64.max
        var i = 0
        while i < record.tagCount {
            if let cell = cell(of: record.tag(i, at: p)) {
                if cell.acquire(Word.invalidated) > record.lsn { return .invalidated }
                // (The number first: its time was stored before it.)
                if cell.acquire(Word.expired) > record.lsn { time = min(time, cell.acquire(Word.time)) }
            }
            i += 1
        }
        return time == .max ? .untouched : .expired(time)
    }

    func add(_ tag: UInt64, _ mark: Mark, lsn: UInt64) {
        guard let cell = prepare(tag, mark, lsn: lsn) else { return }
        if case .expiry(let time) = mark { cell.pair.release(8, time) }
        cell.word.release(0, cell.value)
    }

    /// Does everything but the last stores, with which the change happens: the pair of an expiry's number and time,
    /// whose second word is to be replaced first, and the last word and what is to be stored there. Nil where that is so
    /// already, and where the table is full. (The count is raised first: one too many makes readers look in vain, one
    /// too few would hide the change from them.)
    func prepare(_ tag: UInt64, _ mark: Mark, lsn: UInt64) -> (pair: Memory, word: Memory, value: UInt64)? {
        var i = TagTable.start(tag)
        for _ in 0..<TagTable.cells {
            let cell = at + i * TagTable.cellSize, pair = cell + Word.expired
            var word = cell + Word.invalidated
            if case .expiry = mark { word = pair }
            let found = cell.u64(0)
            if found == tag { return word.u64(0) < lsn ? (pair, word, lsn) : nil }
            if found == 0 {
                header.release(ShardHeader.Field.tagCount, header[ShardHeader.Field.tagCount] + 1)
                for at in [Word.invalidated, Word.expired, Word.time] { cell.release(at, 0) }
                word.release(0, lsn)
                return (pair, cell, tag)
            }
            i = (i + 1) & (TagTable.cells - 1)
        }
        return nil
    }

    private func forEachCell(_ body: (Memory) -> Void) {
        for i in 0..<TagTable.cells where at.u64(i * TagTable.cellSize) != 0 { body(at + i * TagTable.cellSize) }
    }

    private var count: Int {
        var count = 0
        forEachCell { _ in count += 1 }
        return count
    }
    var isConsistent: Bool { count == header[ShardHeader.Field.tagCount] }

    /// After a kill the count may be one too high, or emptying the table was begun.
    func recount() { header.release(ShardHeader.Field.tagCount, UInt64(count)) }

    /// The caller has raised the epoch.
    func removeAll() {
        header.release(ShardHeader.Field.tagCount, 0)
        for i in 0..<TagTable.cells { at.release(i * TagTable.cellSize, 0) }
    }
}
