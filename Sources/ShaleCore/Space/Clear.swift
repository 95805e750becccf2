import CShalePlatform

/// Many entries at once: all of them, those of invalidated tags, those that are gone.
extension ShardWriter {
    func clear() throws(Failure) {
        raiseFloor()
        // Nothing was ever written here: the log needs no new begin.
        guard log.count > 0 else { return resetIndex() }
        let allocated = header[Field.allocated]
        do throws(Failure) { try log.roll(isNewTail: true) } catch {
            // No frame beside the log's own: once nothing points to them, those at the tail are free.
            guard error.status == .full, log.count > 1 else { throw error }
            header.pend(ShardHeader.Pending.clearInPlace)
            defer { header.finish(ShardHeader.Pending.clearInPlace) }
            resetIndex()
            header[Field.ghost] = log.headNumber
            let count = log.count
            while log.count == count { _ = try Cleaner(self).cleanRecord(self) }
            try log.roll(isNewTail: true)
        }
        finishClear()
        // What the new begin took, the log that ended gives back.
        log.giveBack(downTo: allocated)
    }

    /// The head names itself as the log's tail: what is before it is free, and the index knows nothing of it.
    func finishClear() {
        while log.count > 1 { log.releaseTail() }
        log.provenTail = log.headNumber
        resetIndex()
        // (One that was killed in place may have found a frame since.)
        header.finish(ShardHeader.Pending.clear | ShardHeader.Pending.clearInPlace)
    }

    /// An empty table of the smallest size.
    func resetIndex() {
        let table = self.table
        header.release(Field.moves, header[Field.moves] &+ 1)
        for position in table.positions {
            let p = table.bucket(position)
            for i in stride(from: 0, to: Table.bucketSize, by: Slot.size) { p.release(i, 0) }
        }
        header.release(
            Field.shape, TableShape(buckets: Table.leastBuckets, frontier: 0, mode: TableShape.Mode.steady).word)
        header.release(Field.moves, header[Field.moves] &+ 1)
        // A reader that saw a slot before it was cleared must not trust the emptied tags.
        raiseEpoch(by: 2)
        tags.removeAll()
        victims.reset()
        resetSums()
        if header[Field.tablePages] > geometry.shardIndexBytes(buckets: Table.leastBuckets) {
            shrinkPages(Table.leastBuckets)
        }
    }
}
