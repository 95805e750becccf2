import CShalePlatform

/// Room for what is to be appended: evict down to the live limit, clean at a
/// steady pace, and roll to a new segment while enough are left for the cleaner.
extension ShardWriter {
    /// Bytes cleaned for each byte appended, while fewer segments than wanted are free.
    private static let cleanedForEach = 16

    /// As if the disk had room again; if it has not, the next attempt says why.
    private func limitAnew() -> Int {
        header[Field.diskFullCountdown] = 0
        return log.mostLive(of: log.usableFrames, log.pinLoss)
    }

    /// Makes room for a record of `length` bytes at the head; `live` where it will be current, `pins`: what may not be
    /// evicted then.
    @inline(never)
    func makeRoom(_ length: Int, live: Bool, pins: Int = 0) throws(Failure) {
        let needed = pins > 0 ? try admitPin(length, most: pins) : 0
        change.pinning = pins > 0 ? length - change.replaced : 0
        let usable = log.usableFrames
        var pinLoss = log.pinLoss, own = change.replaced, ownBytes = 0
        // (An entry that replaces a pinned one of its length needs nothing.)
        if live, own == 0 || length > own {
            var hasSwept = false
            var limit = log.mostLive(of: usable, pinLoss) + own
            if length > limit {
                limit = limitAnew() + own
                if length > limit { throw engine.pointee.tooLarge(length, most: limit, .shard) }
            }
            while header[Field.live] - ownBytes + length > limit {
                if header[Field.pinnedMost] & 1 != 0, try lookForLongestPin() {
                    pinLoss = log.pinLoss
                    limit = log.mostLive(of: usable, pinLoss) + own
                    continue
                }
                let canEvict = header[Field.pinnedBytes] + length <= limit
                // A manifest's parts go behind the lock, many of them in other shards: evicting more here would empty this
                // one in vain.
                if change.blobCount > 0 { throw log.filled() }
                if canEvict, try evict() { continue }
                if try dropOrphans() { continue }
                // What is pinned and gone is nobody's victim.
                if !canEvict, !hasSwept {
                    hasSwept = true
                    try dropAllGone()
                    (pinLoss, own) = (log.pinLoss, change.replaced)
                    limit = log.mostLive(of: usable, pinLoss) + own
                    continue
                }
                var mayHaveMore = header[Field.diskFullCountdown] > 0
                if !mayHaveMore { mayHaveMore = try shrinkTable() }
                if mayHaveMore {
                    limit = limitAnew() + own
                    continue
                }
                if canEvict { change.crowdedBy = try crowdingPart() }
                if change.crowdedBy == nil, canEvict, ownBytes == 0 {
                    ownBytes = bytesOfOwn()
                    if ownBytes > 0 { continue }
                }
                throw log.filled()
            }
            if !isAdaptive, header[Field.live] + length > limit - limit / 16 {
                sweepVictims()
            }
        }
        let wanted = max(log.wantedFree(of: usable, pinLoss), change.keepsOwn ? reserve + 1 : 0)
        if usable - log.count < wanted {
            // (Here the adaptive policy evicts: the next call has the frames.)
            if isAdaptive, header[Field.pinnedMost] & 1 != 0 { _ = try lookForLongestPin() }
            while change.progress.cleaned < length * ShardWriter.cleanedForEach + log.segmentSize / 256 {
                let cleaned = try clean(isAhead: true)
                if cleaned == 0 { break }
                change.progress.cleaned += cleaned
                try rest()
            }
            if change.keepsOwn { try regainReserve() }
        }
        if !headHas(length, needed) || cleansTail {
            try makeHeadRoom(length, live: live, needed: needed)
        }
    }

    /// Frames that are left to the cleaner: more for a call whose own entry must not make room.
    @inline(never) private var reserve: Int {
        change.keepsOwn ? log.ampleReserve : log.reserve
    }

    /// Where much that is current lies in a row, cleaning gains nothing, and each append takes some of the head that the
    /// cleaner has begun. It would come to evict what it should copy, also the call's own entry, so it goes on until its
    /// frames are free again; twice round the log at most for a call.
    @inline(never)
    private func regainReserve() throws(Failure) {
        if change.hasRegained { return }
        if change.progress.regainsUntil == 0 { change.progress.regainsUntil = log.headNumber + UInt64(log.count) }
        while log.availableFrames < reserve, log.count > 1, log.tailNumber <= change.progress.regainsUntil {
            let tail = log.tailNumber
            while log.count > 1, log.tailNumber == tail {
                if try clean(isAhead: true) == 0 { return }
                try rest()
            }
        }
        if log.availableFrames < reserve { change.hasRegained = true }
    }

    /// Whether the head has room for `length` bytes, and there are `needed` free frames.
    @inline(__always)
    private func headHas(_ length: Int, _ needed: Int) -> Bool { length <= log.headRoom && log.freeFrames >= needed }

    /// Makes both so.
    private func makeHeadRoom(_ length: Int, live: Bool, needed: Int) throws(Failure) {
        // (Another call has begun that segment, or one that was killed.)
        if cleansTail, change.progress.forcedSegment != log.tailNumber {
            do throws(Failure) { try cleanTail() } catch { if error.isPause { throw error } }
        }
        while !headHas(length, needed) || cleansTail {
            let reserve = max(self.reserve, needed)
            if !cleansTail, log.availableFrames > reserve {
                do throws(Failure) {
                    try provideHead(length, reserve)
                    break
                } catch {
                    // On a full disk, what there is has to do; for a process that may not make the file larger, too.
                    guard error.status == .full, header[Field.diskFullCountdown] > 0 || error.isFileLimit else {
                        throw error
                    }
                }
            }
            // Rare: a run of segments with nothing to gain. Clean whole ones, and evict where that is not enough.
            let cleaned = try cleanSegment()
            if headHas(length, needed) { break }
            // With nothing left to evict, a round of the log gains all that can be gained.
            if cleaned == 0 || change.progress.idle > 2 * log.count + 2 {
                // The disk may have room again; if not, the attempt says why.
                header[Field.diskFullCountdown] = 0
                // More is pinned than may be: a power cut has brought it back. What makes it less is not refused.
                let reserve = max(log.reserve, needed)
                guard log.availableFrames > reserve else {
                    guard needed == 0, !live || change.replaced > 0 else {
                        if isAdaptive, header[Field.pinnedBytes] + length <= log.liveLimit {
                            change.crowdedBy = try crowdingPart()
                        }
                        throw log.filled()
                    }
                    if length > log.headRoom { try log.roll(overdraws: true) }
                    break
                }
                do throws(Failure) { try provideHead(length, reserve) } catch {
                    guard error.status == .full, needed == 0, log.count == 1, try emptyTail() else { throw error }
                    // One frame is all there is, and nothing in it counts any more: the log begins there again.
                    log.releaseTail()
                    try log.roll()
                }
                break
            }
        }
    }

    /// Cleans the tail's segment, from one hold to the next; how many bytes that took. From the third on, entries are evicted
    /// first.
    private func cleanSegment() throws(Failure) -> Int {
        if change.progress.forcedSegment == 0 || change.progress.forcedSegment != log.tailNumber {
            change.progress.forced += 1
            change.progress.idle += 1
            (change.progress.forcedSegment, change.progress.forcedBytes) = (log.tailNumber, 0)
            if change.progress.forced > 2 {
                change.progress.forcedAim = max(0, header[Field.live] - log.segmentSize / 4)
            }
        }
        while header[Field.live] > change.progress.forcedAim, try evict() { change.progress.idle = 0 }
        change.progress.forcedAim = .max
        try cleanTail()
        change.progress.forcedSegment = 0
        return change.progress.forcedBytes
    }

    /// Whether the tail's segment is being cleaned because the head has no room. Until that has gained a frame, what is free
    /// belongs to the cleaner, whose copies may have left some of it in the head.
    private var cleansTail: Bool { header[Field.pending] & ShardHeader.Pending.tail != 0 }

    private func cleanTail() throws(Failure) {
        header.pend(ShardHeader.Pending.tail)
        do throws(Failure) {
            // (The cleaner ends it with the segment.)
            while log.count > 1, cleansTail {
                change.progress.forcedBytes += try clean()
                if cleansTail { try rest() }
            }
        } catch {
            if !error.isPause { header.finish(ShardHeader.Pending.tail) }
            throw error
        }
        header.finish(ShardHeader.Pending.tail)
    }

    /// A pace of the sweep for the next victims.
    func sweepVictims() {
        if change.left <= 0 { return }
        spend(victims.sweep(looks: 64 * Table.bucketSlots) { dropIfGone($0, &$1) })
    }

    /// Begins a segment where the head has no room for `length` bytes. What may not be evicted has to be moved,
    /// on a full disk too: where entries are pinned, the cleaner's reserve is there before the log grows.
    private func provideHead(_ length: Int, _ reserve: Int) throws(Failure) {
        let rolls = length > log.headRoom
        if reserve > Log.reserve || header[Field.pinnedBytes] > 0 { try log.provide(rolls ? reserve + 1 : reserve) }
        if rolls { try log.roll() }
    }

    /// What the entry that the call replaces takes of this shard, if it may make room for the call. 0 where it may not.
    @inline(never)
    private func bytesOfOwn() -> Int {
        guard !change.keepsOwn, let key = change.key, let slot = reader.lookup(key), !slot.entry.isPinned else {
            return 0
        }
        let own = reader.measure(slot.entry.location)
        if own.blob.parts == 0 { return own.bytes }
        // (Its parts have much the same lengths, and are spread evenly.)
        let all = own.stored + own.blob.parts * (RecordHeader.size + PartKey.size)
        return own.bytes + all / (own.blob.blob & PartKey.isInOneShard != 0 ? 1 : geometry.shards)
    }

    /// Cleans a record. Where not even the cleaner has room, the rest of the tail's segment leaves without being copied.
    /// `isAhead`: the call has room yet, so what the cleaner lacks does not fail it; and where this process may not make the
    /// file larger, others may.
    func clean(isAhead: Bool = false, mustEvict: Bool = false) throws(Failure) -> Int {
        let cleaner = Cleaner(self, isAhead: isAhead, mustEvict: mustEvict)
        do throws(Failure) { return try cleaner.cleanRecord(self) } catch {
            guard error.status == .full else { throw error }
            if !(isAhead && error.isFileLimit), try emptyTail() { return try cleaner.cleanRecord(self) }
            if isAhead { return 0 }
            throw error
        }
    }

    /// Evicts what is left in the tail's segment, which may be the head's: the only one. False where some of it has to stay.
    /// First it looks, then it evicts, from one hold to the next.
    private func emptyTail() throws(Failure) -> Bool {
        if change.progress.emptiedSegment != log.tailNumber {
            change.progress.emptiedSegment = log.tailNumber
            (change.progress.emptiedOffset, change.progress.isEmptying) = (log.tailOffset, false)
        }
        while try walkTail(evicts: change.progress.isEmptying) {
            if change.progress.isEmptying { return try dropDamaged() }
            change.progress.isEmptying = true
            change.progress.emptiedOffset = log.tailOffset
        }
        return false
    }

    /// False where an entry of it has to stay.
    private func walkTail(evicts: Bool) throws(Failure) -> Bool {
        let frame = log.queued(0)
        var end: Int { log.count == 1 ? log.headOffset : log.segmentSize }
        while change.progress.emptiedOffset < end {
            let from = max(change.progress.emptiedOffset, log.tailOffset)
            let next = log.nextRecord(frame: frame, from: from, reading: Log.mostSkipped)
            spend(0, bytes: next.read)
            guard let record = next.record else {
                change.progress.emptiedOffset = next.end
                try rest()
                continue
            }
            if record.kind == .end { break }
            let fraction = UInt32(truncatingIfNeeded: record.keyHash)
            spend(table.looks(for: fraction), bytes: record.view.header.keyLength)
            // (A value goes with all its parts.)
            if let slot = reader.slot(pointingTo: record.view.location, fraction) {
                if slot.entry.isPinned || keeps(slot) { return false }
                if evicts { evictWhole(slot) }
            }
            change.progress.emptiedOffset = record.end
            try rest()
        }
        return true
    }

    /// Entries of the only segment that cannot be read.
    private func dropDamaged() throws(Failure) -> Bool {
        while log.count == 1, header[Field.used] > 0,
            try walk(
                .damage,
                {
                    drop($0); return true
                })
        {}
        return true
    }

    /// Where nothing is left to evict: cleans, once round at most, until a larger table fits beside the log. False
    /// where it never will.
    @inline(never)
    func growTableByCleaning() throws(Failure) -> Bool {
        let wanted = geometry.shardIndexBytes(buckets: TableShape.grown(table.shape.buckets))
        let least = (header[Field.live] + log.segmentRoom - 1) / log.segmentRoom + 1 + log.reserve
        guard table.shape.mode == TableShape.Mode.steady, least * log.segmentSize + wanted <= geometry.shardBudget
        else { return false }
        // (Other calls may clean some of them meanwhile.)
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

    /// Room for one more entry below a limit of entries: cleans until one has left, or until so many records were looked
    /// at that somebody else has to choose.
    func makeEntryRoom() throws(Failure) {
        while header[Field.entries] >= geometry.entriesPerShard,
            change.progress.cleanedForEntry < SecondChance.patience
        {
            change.progress.cleanedForEntry += 1
            if try clean(isAhead: true, mustEvict: true) == 0 { break }
            try rest()
        }
    }
}
