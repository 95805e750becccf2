import CShalePlatform

/// Unlinks the entries that the older generation of tags has ended, then empties it. Each change of a tag sweeps a few
/// homes, so that it is empty before the newer one is full. The sweep follows the hash bits, which an entry keeps when
/// a growing table moves it. Entries written meanwhile have a higher LSN than every change in the older generation.
extension ShardWriter {
    /// Cells emptied in the time of a home.
    private static let cellsPerStep = 8

    /// Makes room for a tag in the newer generation, before it is noted.
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
        // (If the table has grown much faster than its tags changed, one call sweeps all of it.)
        if isFull { try sweepTags() }
        let chunks = Table.chunks(of: leastBuckets)
        if isFull || !tags.generations.hasOlder && tags.generations.chunks(tags.generations.newer) != chunks {
            tags.turn(chunks: chunks)
        }
    }

    /// The smaller size of the table's current pass.
    var leastBuckets: Int {
        let shape = table.shape
        return min(shape.buckets, shape.mode == TableShape.Mode.steady ? .max : shape.nextBuckets)
    }

    /// Steps per tag that empty the older generation before the newer one is full.
    private var stepsPerTag: Int {
        let left = max(1, tags.left)
        return (stepsLeft + left - 1) / left
    }
    private var stepsLeft: Int {
        let generations = tags.generations, at = header[Field.tagSweep]
        if !generations.hasOlder { return 0 }
        let cells = generations.cells(generations.older) - Int(max(at, Table.allHashBits) - Table.allHashBits)
        let hashBits = Table.allHashBits - min(at, Table.allHashBits)
        let homes = Int(truncatingIfNeeded: (UInt64(table.shape.extent) &* hashBits) >> Sizes.hashBitCount) + 1
        return homes + cells / ShardWriter.cellsPerStep + 1
    }

    /// Continues the sweep, if there is one. Returns the steps done.
    @discardableResult @inline(never)
    func sweepTags(steps: Int) -> Int {
        var done = 0
        while done < steps, tags.generations.hasOlder {
            let at = header[Field.tagSweep]
            if at < Table.allHashBits {
                done += sweepHome(from: at)
            } else {
                emptyCells(at)
                done += 1
            }
            if change.left <= 0 { break }
        }
        return done
    }

    func sweepTags() throws(Failure) {
        while tags.generations.hasOlder {
            sweepTags(steps: 1)
            try rest()
        }
    }

    /// Discards all tag changes that no stale entry needs: the newer generation becomes the older one (`isTurned`) and
    /// is swept too.
    func emptyTags(_ isTurned: inout Bool) throws(Failure) {
        if !header.hasTags { return }
        try sweepTags()
        if !isTurned {
            isTurned = true
            tags.turn(chunks: Table.chunks(of: leastBuckets))
            try sweepTags()
        }
    }

    /// Returns the number of homes swept: 0 if some of the home's entries are left.
    private func sweepHome(from hashBits: UInt64) -> Int {
        let stretch = visit(from: hashBits, byOne: true) { endByTags($0) }
        // Before any cell is emptied.
        if stretch.next == Table.allHashBits { raiseEpoch(by: 2) }
        header.release(Field.tagSweep, stretch.next)
        return stretch.endsHome ? 1 : 0
    }

    /// Above the last hash bits, `tagSweep` counts emptied cells.
    private func emptyCells(_ at: UInt64) {
        let generations = tags.generations, cells = generations.cells(generations.older)
        let first = Int(at - Table.allHashBits), next = min(first + ShardWriter.cellsPerStep, cells)
        tags.emptyOlder(first..<next)
        spend(next - first)
        header.release(Field.tagSweep, Table.allHashBits + UInt64(next))
        if next == cells { tags.endOlder() }
    }

    /// The newer generation takes over the tags of stale entries, as long as it has room.
    private func endByTags(_ slot: Slot) {
        guard slot.entry.mayBeTagged, let found = reader.entry(slot, now: change.now) else { return }
        spend(looks(at: found))
        if !unlinkIfDeadByTags(found), found.freshness.isExpired, !tags.carry(found.value.header, at: found.value.at) {
            unlink(slot, counting: Field.expirations)
        }
    }

    /// Frees the pages beyond `buckets` buckets from generations of tags, before they are given back.
    @inline(never)
    func fitTags(to buckets: Int) throws(Failure) {
        let chunks = Table.chunks(of: buckets)
        while tags.generations.mostChunks > chunks {
            try sweepTags()
            if tags.generations.mostChunks > chunks { tags.turn(chunks: chunks) }
        }
    }

    /// Does the same, a few homes at a time. Returns whether they are free.
    func fitTags(to buckets: Int, steps: Int) -> Bool {
        let chunks = Table.chunks(of: buckets)
        if tags.generations.mostChunks <= chunks { return true }
        if !tags.generations.hasOlder { tags.turn(chunks: chunks) }
        sweepTags(steps: steps)
        return false
    }
}
