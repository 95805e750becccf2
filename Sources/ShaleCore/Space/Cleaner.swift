import CShalePlatform

/// Space comes back at the tail, in order: what the index still points at is
/// copied to the head as it is, everything else is skipped. No older version of
/// a key outlives a newer one that way, and a tombstone can go when it gets here.
struct Cleaner: ShardParts {
    let log: Log
    private let chance: SecondChance
    /// It may stop before a record that had better wait.
    private let isAhead: Bool

    @inline(__always) init(_ shard: borrowing ShardWriter, isAhead: Bool = false, mustEvict: Bool = false) {
        log = shard.log
        chance = SecondChance(shard, mustEvict: mustEvict)
        self.isAhead = isAhead
    }

    /// Cleans one record at the tail; returns the bytes looked at, 0 where the tail is the head, or the record waits.
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

    /// False where the record waits.
    private func clean(_ record: SoundRecord, _ shard: borrowing ShardWriter) throws(Failure) -> Bool {
        let view = record.view, fraction = UInt32(truncatingIfNeeded: record.keyHash)
        switch record.kind {
        case .value, .manifest:
            if let slot = reader.slot(pointingTo: view.location, fraction) { try keep(slot, record, shard) }
        case .part:
            guard let slot = table.find(fraction, location: view.location) else { break }
            guard let key = view.partKey, reader.isOwned(key) else {
                shard.drop(slot)
                break
            }
            let choice = chance.judgePart(slot, key, view.length, shard)
            // Its owner, in another shard, goes first: a reader that finds one without a part has to lock its shard.
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
            // Its target came before it and took the age along, unless the record's body names another.
            if let slot = table.find(fraction, location: view.location) { try shard.lose(slot) }
        case .tombstone, .invalidate, .expire, .gap, .loss, .end: break
        }
        return true
    }

    /// The next record's slot is on its way while this one is copied.
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
            // A touch's age would get a sound check in the copy.
            try shard.lose(slot)
            return
        }
        if value.header.tagCount > 0, header.hasTags { shard.spend(shard.looks(atTagsOf: value)) }
        if isTouched { shard.spend(0, bytes: value.header.keyLength) }
        let standing = reader.standing(latest, value)
        if standing.isInvalidated {
            shard.drop(slot)
        } else if standing.isGone(at: shard.change.now) {
            shard.drop(slot, counting: Field.expirations)
        } else {
            let choice = chance.judge(slot, value.length, shard)
            if choice != .stays {
                shard.evictWhole(slot, isForced: choice == .forcedOut)
            } else if isTouched || standing.lifetime.expires != latest.header.expires {
                // (What the expiry of a tag has ended, its record says from here on: that of the expiry will go before it.)
                try merge(slot, found, standing.lifetime, shard)
            } else {
                try copy(slot, found, shard)
            }
        }
    }

    /// Room at the head for a copy. False where it was evicted instead: what is left is for what is pinned, which
    /// takes a frame whatever the budget. (It never has to, but where a power cut has brought pinned entries back.)
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
        // With the old address's head check the copy is no record yet.
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

    /// A transaction of its own kind, without a savepoint: the slot points to the copy behind the head's end, and the
    /// head's end follows. Until the slot does, the copy is no record; no rebuild ever finds a record twice.
    @inline(never)
    private func publish(_ slot: Slot, copy target: UInt32, headEnd: Int) {
        header[Field.copyEnd] = headEnd
        header.release(Field.copiedSlot, slot.at - header.at)
        table.move(slot, to: target)
        log.releaseHeadOffset(headEnd)
        header.release(Field.copiedSlot, 0)
    }

    /// A copy with the age that a touch record, or the expiry of a tag, has given it.
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
        if header[Field.damagedTail] == log.tailNumber { try loseEntries(shard) }
        log.releaseTail()
        header.finish(ShardHeader.Pending.tail)
        log.trim()
    }

    /// The walk goes on at the next record that verifies. What cannot be read is dropped once all of the segment was looked at.
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

    /// What still needs the tail's segment, of which all that can be read has left, was damaged. Whose entries these are, only
    /// the table knows: one walk for all damage of a segment, with whichever calls clean it. (A loss record takes hardly more
    /// room than the smallest record that is lost.)
    private func loseEntries(_ shard: borrowing ShardWriter) throws(Failure) {
        let low = log.location(frame: log.queued(0), offset: SegmentHeader.size),
            high = log.location(frame: log.queued(0), offset: log.segmentSize - 8)
        while header[Field.damageAt] < Table.allFractions {
            header[Field.damageAt] = try shard.visit(from: header[Field.damageAt]) { slot throws(Failure) in
                if reader.needs(slot.entry, from: low, through: high) {
                    try shard.lose(slot, isAtTail: true)
                    header[Field.damageLost] += 1
                }
            }.next
            try shard.rest()
        }
        // Damage that no entry needs counts as one. An entry that has left may have: then the sums had what its head said.
        if header[Field.damageLost] == 0 {
            header[Field.corrupt] += 1
            shard.doubtSums()
        }
        header[Field.damagedTail] = 0
    }
}
