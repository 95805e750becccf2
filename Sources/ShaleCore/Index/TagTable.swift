import CShalePlatform

/// A shard's invalidated tags: an entry is gone if one of its tags was
/// invalidated after it was written, that is, under a higher lsn.
///
/// Open addressing over (tag, lsn) pairs; tag 0 is free. Entries are only added
/// or raised. When it is full, the shard clears the slots that it names and
/// empties it under a new epoch, so that a reader that saw a slot before it was
/// cleared does not trust a table that was emptied after.
struct TagTable {
    static let cells = Sizes.tags
    static let most = Sizes.mostTags
    static let size = cells * 16

    let header: ShardHeader
    let at: Memory

    var isFull: Bool { header[ShardHeader.Field.tagCount] >= TagTable.most }

    private static func start(_ tag: UInt64) -> Int { Int(truncatingIfNeeded: tag >> 32) & (cells - 1) }

    /// The lsn under which the tag was last invalidated, or 0.
    @inline(__always)
    func invalidation(of tag: UInt64) -> UInt64 {
        var i = TagTable.start(tag), left = TagTable.cells
        while left > 0 {
            let found = at.acquire(i * 16)
            if found == tag { return at.acquire(i * 16 + 8) }
            if found == 0 { return 0 }
            i = (i + 1) & (TagTable.cells - 1)
            left -= 1
        }
        return 0
    }

    /// The lsn of the latest invalidation of any tag, since the table was emptied.
    var lastInvalidation: UInt64 {
        var last: UInt64 = 0
        for i in 0..<TagTable.cells where at.u64(i * 16) != 0 { last = max(last, at.u64(i * 16 + 8)) }
        return last
    }

    /// Whether one of the record's tags was invalidated after it was written.
    @inline(__always)
    func invalidates(_ record: RecordHeader, at p: Memory) -> Bool {
        var i = 0
        while i < record.tagCount {
            if invalidation(of: record.tag(i, at: p)) > record.lsn { return true }
            i += 1
        }
        return false
    }

    func add(_ tag: UInt64, lsn: UInt64) {
        guard let (word, value) = prepare(tag, lsn: lsn) else { return }
        word.release(0, value)
    }

    /// Does everything but the last store, with which the invalidation happens: where, and what is to be stored there.
    /// Nil where that is so already, and where the table is full. (The count is raised first: one too many makes
    /// readers look in vain, one too few would hide the invalidation from them.)
    func prepare(_ tag: UInt64, lsn: UInt64) -> (word: Memory, value: UInt64)? {
        var i = TagTable.start(tag)
        for _ in 0..<TagTable.cells {
            let found = at.u64(i * 16)
            if found == tag { return at.u64(i * 16 + 8) < lsn ? (at + i * 16 + 8, lsn) : nil }
            if found == 0 {
                header.release(ShardHeader.Field.tagCount, header[ShardHeader.Field.tagCount] + 1)
                at.release(i * 16 + 8, lsn)
                return (at + i * 16, tag)
            }
            i = (i + 1) & (TagTable.cells - 1)
        }
        return nil
    }

    private var count: Int {
        var count = 0
        for i in 0..<TagTable.cells where at.u64(i * 16) != 0 { count += 1 }
        return count
    }
    var isConsistent: Bool { count == header[ShardHeader.Field.tagCount] }

    /// After a kill the count may be one too high, or emptying the table was begun.
    func recount() { header.release(ShardHeader.Field.tagCount, UInt64(count)) }

    /// The caller has raised the epoch.
    func removeAll() {
        header.release(ShardHeader.Field.tagCount, 0)
        for i in 0..<TagTable.cells { at.release(i * 16, 0) }
    }
}
