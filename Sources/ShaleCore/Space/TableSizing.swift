import CShalePlatform

extension ShardWriter {
    /// Resizes the table before a record of the call is stored. Returns false if it is full and cannot grow.
    @inline(__always)
    func maintainTable(for length: Int) throws(Failure) -> Bool {
        if table.shape.mode == TableShape.Mode.steady { return sizeTable(for: length) }
        try advanceTable(for: length)
        return true
    }

    /// Advances the pass under way: by as much as the record's length pays for, so that a table for small entries is
    /// given back while the log fills with large ones, and no call pays for a whole pass.
    @inline(never)
    private func advanceTable(for length: Int) throws(Failure) {
        if change.progress.tableSteps == nil {
            change.progress.tableSteps = max(1, length / (TableLoad.pace * TableLoad.bytesPerBucket))
        }
        while let steps = change.progress.tableSteps, steps > 0, table.shape.mode != TableShape.Mode.steady {
            change.progress.tableSteps = steps - 1
            advanceTableAndTags()
            try rest()
        }
    }

    /// The same for a replayed record.
    func maintainTable() -> Bool {
        if table.shape.mode == TableShape.Mode.steady { return sizeTable(mayShrink: false) }
        advanceTableAndTags()
        return true
    }

    private func advanceTableAndTags() {
        let shape = table.shape
        #if SHALE_FAULTS
        shim_pass_begins()
        defer { shim_pass_ends() }
        #endif
        advanceTable()
        table.prefetchFrontier(TableLoad.pace)
        // No slower than the pass, so that the older generation is empty by its end.
        if tags.generations.hasOlder { sweepTags(steps: (shape.extent / shape.buckets + 2) * TableLoad.pace) }
    }

    /// Begins a pass if one is due, or prepares it, or gives back what an earlier one has left.
    private func sizeTable(for length: Int = 0, mayShrink: Bool = true) -> Bool {
        let shape = table.shape
        let used = header[Field.used], slots = shape.buckets * 4, load = max(used, slotsWanted(header[Field.pinned]))
        if load * 64 > slots * TableLoad.prepare {
            if load * 64 <= slots * TableLoad.grow {
                prepareGrowth(shape)
                return true
            }
            return growTable(shape) || used * 64 < slots * TableLoad.full
        }
        if !mayShrink { return true }
        if used * 64 < slots * TableLoad.loose, let mode = shrinkage(shape) {
            table.begin(mode)
            return true
        }
        // (Not where the table may soon be prepared again: each time, the sweep for victims begins again.)
        if used * 64 < slots * TableLoad.giveBack,
            header[Field.tablePages] > geometry.shardIndexBytes(buckets: shape.buckets),
            header[Field.sets] & (Sizes.givesPagesBackEvery - 1) == 0 || length > log.headRoom,
            fitTags(to: shape.buckets, steps: max(Sizes.tagStepsPerSet, length / TableLoad.bytesPerBucket))
        {
            shrinkPages(shape.buckets)
        }
        return true
    }

    /// Returns the mode of a pass that makes the table smaller, if a full shard does not need it.
    @inline(never)
    private func shrinkage(_ shape: TableShape) -> Int? {
        let used = header[Field.used] * 64, slots = shape.buckets * 4
        guard shape.buckets > Table.leastBuckets else { return nil }
        if used >= slots * TableLoad.shrink {
            return willFill(shape.buckets, to: TableLoad.loose) ? nil : TableShape.Mode.shrinking
        }
        // (A pass may have just multiplied it.)
        if used >= slots * TableLoad.sparse, shape.buckets <= Sizes.mostMultiplied, willFill(shape.buckets) {
            return nil
        }
        for halvings in stride(from: TableShape.Mode.mostDoublings, to: 0, by: -1) {
            let buckets = shape.buckets >> halvings
            if buckets >= Table.leastBuckets, used <= buckets * 4 * TableLoad.divided {
                return TableShape.Mode.dividing(halvings: halvings)
            }
        }
        return TableShape.Mode.shrinking
    }

    /// Returns the slots in use up to which a table does not grow, if so many of them may be pinned: an eighth stays
    /// for other entries.
    func slotsWanted(_ pinned: Int) -> Int { (pinned * 8 + 6) / 7 }

    /// Advances the current pass. With fewer than half as many buckets per insertion, the table would fill up before it
    /// has grown.
    private func advanceTable() {
        spend(table.advance(TableLoad.pace, looks: change.hasShare ? Share.ofHold : .max) { evict($0) })
    }

    func finishPass() throws(Failure) {
        while table.shape.mode != TableShape.Mode.steady {
            advanceTable()
            try rest()
        }
    }

    /// Begins to grow the table. `overdraws`: for pinned entries that have to stay, beyond the budget.
    func growTable(_ shape: TableShape, overdraws: Bool = false) -> Bool {
        // (With every insertion on a full disk, the attempt would cost more than the insertion.)
        guard header[Field.diskFullCountdown] == 0 else { return false }
        if !overdraws, let multiplied = multiplied(shape, within: Table.chunksEnd(header) + Table.chunkBytes),
            allocateTable(Table.bytes(of: multiplied.nextBuckets), pinning: change.pinning, mayTrim: false)
        {
            table.begin(multiplied.mode)
            return true
        }
        guard header[Field.diskFullCountdown] == 0,
            allocateTable(
                Table.bytes(of: TableShape.grown(shape.buckets)), pinning: change.pinning, overdraws: overdraws)
        else {
            if !overdraws { prepareFromLog(Table.bytes(of: TableShape.grown(shape.buckets))) }
            return false
        }
        table.begin(TableShape.Mode.growing)
        return true
    }

    /// Allocates as much of a larger table as one frame of the log has room for: in a full log the cleaner keeps only
    /// the few free that it needs, and gains the next one after this.
    private func prepareFromLog(_ end: Int) {
        guard header[Field.diskFullCountdown] == 0, log.availableFrames > log.reserve, hasRoomBeside(end) else {
            return
        }
        let unused = geometry.shardBudget - header[Field.allocated] * log.segmentSize - header[Field.tablePages]
        let room = max(0, unused + log.segmentSize) / pageSize * pageSize
        _ = allocateTable(min(end, header[Field.tablePages] - geometry.region + room), pinning: change.pinning)
    }

    /// Allocates a chunk of the larger table, so that the insertion which begins to grow it need not allocate all.
    private func prepareGrowth(_ shape: TableShape) {
        let isDue = header[Field.sets] & (Sizes.preparesEvery - 1) == 0
        if change.hasPrepared || !isDue { return }
        let grown = TableShape.grown(shape.buckets)
        if !fits(geometry.shardIndexBytes(buckets: grown)) { return prepareFromLog(Table.bytes(of: grown)) }
        change.hasPrepared = true
        let next = multiplied(shape)?.nextBuckets ?? grown
        let ready = Table.chunksEnd(header), end = Table.bytes(of: next)
        guard ready < end, header[Field.diskFullCountdown] == 0 else { return }
        _ = allocateTable(
            min(end, (ready / Table.chunkBytes + 1) * Table.chunkBytes), pinning: change.pinning, mayTrim: false)
    }

    /// Returns the pass that gives the table the most buckets that entries as large as those so far would fill, within
    /// the budget and up to an end of its chunks; nil: it grows by a quarter. Passes that add a quarter would move each
    /// entry four times until the table has doubled; one that multiplies the table by 8 moves each eighth entry.
    private func multiplied(_ shape: TableShape, within end: Int = .max) -> TableShape? {
        // (The sweep for the older generation of tags has to keep pace.)
        let most = tags.generations.hasOlder ? 1 : TableShape.Mode.mostDoublings
        for doublings in stride(from: most, to: 0, by: -1) {
            let buckets = shape.buckets << doublings
            if buckets <= (doublings > 1 ? Sizes.mostMultiplied : Sizes.mostDoubled), Table.bytes(of: buckets) <= end,
                fits(geometry.region + Table.bytes(of: buckets)), willFill(buckets)
            {
                return TableShape(
                    buckets: shape.buckets, frontier: 0, mode: TableShape.Mode.multiplying(doublings: doublings))
            }
        }
        return nil
    }

    /// Whether a full shard with entries as large as those so far fills so many buckets to a load.
    private func willFill(_ buckets: Int, to load: Int = TableLoad.grow) -> Bool {
        let limit = geometry.entriesPerShard,
            entries = log.liveLimit / max(1, header[Field.live] / max(1, header[Field.used]))
        return min(entries, limit > 0 ? limit : .max) * 64 >= buckets * 4 * load
    }

    /// Whether a log beside a table with so many bytes of chunks has room for the pinned entries.
    func pinsFitBeside(_ end: Int) -> Bool {
        let frames = log.budgetedFrames(beside: geometry.region + end)
        return frames > log.reserve + 1 && log.pinsFit(adding: change.pinning, in: frames)
    }

    /// Whether it has room for all entries. (Otherwise one call would evict many, for the sake of slots for others.)
    func hasRoomBeside(_ end: Int) -> Bool {
        let frames = log.budgetedFrames(beside: geometry.region + end)
        return pinsFitBeside(end) && header[Field.live] <= log.mostLive(of: frames, log.pinWaste)
    }

    private func fits(_ wanted: Int) -> Bool {
        wanted <= header[Field.tablePages] || header[Field.allocated] * log.segmentSize + wanted <= geometry.shardBudget
    }

    func growTable(to buckets: Int) -> Bool {
        header[Field.diskFullCountdown] = 0
        guard header[Field.used] == 0, allocateTable(Table.bytes(of: buckets)) else {
            // A smaller table may fit.
            header[Field.diskFullCountdown] = 0
            return false
        }
        header.release(Field.shape, TableShape(buckets: buckets, frontier: 0, mode: TableShape.Mode.steady).word)
        return true
    }

    /// Allocates so many bytes of chunks, for a table and its heaps, from the segments' budget if needed.
    @inline(never)
    private func allocateTable(_ end: Int, pinning: Int = 0, overdraws: Bool = false, mayTrim: Bool = true) -> Bool {
        guard end <= Table.bytes(of: geometry.maxBuckets - Table.spill) else { return false }
        let wanted = geometry.region + end
        // Asks the kernel, so it comes last: under a budget that forbids growth, each insertion gets here. Another
        // process's limit may allow it.
        var mayReach: Bool { engine.pointee.files.mayIndexReach(geometry.indexEnd(number, pages: wanted)) }
        if wanted > header[Field.tablePages] {
            // Pinned entries need their frames.
            guard overdraws || log.pinsFit(adding: pinning, in: log.budgetedFrames(beside: wanted)) else {
                return false
            }
            if !overdraws, !fits(wanted) {
                // Free no segment for a table that does not fit beside those that `trim` keeps.
                guard mayTrim, log.availableFrames > log.reserve, hasRoomBeside(end),
                    (log.count + log.reserve) * log.segmentSize + wanted <= geometry.shardBudget
                else { return false }
                guard mayReach else { return false }
                // (Frames that killed writers were preparing are in the way as well.)
                try? log.takeOverAll()
                log.trim(extra: wanted - header[Field.tablePages])
                guard fits(wanted) else { return false }
            }
            guard mayReach else { return false }
            // Counted first, so that a kill in between never lets the directory exceed its capacity.
            header[Field.tablePages] = wanted
        }
        let ready = Table.chunksEnd(header)
        if ready >= end { return true }
        // Counted pages may not be allocated: giving them back may have failed halfway.
        do throws(Failure) {
            try chunks.allocate(from: ready, to: end)
            header.release(Field.tableReady, end)
            return true
        } catch {
            if error.isDiskFull { header[Field.diskFullCountdown] = Log.patience }
            givePagesBack(table.shape.buckets)
            return false
        }
    }

    /// Makes the table as small as its entries allow, but not below `least` bytes. Returns whether it shrank.
    /// `fullest`: the highest load then, in sixty-fourths of the slots.
    func shrinkTable(downTo least: Int = 0, fullest: Int = TableLoad.shrunk * 5 / 4) throws(Failure) -> Bool {
        let before = header[Field.tablePages]
        func giveBack() throws(Failure) {
            try finishPass()
            if header[Field.tablePages] > geometry.shardIndexBytes(buckets: table.shape.buckets) {
                try fitTags(to: table.shape.buckets)
                shrinkPages(table.shape.buckets)
            }
        }
        try giveBack()
        while header[Field.tablePages] > least, table.shape.buckets > Table.leastBuckets,
            header[Field.used] * 64 < TableShape.shrunk(table.shape.buckets) * 4 * fullest
        {
            table.begin(TableShape.Mode.shrinking)
            try giveBack()
        }
        return header[Field.tablePages] < before
    }

    /// Gives back pages beyond the table and the generations of tags (`fitTags`).
    @inline(never)
    func shrinkPages(_ buckets: Int) {
        // (The heaps may be in them.)
        victims.reset()
        givePagesBack(buckets)
    }

    private func givePagesBack(_ buckets: Int) {
        let kept = geometry.region + max(Table.bytes(of: buckets), Table.tagsEnd(header))
        header.release(Field.tableReady, 0)
        if chunks.release(from: kept - geometry.region, to: header[Field.tablePages] - geometry.region) {
            header[Field.tablePages] = kept
        }
    }
}
