import CShalePlatform

extension ShardWriter {
    func clear() throws(Failure) {
        raiseFloor()
        // An empty log needs no new start.
        guard log.count > 0 else { return resetIndex() }
        let allocated = header[Field.allocated]
        do throws(Failure) { try log.roll(isNewTail: true) } catch {
            // The log holds every frame: without references, the frames at its tail are free.
            guard error.status == .full, log.count > 1 else { throw error }
            header.pend(ShardHeader.Pending.clearInPlace)
            defer { header.finish(ShardHeader.Pending.clearInPlace) }
            resetIndex()
            header[Field.residual] = log.headNumber
            let count = log.count
            while log.count == count { _ = try Cleaner(self).cleanRecord(self) }
            try log.roll(isNewTail: true)
        }
        finishClear()
        // The log that ended gives back what the new segment took.
        log.giveBack(downTo: allocated)
    }

    /// Ends a clear whose head names itself as the log's tail.
    func finishClear() {
        while log.count > 1 { log.releaseTail() }
        log.provenTail = log.headNumber
        resetIndex()
        // (A clear killed in place may have found a frame since.)
        header.finish(ShardHeader.Pending.clear | ShardHeader.Pending.clearInPlace)
    }

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
