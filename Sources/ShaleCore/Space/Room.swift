import CShalePlatform

/// Makes room for a record to append: evicts down to the live limit, cleans at a steady pace, and rolls to a new
/// segment while enough segments are left for the cleaner.
extension ShardWriter {
    /// Bytes cleaned for each byte appended while fewer segments than wanted are free.
    private static let cleanedForEach = 16

    /// Returns the limit as if the disk had room; if not, the next attempt reports it.
    private func retriedLimit() -> Int {
        header[Field.diskFullCountdown] = 0
        return log.mostLive(of: log.usableFrames, log.pinWaste)
    }

    /// Makes room for a record at the head. `live`: the index will reference it. `pins`: the length of the entry if it
    /// is then pinned, else 0.
    @inline(never)
    func makeRoom(_ length: Int, live: Bool, pins: Int = 0) throws(Failure) {
        change.pinning = pins > 0 ? length - change.replaced : 0
        let needed = pins > 0 ? try admitPin(length, most: pins) : 0
        let usable = log.usableFrames
        var pinWaste = log.pinWaste, own = change.replaced, ownBytes = 0
        // (An entry that replaces a pinned one of its length needs no more room.)
        if live, own == 0 || length > own {
            var hasSwept = false
            var limit = log.mostLive(of: usable, pinWaste) + own
            if length > limit {
                limit = retriedLimit() + own
                if length > limit { throw engine.pointee.tooLarge(length, most: limit, .shard) }
            }
            while header[Field.live] - ownBytes + length > limit {
                if header[Field.pinnedMost] & 1 != 0, try lookForLongestPin() {
                    pinWaste = log.pinWaste
                    limit = log.mostLive(of: usable, pinWaste) + own
                    continue
                }
                let canEvict = header[Field.pinnedBytes] + length <= limit
                // A manifest's parts are unlinked after the lock is released, many in other shards: more evictions here
                // would empty this one in vain.
                if change.blobCount > 0 { throw log.filled() }
                if canEvict, try evict() { continue }
                if try unlinkOrphans() { continue }
                // Expired pinned entries are never evicted.
                if !canEvict, !hasSwept {
                    hasSwept = true
                    try unlinkAllDead()
                    (pinWaste, own) = (log.pinWaste, change.replaced)
                    limit = log.mostLive(of: usable, pinWaste) + own
                    continue
                }
                var mayHaveMore = header[Field.diskFullCountdown] > 0
                if !mayHaveMore { mayHaveMore = try shrinkTable() }
                if mayHaveMore {
                    limit = retriedLimit() + own
                    continue
                }
                if canEvict { change.crowdedBy = try crowdingPart() }
                if change.crowdedBy == nil, canEvict, ownBytes == 0 {
                    ownBytes = bytesOfOwn()
                    if ownBytes > 0 { continue }
                }
                throw log.filled()
            }
            if !isClock, header[Field.live] + length > limit - limit / 16 {
                sweepVictims()
            }
        }
        let wanted = max(log.wantedFree(of: usable, pinWaste), change.keepsOwn ? reserve + 1 : 0)
        if usable - log.count < wanted {
            // (With CLOCK, this cleaning evicts: the next call has the frames.)
            if isClock, header[Field.pinnedMost] & 1 != 0 { _ = try lookForLongestPin() }
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

    /// Frames left to the cleaner: more if the call's own entry must not be evicted.
    @inline(never) private var reserve: Int {
        change.keepsOwn ? log.ampleReserve : log.reserve
    }

    /// Cleans until the cleaner's frames are free again, at most twice round the log per call. In a long run of live
    /// records cleaning gains nothing, while appends fill the head that the cleaner has begun; it would end up evicting
    /// entries that it should copy, even the call's own.
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

    @inline(__always)
    private func headHas(_ length: Int, _ needed: Int) -> Bool { length <= log.headRoom && log.freeFrames >= needed }

    private func makeHeadRoom(_ length: Int, live: Bool, needed: Int) throws(Failure) {
        // (Another call, maybe a killed one, began with it.)
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
                    // On a full disk, or in a process that may not enlarge the file, the existing segments have to do.
                    guard error.status == .full, header[Field.diskFullCountdown] > 0 || error.isFileLimit else {
                        throw error
                    }
                }
            }
            // Rare: a run of segments with nothing to gain. Clean whole ones, and evict if that is not enough.
            let cleaned = try cleanSegment()
            if headHas(length, needed) { break }
            // With nothing left to evict, one round gains all there is.
            if cleaned == 0 || change.progress.idle > 2 * log.count + 2 {
                // The disk may have room again; if not, the attempt reports it.
                header[Field.diskFullCountdown] = 0
                // After a power failure more may be pinned than allowed. Changes that reduce it are not refused.
                let reserve = max(log.reserve, needed)
                guard log.availableFrames > reserve else {
                    guard needed == 0, !live || change.replaced > 0 else {
                        if isClock, header[Field.pinnedBytes] + length <= log.liveLimit {
                            change.crowdedBy = try crowdingPart()
                        }
                        throw log.filled()
                    }
                    if length > log.headRoom { try log.roll(overdraws: true) }
                    break
                }
                do throws(Failure) { try provideHead(length, reserve) } catch {
                    guard error.status == .full, needed == 0, log.count == 1, try emptyTail() else { throw error }
                    // The only frame holds no entry any more: the log starts there again.
                    log.releaseTail()
                    try log.roll()
                }
                break
            }
        }
    }

    /// Cleans the tail's segment, over several holds; from the third segment on, evicts first. Returns the bytes
    /// cleaned.
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

    /// Whether the tail's segment is being cleaned because the head has no room. Until that gains a frame, the free
    /// room belongs to the cleaner, whose copies may have left some in the head.
    private var cleansTail: Bool { header[Field.pending] & ShardHeader.Pending.tail != 0 }

    private func cleanTail() throws(Failure) {
        header.pend(ShardHeader.Pending.tail)
        do throws(Failure) {
            // (The cleaner clears the flag at the segment's end.)
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

    /// Sweeps a few buckets for the next victims.
    func sweepVictims() {
        if change.left <= 0 { return }
        spend(victims.sweep(looks: 64 * Table.bucketSlots) { unlinkIfDead($0, &$1) })
    }

    /// Begins a segment if the head has no room. Entries that may not be evicted have to be moved, on a full disk too:
    /// with pinned entries, provides the cleaner's reserve before the log grows.
    private func provideHead(_ length: Int, _ reserve: Int) throws(Failure) {
        let rolls = length > log.headRoom
        if reserve > Log.reserve || header[Field.pinnedBytes] > 0 { try log.provide(rolls ? reserve + 1 : reserve) }
        if rolls { try log.roll() }
    }

    /// Returns the bytes in this shard of the entry that the call replaces and may evict; 0 if it may not.
    @inline(never)
    private func bytesOfOwn() -> Int {
        guard !change.keepsOwn, let key = change.key, let slot = reader.lookup(key), !slot.entry.isPinned else {
            return 0
        }
        let own = reader.measure(slot.entry.location)
        if own.blob.parts == 0 { return own.bytes }
        // (Its parts have about the same length and are spread evenly.)
        let all = own.stored + own.blob.parts * (RecordHeader.size + PartKey.size)
        return own.bytes + all / (own.blob.blob & PartKey.isInOneShard != 0 ? 1 : geometry.shards)
    }

    /// Cleans a record. If the cleaner has no room, evicts the rest of the tail's segment. With `isAhead` the call
    /// still has room, so that is no failure; and if this process may not enlarge the file, others may.
    func clean(isAhead: Bool = false, mustEvict: Bool = false) throws(Failure) -> Int {
        let cleaner = Cleaner(self, isAhead: isAhead, mustEvict: mustEvict)
        do throws(Failure) { return try cleaner.cleanRecord(self) } catch {
            guard error.status == .full else { throw error }
            if !(isAhead && error.isFileLimit), try emptyTail() { return try cleaner.cleanRecord(self) }
            if isAhead { return 0 }
            throw error
        }
    }

    /// Evicts the rest of the tail's segment, which may be the head's if it is the only one. First checks it, then
    /// evicts, over several holds. Returns false if an entry has to stay.
    private func emptyTail() throws(Failure) -> Bool {
        if change.progress.emptiedSegment != log.tailNumber {
            change.progress.emptiedSegment = log.tailNumber
            (change.progress.emptiedOffset, change.progress.isEmptying) = (log.tailOffset, false)
        }
        while try walkTail(evicts: change.progress.isEmptying) {
            if change.progress.isEmptying { return try unlinkDamagedEntry() }
            change.progress.isEmptying = true
            change.progress.emptiedOffset = log.tailOffset
        }
        return false
    }

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
            let hashBits = UInt32(truncatingIfNeeded: record.keyHash)
            spend(table.looks(for: hashBits), bytes: record.view.header.keyLength)
            if let slot = reader.slot(pointingTo: record.view.location, hashBits) {
                if slot.entry.isPinned || keeps(slot) { return false }
                if evicts { evictWhole(slot) }
            }
            change.progress.emptiedOffset = record.end
            try rest()
        }
        return true
    }

    private func unlinkDamagedEntry() throws(Failure) -> Bool {
        while log.count == 1, header[Field.used] > 0,
            try walk(
                .damage,
                {
                    unlink($0); return true
                })
        {}
        return true
    }

    /// Cleans until an entry has left, or until `SecondChance.patience` records were examined and `evict` has to
    /// choose.
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
