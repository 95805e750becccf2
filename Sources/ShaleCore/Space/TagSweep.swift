import CShalePlatform

/// Removes the entries that the older generation of tags has ended, and then empties it. Each change of a tag sweeps a few
/// homes of the table, so the generation is empty before the newer one is full. The sweep goes by hash fractions, because
/// an entry keeps its fraction when a growing table moves it. What is written meanwhile has a higher lsn than every change
/// in the older generation.
extension ShardWriter {
    /// Homes that are swept at once.
    private static let homesPerBatch = 64
    /// Cells that are emptied in the time of a home.
    private static let cellsPerStep = 8

    /// Before a tag is noted: that the newer generation has room for it.
    @inline(never)
    func makeTagRoom(for tag: UInt64) {
        if tags.has(tag) { return }
        sweepTags(steps: stepsPerTag)
        let isFull = tags.isFull || !tags.hasRoom(for: tag)
        // (A table that has grown much faster than its tags changed is swept at once.)
        if isFull { sweepTags(steps: .max) }
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
        let cells = generations.cells(generations.older) - Int(max(at, TagTable.swept) - TagTable.swept)
        let fractions = TagTable.swept - min(at, TagTable.swept)
        let homes = Int(truncatingIfNeeded: (UInt64(table.shape.extent) &* fractions) >> Sizes.fractionBits) + 1
        return homes + cells / ShardWriter.cellsPerStep + 1
    }

    /// Goes on with the older generation, if there is one.
    @inline(never)
    func sweepTags(steps: Int) {
        var left = steps
        while left > 0, tags.generations.hasOlder {
            let at = header[Field.tagSweep]
            if at < TagTable.swept {
                left -= sweepHomes(from: at, atMost: min(left, ShardWriter.homesPerBatch))
            } else {
                emptyCells(at)
                left -= 1
            }
        }
    }

    /// Homes in a row, each bucket of which is looked at once. How many.
    private func sweepHomes(from fraction: UInt64, atMost most: Int) -> Int {
        let shape = table.shape
        let first = shape.home(UInt32(truncatingIfNeeded: fraction))
        var last = first, next = shape.end(ofHome: first, from: fraction)
        // (Homes on both sides of a pass over the table are not in a row.)
        while last - first + 1 < most, next < TagTable.swept,
            shape.home(UInt32(truncatingIfNeeded: next)) == last + 1
        {
            last += 1
            next = shape.end(ofHome: last, from: next)
        }
        var position = first, end = last
        while position <= end {
            if position <= last { end = max(end, position + table.reach(ofHome: position)) }
            table.forEachSlot(at: position..<(position + 1)) { slot, word0, _ in
                if first...last ~= position - word0.displacement { endByTags(slot) }
            }
            position += 1
        }
        // Before anything is emptied.
        if next >= TagTable.swept { raiseEpoch(by: 2) }
        header.release(Field.tagSweep, min(next, TagTable.swept))
        return last - first + 1
    }

    private func emptyCells(_ at: UInt64) {
        let generations = tags.generations, cells = generations.cells(generations.older)
        let first = Int(at - TagTable.swept), next = min(first + ShardWriter.cellsPerStep, cells)
        tags.emptyOlder(first..<next)
        header.release(Field.tagSweep, TagTable.swept + UInt64(next))
        if next == cells { tags.endOlder() }
    }

    /// What is stale by the older generation needs it: the newer one keeps what is known of its tag, as long as it has
    /// room for that.
    private func endByTags(_ slot: Slot) {
        guard slot.entry.mayBeTagged, let found = reader.entry(slot, now: change.now) else { return }
        if found.standing.isInvalidated {
            drop(slot)
        } else if found.standing.isExpired, !tags.carry(found.value.header, at: found.value.at) {
            drop(slot, counting: Field.evictions)
        }
    }

    /// Before the table's pages beyond so many buckets are given back: that no generation is there.
    @inline(never)
    func fitTags(to buckets: Int) {
        let chunks = Table.chunks(of: buckets)
        if tags.generations.mostChunks <= chunks { return }
        sweepTags(steps: .max)
        if tags.generations.mostChunks <= chunks { return }
        tags.turn(chunks: chunks)
        sweepTags(steps: .max)
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
