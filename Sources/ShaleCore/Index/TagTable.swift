import CShalePlatform

/// A shard's invalidated and expired tags: an entry is gone if one of its tags was
/// invalidated after it was written, that is, under a higher lsn; it is stale if
/// one was expired.
///
/// Two generations, each with a page of every chunk of the table, so that both grow with it. Changes are noted in the
/// newer one. Meanwhile a sweep takes the entries out that the older one has ended (`TagSweep`). Then nothing needs
/// the older one, and it is emptied. So a tag costs the same whether it is the first or the thousandth.
///
/// A generation is open addressing over cells of four words: the tag, the lsn of its last
/// invalidation, the lsn of its last expiry, and the time of that one. Tag 0 is
/// free. Cells are only added or raised, until an older generation is emptied under a new epoch, so that a reader that
/// saw a slot before it was cleared does not trust a generation that was emptied after. It has as many chunks as the
/// table had when it was begun.
struct TagTable {
    static let cellSize = TagGenerations.cellSize

    private enum Word { static let invalidated = 8, expired = 16, time = 24 }
    typealias Field = ShardHeader.Field

    /// What is noted of a tag.
    enum Mark {
        case invalidation
        /// When: milliseconds since 1970.
        case expiry(UInt64)
    }

    /// What its tags make of an entry.
    enum Effect {
        case untouched, invalidated
        /// Since when it is stale.
        case expired(UInt64)
    }

    let header: ShardHeader
    let table: Table

    @inline(__always) var generations: TagGenerations { TagGenerations(header.acquire(Field.tagGenerations)) }

    @inline(__always) private func cell(_ which: Int, _ i: Int) -> Memory {
        let (chunk, rest) = i.quotientAndRemainder(dividingBy: TagGenerations.cellsPerChunk)
        return table.buckets
            + (chunk &* table.chunkStride &- Table.chunkHead &+ which &* Sizes.tagBytes &+ rest &* TagTable.cellSize)
    }
    /// What a damaged word names may be none.
    func isCell(_ p: Memory) -> Bool {
        let first = cell(0, 0)
        return p >= first && (p - first) % table.chunkStride <= 2 * Sizes.tagBytes - 16
            && (p - first) / table.chunkStride < generations.mostChunks
    }

    /// A generation's cell of a tag, or the free one in its place.
    @inline(__always)
    private func find(_ tag: UInt64, _ which: Int, cells: Int) -> (cell: Memory?, free: Memory?) {
        var i = scaled(UInt32(truncatingIfNeeded: tag >> 32), to: cells), left = cells
        while left > 0 {
            let cell = cell(which, i), found = cell.acquire(0)
            if found == tag { return (cell, nil) }
            if found == 0 { return (nil, cell) }
            i = i &+ 1 == cells ? 0 : i &+ 1
            left &-= 1
        }
        return (nil, nil)
    }
    private func find(_ tag: UInt64, _ which: Int) -> Memory? { find(tag, which, cells: generations.cells(which)).cell }

    // MARK: Asking

    /// Whether one of the record's tags was invalidated or expired after it was written. A tag's last expiry counts;
    /// where several were expired, the first time does.
    @inline(__always)
    func effect(on record: RecordHeader, at p: Memory) -> Effect {
        let generations = self.generations
        let cells = (generations.cells(generations.newer), generations.cells(generations.older))
        var time = UInt64.max
        var i = 0
        while i < record.tagCount {
            let tag = record.tag(i, at: p)
            let newer = find(tag, generations.newer, cells: cells.0).cell
            let older = find(tag, generations.older, cells: cells.1).cell
            if isInvalidated(newer, since: record.lsn) || isInvalidated(older, since: record.lsn) {
                return .invalidated
            }
            time = min(time, expiry(newer, since: record.lsn) ?? expiry(older, since: record.lsn) ?? .max)
            i += 1
        }
        return time == .max ? .untouched : .expired(time)
    }

    @inline(__always) private func isInvalidated(_ cell: Memory?, since lsn: UInt64) -> Bool {
        cell.map { $0.acquire(Word.invalidated) > lsn } ?? false
    }
    /// (The number first: its time was stored before it.)
    @inline(__always) private func expiry(_ cell: Memory?, since lsn: UInt64) -> UInt64? {
        cell.flatMap { $0.acquire(Word.expired) > lsn ? $0.acquire(Word.time) : nil }
    }

    // MARK: Adding, to the newer generation

    /// Whether another tag would make probes long.
    var isFull: Bool {
        let generations = self.generations
        return header[Field.tagCounts[generations.newer]] >= generations.cells(generations.newer) * 3 / 4
    }
    /// How many tags it may get before it is full, whatever a sweep carries over to it.
    var left: Int {
        let newer = generations.newer, cells = generations.cells(newer)
        return cells * 3 / 4 - cells / 2 - (header[Field.tagCounts[newer]] - header[Field.tagsCarried[newer]])
    }

    func has(_ tag: UInt64) -> Bool { find(tag, generations.newer) != nil }
    /// Whether a cell is free for it. (The count may be wrong after damage.)
    func hasRoom(for tag: UInt64) -> Bool {
        let newer = generations.newer
        return find(tag, newer, cells: generations.cells(newer)).free != nil
    }

    func add(_ tag: UInt64, _ mark: Mark, lsn: UInt64) {
        guard let cell = prepare(tag, mark, lsn: lsn) else { return }
        if case .expiry(let time) = mark { cell.pair.release(8, time) }
        cell.word.release(0, cell.value)
    }

    /// Does everything but the last stores, with which the change happens: the pair of an expiry's number and time,
    /// whose second word is to be replaced first, and the last word and what is to be stored there. Nil where that is so
    /// already. (The count is raised first. After a kill it may be one too high until the generation is emptied.)
    func prepare(_ tag: UInt64, _ mark: Mark, lsn: UInt64) -> (pair: Memory, word: Memory, value: UInt64)? {
        let newer = generations.newer, found = find(tag, newer, cells: generations.cells(newer))
        guard let cell = found.cell ?? found.free else {
            assertionFailure("a full generation is followed by another")
            return nil
        }
        let pair = cell + Word.expired
        var word = cell + Word.invalidated
        if case .expiry = mark { word = pair }
        if found.cell != nil { return word.u64(0) < lsn ? (pair, word, lsn) : nil }
        header[Field.tagCounts[newer]] += 1
        for at in stride(from: Word.invalidated, through: Word.time, by: 8) { cell.release(at, 0) }
        word.release(0, lsn)
        return (pair, cell, tag)
    }

    /// Copies the expiries that make an entry stale from the older generation to the newer one. False where that has no
    /// room.
    func carry(_ record: RecordHeader, at p: Memory) -> Bool {
        let generations = self.generations, newer = generations.newer
        for i in 0..<record.tagCount {
            let tag = record.tag(i, at: p)
            guard let older = find(tag, generations.older), older.u64(Word.expired) > record.lsn else { continue }
            let cells = generations.cells(newer), known = find(tag, newer, cells: cells)
            if let cell = known.cell, cell.u64(Word.expired) >= older.u64(Word.expired) { continue }
            guard known.cell != nil || known.free != nil && header[Field.tagsCarried[newer]] < cells / 2 else {
                return false
            }
            add(tag, .expiry(older.u64(Word.time)), lsn: older.u64(Word.expired))
            // (Last: after a kill in between, it counts as one that is not carried.)
            if known.cell == nil { header[Field.tagsCarried[newer]] += 1 }
        }
        return true
    }

    // MARK: Generations

    /// Words from which no sum overflows, and a sweep that is inside the generation.
    var isConsistent: Bool {
        let generations = self.generations, most = 1 << 40
        for which in 0..<2 {
            guard 0..<most ~= header[Field.tagCounts[which]], 0..<most ~= header[Field.tagsCarried[which]] else {
                return false
            }
        }
        return !generations.hasOlder
            || header[Field.tagSweep] <= Table.allFractions + UInt64(generations.cells(generations.older))
    }

    /// The newer generation becomes the older one, which is empty, and the next change begins another.
    func turn(chunks: Int) {
        let generations = self.generations
        assert(!generations.hasOlder)
        header.release(Field.tagSweep, 0)
        header.release(
            Field.tagGenerations,
            TagGenerations(newer: generations.older, chunks: chunks, olderChunks: generations.chunks(generations.newer))
                .word)
    }

    /// Empties some of the older generation's cells. The caller has raised the epoch.
    func emptyOlder(_ cells: Range<Int>) {
        let older = generations.older
        for i in cells { cell(older, i).release(0, 0) }
    }
    /// The older generation, which is empty, ends.
    func endOlder() {
        let generations = self.generations, newer = generations.newer
        header[Field.tagCounts[generations.older]] = 0
        header[Field.tagsCarried[generations.older]] = 0
        header.release(
            Field.tagGenerations,
            TagGenerations(newer: newer, chunks: generations.chunks(newer), olderChunks: 0).word)
    }

    /// The caller has raised the epoch.
    func removeAll() {
        let generations = self.generations
        for which in 0..<2 {
            for i in 0..<generations.cells(which) { cell(which, i).release(0, 0) }
            header[Field.tagCounts[which]] = 0
            header[Field.tagsCarried[which]] = 0
        }
        header.release(Field.tagGenerations, 0)
    }
}
