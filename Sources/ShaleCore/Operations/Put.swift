import CShalePlatform

public enum Condition: Sendable {
    case always, ifAbsent, ifPresent, ifVersion(UInt64)
    /// The key and the value's tags are unchanged since the token was drawn.
    case ifUnchanged(since: UInt64)
}

enum PutOutcome { case done, conflict, dictionaryRetired }

extension ShardWriter {
    /// `tagged`: the tags of the value to set.
    @inline(__always)
    private func mayHappen(
        _ condition: Condition, _ key: Key, _ tagged: UnsafePointer<UInt64>?, _ tagCount: Int, now: UInt64,
        _ refused: inout FenceTable.Refusal?
    ) throws(Failure) -> Bool {
        if case .always = condition { return true }
        if case .ifUnchanged(let token) = condition {
            refused = refusal(key, since: token, tagged, tagCount)
            return refused == nil
        }
        // (A large value that lacks a part is a miss to every reader.)
        var existing = reader.entry(key, now: now)
        if let found = existing, try !isWhole(found.value.location, key) { existing = nil }
        return switch condition {
        case .always, .ifUnchanged: true
        case .ifAbsent: existing.map { !$0.isFresh } ?? true
        case .ifPresent: existing.map { $0.isFresh } ?? false
        case .ifVersion(let version): existing.map { !$0.isDead && $0.value.header.lsn == version } ?? false
        }
    }

    /// Whether a conditional set of a large value may begin. Marks the entry as used, so that it is evicted last.
    func mayReplace(
        _ key: Key, _ condition: Condition, _ tagged: UnsafePointer<UInt64>?, _ tagCount: Int, now: UInt64
    ) throws(Failure) -> Bool {
        var refused: FenceTable.Refusal?
        guard try mayHappen(condition, key, tagged, tagCount, now: now, &refused) else {
            if let refused { count(refused) }
            return false
        }
        guard let slot = reader.lookup(key) else { return true }
        while true {
            let word1 = slot.use
            if slot.replace(word1, with: word1.used(stamp: reader.nextStamp())) { return true }
        }
    }

    /// Stores a value, manifest or part. Returns `conflict` if the condition does not hold.
    @inline(never)
    func put(_ draft: inout Draft, _ key: Key, condition: Condition) throws(Failure)
        -> PutOutcome
    {
        let isPart = draft.record.isKind(.part)
        var refused: FenceTable.Refusal?
        if try !mayHappen(condition, key, draft.tags, draft.record.tagCount, now: change.now, &refused) {
            if change.ownIsDead { throw log.filled() }
            if let refused { count(refused) }
            return .conflict
        }
        if draft.record.codec == RecordHeader.Codec.dictionary,
            !engine.pointee.dictionaries.frames.mayUse(draft.record.dictionary)
        {
            return .dictionaryRetired
        }
        let before = (log.headNumber, log.headOffset)
        let tableHasRoom = try maintainTable(for: draft.record.length)
        change.replaced =
            header[Field.pinnedBytes] == 0 || isPart
            ? 0 : reader.lookup(key).map { reader.measure($0.entry.location).pinned } ?? 0
        change.pinning = draft.record.isPinned ? draft.record.length - change.replaced : 0
        if header[Field.pinnedBytes] > 0 { try evictForLargerTable() }
        if draft.record.isPinned { try provideSlotForPin() }
        if isClock, !isPart, geometry.entriesPerShard > 0, header[Field.entries] >= geometry.entriesPerShard,
            reader.lookup(key) == nil
        {
            try makeEntryRoom()
        }
        try makeRoom(
            draft.record.length, live: true, pins: draft.record.isPinned ? draft.record.length : 0)
        let found = reader.lookup(key, isPart: isPart)
        // (Making a slot keeps the room at the head: it evicts, or makes room again.)
        let slot =
            if let found {
                found
            } else {
                // (If the call's own entry was evicted, its slot is free; other evictions freed slots too.)
                try makeSlot(
                    for: draft.record, key,
                    tableHasRoom: tableHasRoom || change.ownIsDead || maintainTable())
            }
        header.begin()
        if !isPart { header[Field.sets] += 1 }
        let location = log.append(&draft, lsn: reader.drawLSN())
        // Half a segment ahead, to be ready in time; and a shard that is hardly used takes only one.
        if log.headOffset >= log.segmentSize / 2, before.1 < log.segmentSize / 2 || before.0 != log.headNumber {
            change.wantsFrame = true
        }
        publish(&draft, at: location, in: slot, isNew: found == nil)
        return .done
    }

    private func evictOne() throws(Failure) -> Bool {
        if try evict() { return true }
        return try unlinkOrphans()
    }

    private func reserveSlot(_ key: Key) throws(Failure) -> Slot {
        while true {
            let searches = change.progress.searches, isSteady = table.shape.mode == TableShape.Mode.steady
            if searches <= Table.mostSearches || isSteady {
                let farthest = Table.farthestForSet * (1 + min(searches, Table.mostSearches))
                if let slot = table.reserve(key.hashBits, within: farthest) { return slot }
                spend(farthest * Table.bucketSlots)
            }
            // Rare, unless many keys were removed in the table's order.
            if searches < Table.mostSearches || searches == Table.mostSearches && !isSteady {
                change.progress.searches = searches + 1
                // (That takes a hold of its own.)
                if change.hasShare { change.left = 0 }
                try rest()
                continue
            }
            // One of some ten million sets: a larger table spreads the neighbourhood, or an entry near the home leaves.
            // (Elsewhere, it would take hundreds of evictions.)
            if !isSteady {
                try finishPass()
            } else if change.progress.growths < 6, growTable(table.shape) {
                change.progress.growths += 1
            } else if let slot = leastUsed(near: key) {
                evictWhole(slot)
            } else {
                throw log.indexFilled()
            }
        }
    }

    /// Returns a slot for a new key. If dead records leave no room for a larger table, cleans the log and makes room
    /// again.
    private func makeSlot(for record: RecordHeader, _ key: Key, tableHasRoom: Bool)
        throws(Failure) -> Slot
    {
        let isPart = record.isKind(.part)
        do throws(Failure) { return try makeSlot(key, tableHasRoom: tableHasRoom, isPart: isPart) } catch {
            guard !error.isPause, !tableHasRoom, try growTableByCleaning() else { throw error }
            change.crowdedBy = nil
            try makeRoom(record.length, live: true, pins: record.isPinned ? record.length : 0)
            return try makeSlot(key, tableHasRoom: maintainTable(), isPart: isPart)
        }
    }

    /// Returns a slot for a new key, after making room below the entry limit and in the table.
    @inline(never)
    private func makeSlot(_ key: Key, tableHasRoom: Bool, isPart: Bool) throws(Failure)
        -> Slot
    {
        let limit = geometry.entriesPerShard
        if !isPart, limit > 0 {
            // Sweep early, so that the first victim does not wait for a whole sweep.
            if !isClock, header[Field.entries] + limit / 32 >= limit {
                sweepVictims()
            }
            while header[Field.entries] >= limit {
                guard try evict() else {
                    throw log.noSpace("pinned entries fill the cache up to max_entries; unpin or remove some")
                }
            }
        }
        if !tableHasRoom, try !evictOne() {
            // The disk may have room again. (Once per call: each part of a large value gets here.)
            if change.triesDisk(ofShard: number) { header[Field.diskFullCountdown] = 0 }
            let used = header[Field.used]
            if !growTable(table.shape) { try unlinkAllDead() }
            guard table.shape.mode != TableShape.Mode.steady || header[Field.used] < used else {
                change.crowdedBy = try crowdingPart()
                throw log.noSpace(
                    "the index cannot grow, and nothing is left to evict; free space on the disk, or raise the capacity"
                )
            }
        }
        return try reserveSlot(key)
    }
}
