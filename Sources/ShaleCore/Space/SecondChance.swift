import CShalePlatform

/// The CLOCK policy, with the log as its queue. An entry that reaches the tail and was used since it was written or
/// last kept gets a second chance: it is copied to the head with one use less. An unused entry is evicted. An entry has
/// at most three chances.
///
/// It needs no heap, no sweep and no limit on live bytes: the cleaner evicts at its own position, and a hit only
/// increments a counter, up to three, in a word that it has read anyway.
///
/// If overwrites and removals leave a tenth of the log dead, unused entries are copied as well: that is cleaning, and
/// no reason to evict.
struct SecondChance: ShardParts {
    /// Entries examined for one victim, at most, away from the tail.
    static let patience = 64

    let log: Log
    /// Whether unused entries are evicted even if the log is sparse.
    private let mustEvict: Bool

    @inline(__always) init(_ shard: borrowing ShardWriter, mustEvict: Bool = false) {
        log = shard.log
        self.mustEvict = mustEvict
    }

    // MARK: At the tail

    /// The fate of an entry or part that the cleaner has reached; LRU keeps all. `forcedOut`: evicted despite its uses,
    /// as its copy would take the last frame, which is for entries that have to stay.
    enum Choice { case stays, leaves, forcedOut }

    /// Evaluates an entry; if its uses keep it, takes one.
    @inline(__always)
    func evaluate(_ slot: Slot, _ length: Int, _ shard: borrowing ShardWriter) -> Choice {
        shard.isClock ? evaluateEntry(slot, length, shard) : .stays
    }
    @inline(never)
    private func evaluateEntry(_ slot: Slot, _ length: Int, _ shard: borrowing ShardWriter) -> Choice {
        if slot.entry.isPinned || shard.isOwn(slot) { return .stays }
        if isTight(length, isAmple: shard.change.keepsOwn) { return .forcedOut }
        return !mustEvict && log.isSparse || takeUse(slot) > 0 ? .stays : .leaves
    }

    /// Evaluates a part by the uses of its manifest, which are taken only when the manifest itself reaches the tail.
    @inline(never)
    func evaluatePart(_ slot: Slot, _ key: PartKey, _ length: Int, _ shard: borrowing ShardWriter) -> Choice {
        guard shard.isClock else { return .stays }
        if slot.entry.isPinned || key.owner == shard.change.key?.hash { return .stays }
        if isTight(length, isAmple: shard.change.keepsOwn) { return .forcedOut }
        // (A part's owner is evicted after the lock is released, and only `mostBlobs` at once.)
        if !mustEvict && log.isSparse || shard.change.blobCount == Change.mostBlobs { return .stays }
        return uses(ofOwner: key) > 0 ? .stays : .leaves
    }

    /// (Below LRU's live limit, cleaning gains space even if it copies all.)
    private func isTight(_ length: Int, isAmple: Bool) -> Bool {
        length > log.headRoom && log.availableFrames < (isAmple ? log.ampleReserve : Log.reserve)
            && header[Field.live] > log.liveLimit
    }

    /// Takes one use; returns how many there were.
    private func takeUse(_ slot: Slot) -> UInt64 {
        while true {
            let word1 = slot.acquiredUse, hits = word1.hits
            if hits == 0 || slot.replace(word1, with: word1.withOneHitLess) { return hits }
        }
    }

    /// Returns the uses of a part's value. Reads another shard without its lock; in doubt, the maximum.
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

    /// Chooses a victim when nothing may be copied: for a full table, a smaller capacity, or live bytes that no log
    /// holds. A hand moves round the log, takes a use of each entry, and stops at the first without uses; if it finds
    /// none soon, at the one with the fewest. Nil if no entry may be evicted.
    func next(_ shard: borrowing ShardWriter) throws(Failure) -> Slot? {
        if log.count == 0 { return nil }
        var seen = 0, fewest = UInt64.max, best: Slot?
        var (i, offset) = hand, hasMoved = false
        // (Once round, and the rest of the segment where it began, from one hold to the next.)
        while shard.change.progress.handSegments <= log.count, seen < SecondChance.patience {
            // (With a candidate, it looks a while for a better one.)
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
                !slot.entry.isPinned, !shard.isOwn(slot), !shard.unlinkIfDead(slot)
            else { continue }
            seen += 1
            let uses = takeUse(slot)
            if uses < fewest { (fewest, best) = (uses, slot) }
            if uses == 0 { break }
        }
        #if SHALE_FAULTS
        // (Meanwhile others may have used or cleaned the entries that it had passed.)
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

    /// The hand's segment, counted from the tail, and offset; the tail if that segment was freed.
    private var hand: (Int, Int) {
        let number = header[Field.handNumber], offset = header[Field.handOffset]
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
