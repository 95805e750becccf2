import CShalePlatform

extension ShardReader {
    /// Whether a smaller capacity can hold the pinned entries beside the smallest table for them, and a log: head,
    /// tail, the cleaner's reserve, and one segment for kept entries. (The fixed part of the index is as large as the
    /// largest capacity ever made it.)
    var canShrink: Bool {
        let slots = header[Field.pinned] * 64 / TableLoad.shrunk
        let index = geometry.shardIndexBytes(buckets: max(Table.leastBuckets, slots / 4))
        let frames = log.budgetedFrames(beside: index)
        return frames >= Log.reserve + 3 && log.pinsFit(in: frames)
    }

    func cannotLowerLimit() -> Failure {
        log.noSpace("more entries are pinned than that; unpin or remove some, or choose a larger max_entries")
    }

    func cannotShrink() -> Failure {
        log.noSpace(
            """
            the cache cannot shrink that far, as pinned entries or its index need more; unpin or remove some, or \
            choose a larger capacity
            """
        )
    }
}

extension ShardWriter {
    /// Evicts until the shard fits a smaller capacity or entry limit, or parts in other shards have to be cleared
    /// first. Returns whether it fits.
    @inline(never)
    func evictToBudget() throws(Failure) -> Bool {
        header[Field.diskFullCountdown] = 0
        let limit = geometry.entriesPerShard
        while limit > 0, header[Field.entries] > limit, change.blobCount < Change.mostBlobs, try evict() {}
        while header[Field.live] > log.liveLimit, change.blobCount < Change.mostBlobs {
            // (A table larger than its entries need would take space from some of them.)
            if try shrinkTable(downTo: geometry.shardBudget / 8) { continue }
            if try evict() { continue }
            if try unlinkOrphans() { continue }
            guard let part = try crowdingPart() else { break }
            change.crowdedBy = part
            throw log.filled()
        }
        return change.blobCount == 0
    }

    /// Cleans and gives space back until the shard fits. `budget`: bytes that may be on disk meanwhile.
    @inline(never)
    func applyBudget(from budget: Int) throws(Failure) {
        // The table first: each byte that it gives back, the segments may keep.
        _ = try shrinkTable(downTo: geometry.shardBudget / 8)
        try shrinkTableForPins()
        var rounds = 0
        var isOver: Bool { header[Field.allocated] * log.segmentSize + header[Field.tablePages] > geometry.shardBudget }
        // (The log may fill all that is left, and the cleaner needs its reserve.)
        log.trim()
        while isOver || log.availableFrames < log.reserve {
            if (header[Field.allocated] + 1) * log.segmentSize + header[Field.tablePages] <= budget {
                do throws(Failure) { try log.provide(min(Log.reserve, log.freeFrames + 1)) } catch {
                    // On a full disk the existing frames have to do: the tail's segment is evicted.
                    guard error.isDiskFull || error.isFileLimit else { throw error }
                }
            }
            rounds += 1
            let aim =
                rounds > 2 * geometry.framesPerShard ? max(0, header[Field.live] - log.segmentSize) : header[Field.live]
            while header[Field.live] > min(aim, log.liveLimit), try evict() {}
            let tail = log.count > 0 ? log.queued(0) : 0
            var cleaned = 0
            while log.count > 1, log.queued(0) == tail {
                let step = try clean()
                if step == 0 { break }
                cleaned += step
            }
            if cleaned == 0 || rounds > 8 * geometry.framesPerShard {
                if isOver { throw reader.cannotShrink() }
                break
            }
            log.trim()
        }
    }

    /// Shrinks a table that leaves hardly any room beside the pinned entries, and evicts others for that. Pinned
    /// entries were admitted beside a table at its maximum load.
    @inline(never) func shrinkTableForPins() throws(Failure) {
        if !log.pinsFit(in: log.budgetedFrames) { _ = try shrinkTable() }
        var isCrowded: Bool {
            header[Field.pinnedBytes] > log.liveLimit(of: log.budgetedFrames, log.pinWaste) / 16 * 15
        }
        while isCrowded, try !shrinkTable(fullest: TableLoad.full + 1) {
            let aim = header[Field.used] - max(1, table.shape.buckets / 8)
            while header[Field.used] > aim, try evict() {}
            if header[Field.used] > aim { break }
        }
    }
}
