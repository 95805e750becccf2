import CShalePlatform

/// Removes the entries that the older generation of tags has ended, and then empties it. Each change of a tag sweeps a few
/// homes of the table, so the generation is empty before the newer one is full. The sweep goes by hash fractions, because
/// an entry keeps its fraction when a growing table moves it. What is written meanwhile has a higher lsn than every change
/// in the older generation.
extension ShardWriter {
    /// Cells that are emptied in the time of a home.
    private static let cellsPerStep = 8

    /// Before a tag is noted: that the newer generation has room for it.
    @inline(never)
    func makeTagRoom(for tag: UInt64) throws(Failure) {
        if tags.has(tag) { return }
        if !change.progress.hasTagSteps {
            change.progress.hasTagSteps = true
            change.progress.tagSteps = stepsPerTag
        }
        while change.progress.tagSteps > 0, tags.generations.hasOlder {
            change.progress.tagSteps -= sweepTags(steps: 1)
            try rest()
        }
        let isFull = tags.isFull || !tags.hasRoom(for: tag)
        // (A table that has grown much faster than its tags changed is swept by one call.)
        if isFull { try sweepTags() }
        let chunks = Table.chunks(of: leastBuckets)
        if isFull || !tags.generations.hasOlder && tags.generations.chunks(tags.generations.newer) != chunks {
            tags.turn(chunks: chunks)
        }
    }

    /// Of the pass over the table that is under way, the fewer.
    private var leastBuckets: Int {
        let shape = table.shape
        return shape.mode == TableShape.Mode.shrinking ? shape.nextBuckets : shape.buckets
    }

    /// So many that the older generation is empty before the newer one is full.
    private var stepsPerTag: Int {
        let left = max(1, tags.left)
        return (stepsLeft + left - 1) / left
    }
    private var stepsLeft: Int {
        let generations = tags.generations, at = header[Field.tagSweep]
        if !generations.hasOlder { return 0 }
        let cells = generations.cells(generations.older) - Int(max(at, Table.allFractions) - Table.allFractions)
        let fractions = Table.allFractions - min(at, Table.allFractions)
        let homes = Int(truncatingIfNeeded: (UInt64(table.shape.extent) &* fractions) >> Sizes.fractionBits) + 1
        return homes + cells / ShardWriter.cellsPerStep + 1
    }

    /// Goes on with the older generation, if there is one. How many steps were done.
    @discardableResult @inline(never)
    func sweepTags(steps: Int) -> Int {
        var done = 0
        while done < steps, tags.generations.hasOlder {
            let at = header[Field.tagSweep]
            if at < Table.allFractions {
                done += sweepHome(from: at)
            } else {
                emptyCells(at)
                done += 1
            }
            if change.left <= 0 { break }
        }
        return done
    }

    /// To its end.
    func sweepTags() throws(Failure) {
        while tags.generations.hasOlder {
            sweepTags(steps: 1)
            try rest()
        }
    }

    /// Lets go of all that is noted of tags and that no stale entry needs: the newer generation becomes the older one.
    /// `isTurned`: whether it has.
    func emptyTags(_ isTurned: inout Bool) throws(Failure) {
        if !header.hasTags { return }
        try sweepTags()
        if !isTurned {
            isTurned = true
            tags.turn(chunks: Table.chunks(of: leastBuckets))
            try sweepTags()
        }
    }

    /// How many homes: 0 where some of its entries are left.
    private func sweepHome(from fraction: UInt64) -> Int {
        let stretch = visit(from: fraction, byOne: true) { endByTags($0) }
        // Before anything is emptied.
        if stretch.next == Table.allFractions { raiseEpoch(by: 2) }
        header.release(Field.tagSweep, stretch.next)
        return stretch.endsHome ? 1 : 0
    }

    /// Behind the last fraction, the cells that were emptied count.
    private func emptyCells(_ at: UInt64) {
        let generations = tags.generations, cells = generations.cells(generations.older)
        let first = Int(at - Table.allFractions), next = min(first + ShardWriter.cellsPerStep, cells)
        tags.emptyOlder(first..<next)
        spend(next - first)
        header.release(Field.tagSweep, Table.allFractions + UInt64(next))
        if next == cells { tags.endOlder() }
    }

    /// What is stale by the older generation needs it: the newer one keeps what is known of its tag, as long as it has
    /// room for that.
    private func endByTags(_ slot: Slot) {
        guard slot.entry.mayBeTagged, let found = reader.entry(slot, now: change.now) else { return }
        spend(looks(at: found))
        if !dropIfGoneByTags(found), found.standing.isExpired, !tags.carry(found.value.header, at: found.value.at) {
            drop(slot, counting: Field.expirations)
        }
    }

    /// Before the table's pages beyond so many buckets are given back: that no generation is there.
    @inline(never)
    func fitTags(to buckets: Int) throws(Failure) {
        let chunks = Table.chunks(of: buckets)
        while tags.generations.mostChunks > chunks {
            try sweepTags()
            if tags.generations.mostChunks > chunks { tags.turn(chunks: chunks) }
        }
    }

    /// The same, a few homes at a time. Whether none is there.
    func fitTags(to buckets: Int, steps: Int) -> Bool {
        let chunks = Table.chunks(of: buckets)
        if tags.generations.mostChunks <= chunks { return true }
        if !tags.generations.hasOlder { tags.turn(chunks: chunks) }
        sweepTags(steps: steps)
        return false
    }
}
