import CShalePlatform

/// The adaptive policy: the log is the queue. What comes to its tail and was used since it was written, or since it was
/// last kept, gets a second chance: it is copied to the head with one use less. What was not used leaves. That is CLOCK,
/// with the log for the clock's face and up to three chances.
///
/// No heap, no sweep, and no limit to what is live: the cleaner evicts where it is, and a hit only counts, up to three,
/// in a word that it has read anyway.
///
/// Where overwrites and removals leave holes, what was not used is copied as well, as long as a tenth of the log is dead:
/// that is cleaning, and no reason to evict.
struct SecondChance: ShardParts {
    /// Entries that are looked at for one victim, at most, and that far from the tail.
    static let patience = 64

    let log: Log
    /// Nobody is kept because the log is sparse.
    private let mustEvict: Bool

    @inline(__always) init(_ shard: borrowing ShardWriter, mustEvict: Bool = false) {
        log = shard.log
        self.mustEvict = mustEvict
    }

    // MARK: At the tail

    /// What becomes of an entry, or of a part, that the cleaner has come to; with LRU it stays. `forcedOut`: whatever its
    /// uses, as its copy would take the last frame, which is for what has to stay.
    enum Choice { case stays, leaves, forcedOut }

    /// If an entry's uses are why it stays, that takes one of them.
    @inline(__always)
    func judge(_ slot: Slot, _ length: Int, _ shard: borrowing ShardWriter) -> Choice {
        shard.isAdaptive ? judgeEntry(slot, length, shard) : .stays
    }
    @inline(never)
    private func judgeEntry(_ slot: Slot, _ length: Int, _ shard: borrowing ShardWriter) -> Choice {
        if slot.entry.isPinned || shard.isOwn(slot) { return .stays }
        if isTight(length, isAmple: shard.change.keepsOwn) { return .forcedOut }
        return !mustEvict && log.isSparse || takeUse(slot) > 0 ? .stays : .leaves
    }

    /// Of a large value's part: it goes by the uses of its manifest, which takes them where it is itself.
    @inline(never)
    func judgePart(_ slot: Slot, _ key: PartKey, _ length: Int, _ shard: borrowing ShardWriter) -> Choice {
        guard shard.isAdaptive else { return .stays }
        if slot.entry.isPinned || key.owner == shard.change.key?.hash { return .stays }
        if isTight(length, isAmple: shard.change.keepsOwn) { return .forcedOut }
        // (The owner of a part is evicted after the lock, and only so many at once.)
        if !mustEvict && log.isSparse || shard.change.blobCount == Change.mostBlobs { return .stays }
        return uses(ofOwner: key) > 0 ? .stays : .leaves
    }

    /// (Below LRU's live limit, cleaning gains whatever it copies.)
    private func isTight(_ length: Int, isAmple: Bool) -> Bool {
        length > log.headRoom && log.availableFrames < (isAmple ? log.ampleReserve : Log.reserve)
            && header[Field.live] > log.liveLimit
    }

    /// How many uses an entry had left, before this took one.
    private func takeUse(_ slot: Slot) -> UInt64 {
        while true {
            let word1 = slot.acquiredUse, hits = word1.hits
            if hits == 0 || slot.replace(word1, with: word1.withOneHitLess) { return hits }
        }
    }

    /// Of the value that a part belongs to. Reads another shard without its lock; in doubt, it is used.
    private func uses(ofOwner key: PartKey) -> UInt64 {
        let owner = Shard(engine, keyHash: key.owner).reader
        var uses = SlotUse.mostHits
        owner.table.probe(UInt32(truncatingIfNeeded: key.owner)) { slot, word0 in
            guard owner.manifest(at: word0.location)?.blob == key.blob, slot.acquiredEntry == word0 else {
                return false
            }
            uses = slot.acquiredUse.hits
            return true
        }
        return uses
    }

    // MARK: Away from the tail

    /// Who leaves where nothing may be copied: a full table, a smaller capacity, live bytes that no log holds. A hand goes
    /// round the log, takes a use of each entry that it passes, and stops at one that has none; if it meets none soon, at
    /// that with the fewest. Nil where it meets no entry that may leave.
    func next(_ shard: borrowing ShardWriter) throws(Failure) -> Slot? {
        if log.count == 0 { return nil }
        var seen = 0, fewest = UInt64.max, best: Slot?
        var (i, offset) = hand, hasMoved = false
        // (Once round, and the rest of where it began, from one hold to the next.)
        while shard.change.progress.handSegments <= log.count, seen < SecondChance.patience {
            // (With a candidate, it goes on for a while to find a better one.)
            if hasMoved, shard.change.left <= (best == nil ? 0 : -Share.ofHold / 4) {
                if best != nil {
                    #if SHALE_FAULTS
                    shim_tell(SHIM_FORCED, nil)
                    #endif
                    break
                }
                setHand(i, offset)
                try shard.rest()
            }
            hasMoved = true
            let frame = log.queued(i), isHead = i == log.count - 1
            let end = isHead ? log.headOffset : log.segmentSize
            let next = offset < end ? log.nextRecord(frame: frame, from: offset, reading: Log.mostSkipped) : nil
            if let next {
                shard.spend(0, bytes: next.read)
                if next.record == nil, next.end < end {
                    offset = next.end
                    continue
                }
            }
            guard let record = next?.record, record.offset < end, record.kind != .end else {
                i = isHead ? 0 : i + 1
                offset = i == 0 ? log.tailOffset : SegmentHeader.size
                shard.change.progress.handSegments += 1
                continue
            }
            shard.spend(
                table.looks(for: UInt32(truncatingIfNeeded: record.keyHash)), bytes: record.view.header.keyLength)
            offset = record.end
            guard record.kind == .value || record.kind == .manifest,
                let slot = reader.slot(pointingTo: record.view.location, UInt32(truncatingIfNeeded: record.keyHash)),
                !slot.entry.isPinned, !shard.isOwn(slot), !shard.dropIfGone(slot)
            else { continue }
            seen += 1
            let uses = takeUse(slot)
            if uses < fewest { (fewest, best) = (uses, slot) }
            if uses == 0 { break }
        }
        #if SHALE_FAULTS
        // (Meanwhile others may have used or cleaned what it had passed.)
        if fewest > 0, shard.change.pauses > 0 { shim_tell(SHIM_FORCED, nil) }
        #endif
        setHand(i, offset)
        if best != nil || !shard.change.hasShare { shard.change.progress.handSegments = 0 }
        return best
    }

    private func setHand(_ i: Int, _ offset: Int) {
        header[Field.handNumber] = log.numberWord(log.queued(i)).u64(0)
        header[Field.handOffset] = offset
    }

    /// The hand's segment, counted from the tail, and its offset there; the tail where that segment has gone.
    private var hand: (Int, Int) {
        let number = header[Field.handNumber], offset = header[Field.handOffset]
        // (Numbers rise from the tail to the head.)
        var low = 0, high = log.count
        while low < high {
            let middle = (low + high) / 2
            if log.numberWord(log.queued(middle)).u64(0) < number { low = middle + 1 } else { high = middle }
        }
        guard low < log.count, log.numberWord(log.queued(low)).u64(0) == number, log.isOffset(offset),
            low > 0 || offset >= log.tailOffset
        else { return (0, log.tailOffset) }
        return (low, offset)
    }
}
