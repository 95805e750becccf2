import CShalePlatform

/// The table's size: it grows and shrinks by a few buckets with every insertion.
extension ShardWriter {
    /// Grows or shrinks the table by a few buckets; called with every insertion.
    /// False where it is full and cannot grow.
    func maintainTable(mayShrink: Bool = true) -> Bool {
        let table = self.table
        let shape = table.shape
        if shape.mode != TableShape.Mode.steady {
            advanceTable()
            table.prefetchFrontier(TableLoad.pace)
            // No slower than the pass: of a table that was a quarter smaller, the older generation is empty then.
            if tags.generations.hasOlder { sweepTags(steps: 2 * TableLoad.pace) }
            return true
        }
        let used = header[Field.used]
        let slots = shape.buckets * 4
        if used * 64 > slots * TableLoad.grow {
            if growTable(shape) { return true }
            return used * 64 < slots * TableLoad.full
        }
        if !mayShrink { return true }
        if shape.buckets > Table.leastBuckets, used * 64 < slots * TableLoad.shrink {
            table.begin(TableShape.Mode.shrinking)
            return true
        }
        if header[Field.sets] & (Sizes.givesPagesBackEvery - 1) == 0,
            header[Field.tablePages] > geometry.shardIndexBytes(buckets: shape.buckets),
            fitTags(to: shape.buckets, steps: Sizes.tagStepsPerSet)
        {
            shrinkPages(shape.buckets)
        }
        return true
    }

    /// A few buckets more of the pass that is under way: with fewer than half of them at each insertion, the table would be
    /// full before it is larger, and entries would find no place.
    private func advanceTable() {
        spend(table.advance(TableLoad.pace, looks: change.hasShare ? Share.ofHold / 8 * 5 : .max) { evict($0) })
    }

    /// Ends the pass that is under way, if one is.
    func finishPass() throws(Failure) {
        while table.shape.mode != TableShape.Mode.steady {
            advanceTable()
            try rest()
        }
    }

    /// `overdraws`: for what is pinned and has to stay, whatever the budget.
    func growTable(_ shape: TableShape, overdraws: Bool = false) -> Bool {
        let next = TableShape.grown(shape.buckets)
        // (With every insertion on a full disk, the attempt would cost more than the insertion.)
        guard header[Field.diskFullCountdown] == 0,
            allocateTable(next, pinning: change.pinning, overdraws: overdraws)
        else { return false }
        table.begin(TableShape.Mode.growing)
        return true
    }

    /// A larger table at once, while it is empty and the lock is held.
    func growTable(to buckets: Int) -> Bool {
        header[Field.diskFullCountdown] = 0
        guard header[Field.used] == 0, allocateTable(buckets) else {
            // Less may fit.
            header[Field.diskFullCountdown] = 0
            return false
        }
        header.release(Field.shape, TableShape(buckets: buckets, frontier: 0, mode: TableShape.Mode.steady).word)
        return true
    }

    /// Pages for a table of so many buckets, and its heaps. What the table takes, the segments give.
    @inline(never)
    private func allocateTable(_ buckets: Int, pinning: Int = 0, overdraws: Bool = false) -> Bool {
        guard buckets <= geometry.maxBuckets - Table.spill else { return false }
        let wanted = geometry.shardIndexBytes(buckets: buckets)
        // Another process's table may grow. Asked of the kernel, so last: where the budget forbids it, each insertion
        // comes by.
        var mayReach: Bool { engine.pointee.files.mayIndexReach(geometry.indexEnd(number, buckets: buckets)) }
        if wanted > header[Field.tablePages] {
            func fits(beside segments: Int) -> Bool { segments * log.segmentSize + wanted <= geometry.shardBudget }
            // What is pinned needs its frames.
            guard overdraws || log.pinsFit(adding: pinning, in: log.budgetedFrames(beside: wanted)) else {
                return false
            }
            if !overdraws, !fits(beside: header[Field.allocated]) {
                // No segment goes for a table that does not fit beside those that `trim` leaves at least.
                guard log.availableFrames > log.reserve, fits(beside: log.count + log.reserve) else {
                    return false
                }
                guard mayReach else { return false }
                // (What writers were preparing that were killed is in the way as well.)
                try? log.takeOverAll()
                log.trim(extra: wanted - header[Field.tablePages])
                guard fits(beside: header[Field.allocated]) else { return false }
            }
            guard mayReach else { return false }
            // Counted first, so that a kill in between never lets the directory outgrow its capacity.
            header[Field.tablePages] = wanted
        }
        // What is counted need not be there: giving it back may have failed halfway.
        do throws(Failure) {
            try chunks.allocate(from: Table.chunksEnd(header), to: Table.bytes(of: buckets))
            return true
        } catch {
            if error.isDiskFull { header[Field.diskFullCountdown] = Log.patience }
            givePagesBack(table.shape.buckets)
            return false
        }
    }

    /// Makes the table as small as its entries allow, but no smaller than so many bytes. False where it is already.
    /// `fullest`: sixty-fourths of the slots that may be in use then.
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

    /// Gives back the pages beyond the table's size, and beyond what generations of tags take (`fitTags`).
    @inline(never)
    func shrinkPages(_ buckets: Int) {
        // (The heaps may be in them.)
        victims.reset()
        givePagesBack(buckets)
    }

    private func givePagesBack(_ buckets: Int) {
        let kept = geometry.region + max(Table.bytes(of: buckets), Table.tagsEnd(header))
        if chunks.release(from: kept - geometry.region, to: header[Field.tablePages] - geometry.region) {
            header[Field.tablePages] = kept
        }
    }
}
