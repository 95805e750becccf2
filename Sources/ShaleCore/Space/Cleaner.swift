import CShalePlatform

/// Reclaims space at the log's tail, in order: copies each record that the index references to the head and skips all
/// others. So no older version of a key outlives a newer one, and a tombstone can go once it reaches the tail.
struct Cleaner: ShardParts {
    let log: Log
    private let chance: SecondChance
    /// Whether it may stop before a record that should wait.
    private let isAhead: Bool

    @inline(__always) init(_ shard: borrowing ShardWriter, isAhead: Bool = false, mustEvict: Bool = false) {
        log = shard.log
        chance = SecondChance(shard, mustEvict: mustEvict)
        self.isAhead = isAhead
    }

    /// Cleans one record at the tail. Returns the bytes read, 0 if the tail is the head or the record has to wait.
    @inline(never)
    func cleanRecord(_ shard: borrowing ShardWriter) throws(Failure) -> Int {
        guard log.count > 1 else { return 0 }
        let frame = log.queued(0), offset = log.tailOffset
        guard offset <= log.segmentSize - RecordHeader.size else {
            try finishTail(shard)
            return RecordHeader.size
        }
        guard let record = log.soundRecord(frame: frame, offset: offset) else {
            return skipDamage(frame, offset, shard)
        }
        prefetchSlot(frame, record.end)
        if record.kind == .end {
            try finishTail(shard)
        } else {
            shard.spend(table.looks(for: UInt32(truncatingIfNeeded: record.keyHash)))
            guard try clean(record, shard) else { return 0 }
            log.tailOffset = record.end
        }
        shard.spend(0, bytes: record.view.length)
        return record.view.length
    }

    /// Returns false if the record has to wait.
    private func clean(_ record: SoundRecord, _ shard: borrowing ShardWriter) throws(Failure) -> Bool {
        let view = record.view, hashBits = UInt32(truncatingIfNeeded: record.keyHash)
        switch record.kind {
        case .value, .manifest:
            if let slot = reader.slot(pointingTo: view.location, hashBits) { try keep(slot, record, shard) }
        case .part:
            guard let slot = table.find(hashBits, location: view.location) else { break }
            guard let key = view.partKey, reader.isOwned(key) else {
                shard.unlink(slot)
                break
            }
            let choice = chance.evaluatePart(slot, key, view.length, shard)
            // Evict its owner, in another shard, first: a reader that finds an owner with a missing part has to lock
            // its shard.
            if choice == .leaves, isAhead, Shard(shard.engine, keyHash: key.owner).number != shard.number {
                shard.change.add(Change.Blob(blob: key.blob, owner: key.owner))
                return false
            }
            if choice == .stays {
                try copy(slot, record, shard)
            } else {
                shard.evictWhole(slot, isForced: choice == .forcedOut)
            }
        case .touch:
            // Its target came first and took the age along, unless the record's body names another record.
            if let slot = table.find(hashBits, location: view.location) { try shard.unlinkDamaged(slot) }
        case .tombstone, .invalidate, .expire, .gap, .damage, .end: break
        }
        return true
    }

    /// Prefetches the next record's slot while this record is copied.
    @inline(__always)
    private func prefetchSlot(_ frame: Int, _ offset: Int) {
        guard offset <= log.segmentSize - RecordHeader.size else { return }
        let p = engine.pointee.data + (log.offset(ofFrame: frame) + offset)
        let record = RecordHeader(at: p)
        guard record.isPlausible(room: log.segmentSize - offset), record.keyLength <= 256 else { return }
        let hash = shim_hash(p + record.keyOffset, record.keyLength, secret)
        shim_prefetch(table.home(of: UInt32(truncatingIfNeeded: hash)))
    }

    private func keep(_ slot: Slot, _ found: SoundRecord, _ shard: borrowing ShardWriter) throws(Failure) {
        let value = found.view
        let pointed = slot.entry.location, isTouched = pointed != value.location
        let latest = isTouched ? log.record(pointed) : value
        guard let latest, !isTouched || log.isHeadSound(latest) else {
            // The copy would give the touch's damaged age a valid check.
            try shard.unlinkDamaged(slot)
            return
        }
        if value.header.tagCount > 0, header.hasTags { shard.spend(shard.looks(atTagsOf: value)) }
        if isTouched { shard.spend(0, bytes: value.header.keyLength) }
        let freshness = reader.freshness(latest, value)
        if freshness.isInvalidated {
            shard.unlink(slot)
        } else if freshness.isDead(at: shard.change.now) {
            shard.unlink(slot, counting: Field.expirations)
        } else {
            let choice = chance.evaluate(slot, value.length, shard)
            if choice != .stays {
                shard.evictWhole(slot, isForced: choice == .forcedOut)
            } else if isTouched || freshness.lifetime.expires != latest.header.expires {
                // The copy keeps the expiry of a tag: the expire record leaves the log before it.
                try merge(slot, found, freshness.lifetime, shard)
            } else {
                try copy(slot, found, shard)
            }
        }
    }

    /// Makes room at the head for a copy, or evicts the entry and returns false: the last frames are for pinned
    /// entries, which take one beyond the budget. (Needed only after a power failure has brought pinned entries back.)
    private func provideCopy(_ slot: Slot, _ length: Int, isPinned: Bool, _ shard: borrowing ShardWriter)
        throws(Failure)
        -> Bool
    {
        if !isPinned, !shard.spares() {
            if shard.keeps(slot) { throw log.filled() }
            shard.evictWhole(slot)
            return false
        }
        if length > log.headRoom { try log.roll(overdraws: isPinned) }
        return true
    }

    private func copy(_ slot: Slot, _ found: SoundRecord, _ shard: borrowing ShardWriter) throws(Failure) {
        let record = found.view, length = record.length
        guard try provideCopy(slot, length, isPinned: record.header.isPinned, shard) else { return }
        let target = log.location(frame: log.headFrame, offset: log.headOffset)
        let from = log.recordAddress(of: record.location)
        let to = RecordAddress(number: log.headNumber, offset: UInt64(log.offset(of: target)))
        let q = log.address(target)
        // With the head check of the old address, the copy is not a record yet.
        shim_copy(q, record.at, length)
        var moved = record.header
        moved.bodyCheck ^= from.mix(secret: secret) ^ to.mix(secret: secret)
        q.set(8, moved.bodyCheck)
        moved.setHeadCheck(moved.computeHeadCheck(at: q, keyHash: found.keyHash, address: to, secret: secret))
        moved.seal(at: q)
        #if SHALE_FAULTS
        shim_count_appended(length)
        #endif
        header[Field.cleaned] += length
        publish(slot, copy: target, headEnd: log.headOffset + length)
    }

    /// Publishes a copy in a transaction of its own kind, without a savepoint: first the slot points to the copy,
    /// beyond the head's end, then the head's end advances. Until the slot points to it, the copy is not a record: no
    /// rebuild finds a record twice.
    @inline(never)
    private func publish(_ slot: Slot, copy target: UInt32, headEnd: Int) {
        header[Field.copyEnd] = headEnd
        header.release(Field.copiedSlot, slot.at - header.at)
        table.move(slot, to: target)
        log.releaseHeadOffset(headEnd)
        header.release(Field.copiedSlot, 0)
    }

    /// Copies a value with the age of its touch record or tag.
    private func merge(_ slot: Slot, _ found: SoundRecord, _ lifetime: Lifetime, _ shard: borrowing ShardWriter)
        throws(Failure)
    {
        let value = found.view.header, length = value.aged(lifetime).length
        guard try provideCopy(slot, length, isPinned: value.isPinned, shard) else { return }
        header[Field.cleaned] += length
        shard.rewrite(slot, found.view, keyHash: found.keyHash, lifetime, lsn: value.lsn)
    }

    // MARK: Ends and damage

    private func finishTail(_ shard: borrowing ShardWriter) throws(Failure) {
        if header[Field.damagedTail] == log.tailNumber { try unlinkUnread(shard) }
        log.releaseTail()
        header.finish(ShardHeader.Pending.tail)
        log.trim()
    }

    /// Skips to the next record that verifies. Unreadable entries are unlinked once the whole segment has been read.
    private func skipDamage(_ frame: Int, _ offset: Int, _ shard: borrowing ShardWriter) -> Int {
        let next = log.nextRecord(frame: frame, from: offset + 8, reading: Log.mostSkipped)
        shard.spend(0, bytes: next.read)
        if header[Field.damagedTail] != log.tailNumber {
            (header[Field.damageAt], header[Field.damageLost]) = (0, 0)
            header.release(Field.damagedTail, log.tailNumber)
        }
        log.tailOffset = next.end
        return next.end - offset
    }

    /// Unlinks the entries that reference the tail's segment after all its readable records have left. Only the table
    /// knows them: one walk handles all damage of a segment, spread over the calls that clean it. (A damage record
    /// takes hardly more room than the smallest record lost.)
    private func unlinkUnread(_ shard: borrowing ShardWriter) throws(Failure) {
        let low = log.location(frame: log.queued(0), offset: SegmentHeader.size),
            high = log.location(frame: log.queued(0), offset: log.segmentSize - 8)
        while header[Field.damageAt] < Table.allHashBits {
            header[Field.damageAt] = try shard.visit(from: header[Field.damageAt]) { slot throws(Failure) in
                if reader.needs(slot.entry, from: low, through: high) {
                    try shard.unlinkDamaged(slot, isAtTail: true)
                    header[Field.damageLost] += 1
                }
            }.next
            try shard.rest()
        }
        // Damage that no entry needs counts as one. It may have hit an entry unlinked earlier, whose damaged head then
        // went into the sums.
        if header[Field.damageLost] == 0 {
            header[Field.corrupt] += 1
            shard.doubtSums()
        }
        header[Field.damagedTail] = 0
    }
}

extension ShardWriter {
    /// Whether the cleaner may copy entries that it could evict: the last frames are for pinned entries.
    fileprivate func spares() -> Bool {
        if header[Field.pinnedBytes] == 0 { return true }
        let pinWaste = log.pinWaste
        // (While the capacity shrinks, more frames are free than the cache may use.)
        return log.freeFrames > pinWaste || log.availableFrames > pinWaste && (try? log.provide(pinWaste + 1)) != nil
    }
}
