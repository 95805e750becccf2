import CShalePlatform

/// A shard's invalidated and expired tags. An entry is dead if one of its tags was invalidated under a higher lsn than
/// its own, and stale if one was expired under a higher lsn.
///
/// Two generations, each with a page of every chunk of the table, so that both grow with it. Changes go to the newer
/// one, while a sweep unlinks the entries that the older one has ended (`TagSweep`); then the older one is emptied. So
/// each tag costs the same.
///
/// A generation is open addressing over cells of four words: the tag (0: free), the lsn of its last invalidation, the
/// lsn of its last expiry, and the time of that expiry. Cells are only added or raised until an older generation is
/// emptied under a new epoch: so a reader that saw a slot before it was cleared does not trust an emptied generation. A
/// generation has as many chunks as the table had when it began.
struct TagTable {
    static let cellSize = TagGenerations.cellSize

    private enum Word { static let invalidated = 8, expired = 16, time = 24 }
    typealias Field = ShardHeader.Field

    /// A recorded change of a tag.
    enum Mark {
        case invalidation
        /// When: milliseconds since 1970.
        case expiry(UInt64)
    }

    /// The effect of its tags on an entry.
    enum Effect {
        case unchanged, invalidated
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
    /// Whether an address is a cell: a damaged word may name none.
    func isCell(_ p: Memory) -> Bool {
        let first = cell(0, 0)
        return p >= first && (p - first) % table.chunkStride <= 2 * Sizes.tagBytes - 16
            && (p - first) / table.chunkStride < generations.mostChunks
    }

    /// Returns a tag's cell in a generation, or the free cell for it.
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

    // MARK: Looking up

    /// Returns the effect of tags that were invalidated or expired after the record was written. Of one tag, the last
    /// expiry counts; of several expired tags, the earliest time.
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
        return time == .max ? .unchanged : .expired(time)
    }

    @inline(__always) private func isInvalidated(_ cell: Memory?, since lsn: UInt64) -> Bool {
        cell.map { $0.acquire(Word.invalidated) > lsn } ?? false
    }
    /// (Reads the lsn first: its time was stored before it.)
    @inline(__always) private func expiry(_ cell: Memory?, since lsn: UInt64) -> UInt64? {
        cell.flatMap { $0.acquire(Word.expired) > lsn ? $0.acquire(Word.time) : nil }
    }

    // MARK: Adding, to the newer generation

    /// Whether another tag would make probes long.
    var isFull: Bool {
        let generations = self.generations
        return header[Field.tagCounts[generations.newer]] >= generations.cells(generations.newer) * 3 / 4
    }
    /// How many tags fit before it is full, even if a sweep carries over as many as it may.
    var left: Int {
        let newer = generations.newer, cells = generations.cells(newer)
        return cells * 3 / 4 - cells / 2 - (header[Field.tagCounts[newer]] - header[Field.tagsCarried[newer]])
    }

    func has(_ tag: UInt64) -> Bool { find(tag, generations.newer) != nil }
    /// Whether a cell is free for the tag. (The count may be wrong after damage.)
    func hasRoom(for tag: UInt64) -> Bool {
        let newer = generations.newer
        return find(tag, newer, cells: generations.cells(newer)).free != nil
    }

    func add(_ tag: UInt64, _ mark: Mark, lsn: UInt64) {
        guard let cell = prepare(tag, mark, lsn: lsn) else { return }
        if case .expiry(let time) = mark { cell.pair.release(8, time) }
        cell.word.release(0, cell.value)
    }

    /// Does everything but the last stores, with which the change happens. Returns the pair of an expiry's lsn and
    /// time, whose second word must be replaced first, and the last word with the value to store. Nil if the change is
    /// recorded already. (Raises the count first: after a kill it may be one too high until the generation is emptied.)
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

    /// Copies to the newer generation the expiries that make an entry stale. Returns false if it has no room.
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

    /// Whether no sum of the words overflows, and the sweep is inside the generation.
    var isConsistent: Bool {
        let generations = self.generations, most = 1 << 40
        for which in 0..<2 {
            guard 0..<most ~= header[Field.tagCounts[which]], 0..<most ~= header[Field.tagsCarried[which]] else {
                return false
            }
        }
        return !generations.hasOlder
            || header[Field.tagSweep] <= Table.allHashBits + UInt64(generations.cells(generations.older))
    }

    /// Makes the newer generation the older one, which must be empty, and begins another.
    func turn(chunks: Int) {
        let generations = self.generations
        assert(!generations.hasOlder)
        header.release(Field.tagSweep, 0)
        header.release(
            Field.tagGenerations,
            TagGenerations(newer: generations.older, chunks: chunks, olderChunks: generations.chunks(generations.newer))
                .word)
    }

    /// Empties some cells of the older generation. The caller has raised the epoch.
    func emptyOlder(_ cells: Range<Int>) {
        let older = generations.older
        for i in cells { cell(older, i).release(0, 0) }
    }
    /// Ends the older generation, whose cells are empty.
    func endOlder() {
        let generations = self.generations, newer = generations.newer
        header[Field.tagCounts[generations.older]] = 0
        header[Field.tagsCarried[generations.older]] = 0
        header.release(
            Field.tagGenerations,
            TagGenerations(newer: newer, chunks: generations.chunks(newer), olderChunks: 0).word)
    }

    /// Empties both generations. The caller has raised the epoch.
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
