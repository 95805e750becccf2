import CShalePlatform

/// A larger table where pinned entries leave no other slots.
extension ShardWriter {
    /// Provides a slot for an entry to be pinned, and one in eight for others. Throws `full` if the table cannot grow
    /// at once: a pin that was admitted for the sake of a larger table would take the slots of ordinary entries.
    @inline(never)
    func provideSlotForPin() throws(Failure) {
        if try hasSlotForPin() { return }
        try unlinkAllDead()
        guard try hasSlotForPin() else { throw log.indexFilled() }
    }

    private func hasSlotForPin() throws(Failure) -> Bool {
        var isRoomy: Bool {
            let shape = table.shape, wanted = slotsWanted(header[Field.pinned] + 1)
            return wanted * 64 <= (shape.isGrowing ? shape.nextBuckets : leastBuckets) * 4 * TableLoad.grow
        }
        if isRoomy { return true }
        // (An entry already pinned has its slot.)
        if let slot = change.key.flatMap({ reader.lookup($0) }), slot.entry.isPinned { return true }
        while !isRoomy {
            if table.shape.mode != TableShape.Mode.steady {
                try finishPass()
            } else if !growTable(table.shape) {
                let end = Table.bytes(of: TableShape.grown(table.shape.buckets))
                if header[Field.diskFullCountdown] > 0, change.triesDisk(ofShard: number) {
                    header[Field.diskFullCountdown] = 0
                } else if !pinsFitBeside(end) {
                    return false
                } else if !hasRoomBeside(end) {
                    guard try evict() else { return false }
                } else if try !growTableByCleaning() {
                    return false
                }
            }
        }
        return true
    }

    /// Evicts a few entries if pinned ones will soon need a larger table, at the expense of the log.
    @inline(never)
    func evictForLargerTable() throws(Failure) {
        let shape = table.shape
        let end = Table.bytes(of: TableShape.grown(shape.buckets))
        guard shape.mode == TableShape.Mode.steady, !change.progress.hasEvictedForTable,
            slotsWanted(header[Field.pinned] + 1) * 64 > shape.buckets * 4 * TableLoad.prepare, pinsFitBeside(end)
        else { return }
        change.progress.hasEvictedForTable = true
        for _ in 0..<TableLoad.evictedForPin where !hasRoomBeside(end) {
            guard try evict() else { return }
        }
    }

    /// Cleans, with nothing left to evict, at most once round the log until a larger table fits. Returns false if it
    /// never does.
    @inline(never)
    func growTableByCleaning() throws(Failure) -> Bool {
        let wanted = geometry.shardIndexBytes(buckets: TableShape.grown(table.shape.buckets))
        let least = (header[Field.live] + log.segmentRoom - 1) / log.segmentRoom + 1 + log.reserve
        guard table.shape.mode == TableShape.Mode.steady, least * log.segmentSize + wanted <= geometry.shardBudget
        else { return false }
        if change.progress.growsUntil == 0 { change.progress.growsUntil = log.headNumber }
        while log.count > 1, log.tailNumber <= change.progress.growsUntil {
            let tail = log.tailNumber
            do throws(Failure) { if try clean() == 0 { return false } } catch {
                if error.isPause { throw error }
                return false
            }
            if log.tailNumber != tail, growTable(table.shape) { return true }
            try rest()
        }
        return false
    }
}
