import CShalePlatform

/// Space comes back at the tail, in order: what the index still points at is
/// copied to the head as it is, everything else is skipped. No older version of
/// a key outlives a newer one that way, and a tombstone can go when it gets here.
extension Shard {
    /// Cleans one record at the tail; returns the bytes looked at, 0 where the tail is the head.
    func cleanRecord(_ change: inout Change) throws(Failure) -> Int {
        guard header[Field.queueCount] > 1 else { return 0 }
        let place = log.queued(0)
        let offset = header[Field.tailOffset]
        let base = engine.pointee.data + log.offset(ofPlace: place)
        let here = Place(number: log.numberWord(place).u64(0), offset: UInt64(log.offset(ofPlace: place) + offset))
        guard offset <= log.segmentSize - RecordHeader.size else {
            finishTail()
            return RecordHeader.size
        }
        let p = base + offset
        let record = RecordHeader(at: p)
        guard record.isPlausible(room: log.room(from: offset)), let kind = record.kind else {
            return try skipDamage(place, offset)
        }
        let keyHash = record.keyLength == 0 ? 0 : shim_hash(p + record.keyOffset, record.keyLength, secret)
        guard record.verifiesHead(at: p, keyHash: keyHash, place: here, secret: secret) else {
            return try skipDamage(place, offset)
        }
        prefetchSlot(afterRecord: record.length, offset: offset, base: base)
        let view = RecordView(location: log.location(place: place, offset: offset), at: p, header: record),
            at = view.location
        switch kind {
        case .end:
            finishTail()
            return record.length
        case .value, .manifest:
            if let slot = slot(pointingTo: at, keyHash: keyHash) { try keep(slot, view, keyHash: keyHash, &change) }
        case .part:
            if let slot = table.find(UInt32(truncatingIfNeeded: keyHash), location: at) {
                if let key = view.partKey, isOwned(key) {
                    try copy(slot, view, keyHash: keyHash, &change)
                } else {
                    drop(slot, &change)
                }
            }
        case .touch:
            // Its target came before it and took the age along, unless the record's body names another.
            if let slot = table.find(UInt32(truncatingIfNeeded: keyHash), location: at) { try loseOne(slot) }
        case .tombstone, .invalidate, .gap, .loss: break
        }
        header[Field.tailOffset] = offset + record.length
        return record.length
    }

    /// The next record's slot is on its way while this record is copied.
    @inline(__always)
    private func prefetchSlot(afterRecord length: Int, offset: Int, base: Memory) {
        let next = offset + length
        guard next <= log.segmentSize - RecordHeader.size else { return }
        let p = base + next
        let record = RecordHeader(at: p)
        guard record.isPlausible(room: log.segmentSize - next), record.keyLength <= 256 else { return }
        let hash = shim_hash(p + record.keyOffset, record.keyLength, secret)
        shim_prefetch(table.home(of: UInt32(truncatingIfNeeded: hash)))
    }

    /// The slot that points to the value, itself or by way of a touch record.
    private func slot(pointingTo at: UInt32, keyHash: UInt64) -> Memory? {
        let fraction = UInt32(truncatingIfNeeded: keyHash)
        var found: Memory?
        table.probe(fraction) { slot, word0 in
            let location = Slot.location(word0)
            if location == at || Slot.isTouched(word0) && touchTarget(location) == at {
                found = slot
                return true
            }
            return false
        }
        return found
    }

    private func keep(_ slot: Memory, _ record: RecordView, keyHash: UInt64, _ change: inout Change) throws(Failure) {
        if tags.invalidates(record.header, at: record.at) {
            drop(slot, &change)
            return
        }
        let pointed = Slot.location(slot.u64(0))
        let latest = pointed == record.location ? record : log.record(pointed)
        guard let latest, pointed == record.location || log.isHeadSound(latest) else {
            // A touch's age would get a sound check in the copy.
            try loseOne(slot)
            return
        }
        if change.now >= latest.header.gone(at: latest.at) {
            header[Field.expirations] += 1
            drop(slot, &change)
        } else if pointed == record.location {
            try copy(slot, record, keyHash: keyHash, &change)
        } else {
            try merge(slot, latest, record, keyHash: keyHash, &change)
        }
    }

    /// Room at the head for a copy. False where it was evicted instead: what is left is for what is pinned, which
    /// takes a place whatever the budget. (It never has to, but where an older library has pinned too much.)
    private func provideCopy(_ slot: Memory, _ length: Int, isPinned: Bool, _ change: inout Change) throws(Failure)
        -> Bool
    {
        if !isPinned, !spares(length) {
            evictWhole(slot, &change)
            return false
        }
        if length > log.headRoom { try log.roll(overdraws: isPinned) }
        return true
    }

    /// With a part goes the value that it belongs to, where that is in this shard: without one part it is nothing.
    func evictWhole(_ slot: Memory, _ change: inout Change) {
        #if SHALE_FAULTS
        shim_tell(SHIM_FORCED, nil)
        #endif
        let word0 = slot.u64(0)
        if Slot.isPart(word0), let key = partKey(of: word0), Shard(engine, keyHash: key.owner).number == number {
            evictOwner(key, &change)
            if (slot.u64(0) ^ word0) & ~Slot.reachBit != 0 { return }
        }
        evict(slot, &change)
    }

    private func copy(_ slot: Memory, _ record: RecordView, keyHash: UInt64, _ change: inout Change) throws(Failure) {
        let length = record.length
        guard try provideCopy(slot, length, isPinned: record.header.isPinned, &change) else { return }
        let target = log.location(place: header[Field.headPlace], offset: header[Field.headOffset])
        let from = log.placeOf(record.location)
        let to = Place(number: header.at.u64(Field.headNumber), offset: UInt64(log.offset(of: target)))
        let q = log.address(target)
        // With the old place's head check the copy is no record yet.
        shim_copy(q, record.at, length)
        var moved = record.header
        moved.bodyCheck ^= from.mix(secret: secret) ^ to.mix(secret: secret)
        q.set(8, moved.bodyCheck)
        moved.setHeadCheck(moved.computeHeadCheck(at: q, keyHash: keyHash, place: to, secret: secret))
        moved.seal(at: q)
        header[Field.cleaned] += length
        moveRecord(slot, to: target, headEnd: header[Field.headOffset] + length)
    }

    /// A copy with the age of the touch record that points to it.
    private func merge(
        _ slot: Memory, _ touch: RecordView, _ record: RecordView, keyHash: UInt64, _ change: inout Change
    ) throws(Failure) {
        let before = measure(touch.location), value = record.header
        var flags = value.flags & ~RecordHeader.Flag.keepsStale
        if touch.header.keepsStale { flags |= RecordHeader.Flag.keepsStale }
        var merged = RecordHeader(
            kind: value.isKind(.manifest) ? .manifest : .value, codec: value.codec, flags: flags,
            tagCount: value.tagCount,
            keyLength: value.keyLength, metaLength: value.metaLength, storedLength: value.storedLength,
            rawLength: value.rawLength,
            created: value.created, expires: touch.header.expires, dictionary: value.dictionary)
        guard try provideCopy(slot, merged.length, isPinned: value.isPinned, &change) else { return }
        merged.bodyCheck = 0
        let mix = log.placeOf(record.location).mix(secret: secret)
        var draft = Draft(
            merged, keyHash: keyHash, key: record.key, meta: record.at + value.metaOffset, stored: record.body,
            bodyHash: value.bodyCheck ^ mix)
        draft.lifetime = touch.header.lifetime(at: touch.at)
        draft.tags = UnsafePointer((record.key - value.tagCount * 8).assumingMemoryBound(to: UInt64.self))
        header.begin()
        let target = log.append(&draft, lsn: value.lsn)
        header[Field.cleaned] += merged.length
        account(before, sign: -1)
        account(measure(target), sign: 1)
        let word0 = slot.u64(0)
        let kind = value.tagCount > 0 ? Slot.Kind.tagged : Slot.Kind.plain
        header.commit(slot, Slot.with(word0, location: target) & ~Slot.Kind.mask | kind)
    }

    // MARK: Ends and damage

    private func finishTail() {
        log.releaseTail()
        log.trim()
    }

    /// What cannot be read is dropped and counted; the walk goes on at the next record that verifies.
    private func skipDamage(_ place: Int, _ offset: Int) throws(Failure) -> Int {
        let next = nextRecord(place: place, from: offset + 8, number: log.numberWord(place).u64(0)) ?? log.segmentSize
        let before = header[Field.corrupt]
        try loseEntries(inPlace: place, from: offset, to: next)
        // Damage that nobody needed counts as one.
        if header[Field.corrupt] == before { header[Field.corrupt] += 1 }
        header[Field.tailOffset] = next
        return next - offset
    }

    /// (A loss record takes hardly more room than the smallest record that is lost.)
    private func loseEntries(inPlace place: Int, from: Int, to: Int) throws(Failure) {
        let low = log.location(place: place, offset: from), high = log.location(place: place, offset: to - 8)
        defer { recount() }
        try forEachSlot { slot, word0 throws(Failure) in
            if needs(word0, from: low, through: high) { try lose(slot) }
        }
    }

    /// The first place from an offset on where a record of this segment verifies.
    func nextRecord(place: Int, from: Int, number: UInt64) -> Int? {
        let base = log.offset(ofPlace: place)
        for offset in stride(from: from, through: log.segmentSize - RecordHeader.size, by: 8) {
            let p = engine.pointee.data + base + offset
            let record = RecordHeader(at: p)
            if record.isSound(
                at: p, room: log.room(from: offset), place: Place(number: number, offset: UInt64(base + offset)),
                secret: secret)
            {
                return offset
            }
        }
        return nil
    }
}
