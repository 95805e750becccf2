import CShalePlatform

extension ShardWriter {
    /// Ends a transaction: points the key's slot to a new record, or fills a slot reserved for it.
    @inline(never)
    func publish(
        _ draft: inout Draft, at location: UInt32, in slot: Slot, isNew: Bool
    ) {
        let isPart = draft.record.isKind(.part)
        let kind =
            isPart ? SlotEntry.Kind.part : draft.record.tagCount > 0 ? SlotEntry.Kind.tagged : SlotEntry.Kind.plain
        let flags = (draft.record.isPinned ? SlotEntry.pinnedBit : 0) | kind
        let expiry = SlotExpiry.of(deadline: draft.lifetime.deadline, base: engine.pointee.block.expiryBase)
        let new = draft.record.isKind(.value) ? Measure(draft.record) : reader.measure(location)
        let hashBits = UInt32(truncatingIfNeeded: draft.keyHash)
        if isNew {
            account(new, sign: 1, hashBits)
            count(SlotEntry(flags), sign: 1, hashBits)
            slot.release(SlotUse(stamp: reader.nextStamp(), expiry: expiry))
            header.commit(slot, table.word0(slot, hashBits, location: location, flags: flags))
            return
        }
        let word0 = slot.entry
        let old = reader.measure(word0.location)
        exchange(old, word0, for: new, flags, hashBits)
        header.restamp(slot, reader.nextStamp(), isUse: true, expiry: expiry)
        header.commit(slot, word0.with(location: location, flags: flags))
        if old.blob.blob != 0 { release(old.blob) }
    }

    /// Points a slot to a new record of the same value with another age, in a transaction. Needs room at the head.
    func rewrite(_ slot: Slot, _ value: RecordView, keyHash: UInt64, _ lifetime: Lifetime, lsn: UInt64) {
        let record = value.header
        var draft = Draft(
            record.aged(lifetime), keyHash: keyHash, key: value.key, meta: value.at + record.metaOffset,
            stored: value.body,
            bodyHash: record.bodyCheck ^ log.recordAddress(of: value.location).mix(secret: secret))
        draft.lifetime = lifetime
        draft.tags = value.tags
        header.begin()
        let word0 = slot.entry
        account(reader.measure(word0.location), sign: -1, of: slot)
        let location = log.append(&draft, lsn: lsn)
        account(reader.measure(location), sign: 1, of: slot)
        header.restamp(
            slot, 0, expiry: SlotExpiry.of(deadline: lifetime.deadline, base: engine.pointee.block.expiryBase))
        let kind = record.tagCount > 0 ? SlotEntry.Kind.tagged : SlotEntry.Kind.plain
        header.commit(slot, word0.with(location: location, kind: kind))
    }

    /// Unlinks an entry; its record stays in the log as a residual record until the tail has passed it.
    func unlink(_ slot: Slot, counting field: ShardHeader.Count? = nil) {
        header.begin()
        if let field { header[field] += 1 }
        commitUnlink(slot)
    }

    /// Ends a transaction by unlinking an entry. `isNoted`: the removal of its key is already noted.
    func commitUnlink(_ slot: Slot, isEvicted: Bool = false, isNoted: Bool = false) {
        table.clearCopy(of: slot)
        let m = reader.measure(slot.entry.location)
        if !isNoted, !slot.entry.isPart { noteLeaving(slot, setAs: m.lsn) }
        commitUnlink(slot, m, isEvicted: isEvicted)
    }

    /// Does the same; `m`: the entry's sizes as the sums contain them.
    func commitUnlink(_ slot: Slot, _ m: Measure, isEvicted: Bool = false) {
        let word0 = slot.entry
        account(m, sign: -1, of: slot)
        count(word0, sign: -1, table.hashBits(of: slot))
        header[Field.residual] = log.headNumber
        header.commit(slot, word0.freed)
        if m.blob.blob != 0 {
            if isEvicted { Shard.largeWriters(engine, of: m.blob.blob).end(m.blob.blob) }
            release(m.blob)
        }
    }

    func evict(_ slot: Slot) {
        let isPart = slot.entry.isPart
        if isPart {
            if let key = reader.partKey(of: slot.entry) {
                // (A part of the call's new value is not one of the old value's.)
                if key.owner == change.key?.hash, !reader.isBeingWritten(key.blob) { change.evictOwn() }
                Shard.largeWriters(engine, of: key.blob).end(key.blob)
                // Without the part the value cannot be read.
                change.add(Change.Blob(blob: key.blob, owner: key.owner))
            }
        } else {
            if isOwn(slot) { change.evictOwn() }
            #if !hasFeature(Embedded)
            if let listener = engine.pointee.evictionListener { tell(listener, of: slot.entry.location) }
            #endif
            #if SHALE_FAULTS
            shim_tell(SHIM_EVICTED, slot.at)
            #endif
            noteTimes(ofEvicted: slot, change.now)
        }
        header.begin()
        if !isPart { header[Field.evictions] += 1 }
        commitUnlink(slot, isEvicted: true)
    }

    private func noteTimes(ofEvicted slot: Slot, _ now: UInt64) {
        let location = slot.entry.location
        guard now != 0, log.isSound(location), let idle = accessClock.idle(slot.use.stamp, now: now) else {
            return
        }
        let created = RecordHeader(at: log.address(location)).created
        // (A set is a use. Other handles may have other clocks.)
        let age = now > created ? now - created : 0
        header[Field.evictedTimed] &+= 1
        header[Field.evictedAge] &+= age
        header[Field.evictedIdle] &+= min(age, UInt64(max(0, idle)))
    }

    /// Whether a slot holds the entry of the call's key.
    @inline(__always)
    func isOwn(_ slot: Slot) -> Bool {
        let word0 = slot.entry
        guard let key = change.key, word0.mayBe(key.hashBits) else { return false }
        return reader.holds(key, word0.location)
    }

    /// Whether a slot holds the entry to be replaced, or a part of it, that must not be evicted for the call.
    @inline(never) func keeps(_ slot: Slot) -> Bool {
        if !change.keepsOwn { return false }
        let word0 = slot.entry
        guard word0.isPart else { return isOwn(slot) }
        guard let key = reader.partKey(of: word0) else { return false }
        return key.owner == change.key?.hash && !reader.isBeingWritten(key.blob)
    }

    /// Evicts an entry; with a part also its value, if that is in this shard: it cannot be read any more.
    func evictWhole(_ slot: Slot, isForced: Bool = true) {
        #if SHALE_FAULTS
        if isForced { shim_tell(SHIM_FORCED, nil) }
        #endif
        let word0 = slot.entry
        if word0.isPart, let key = reader.partKey(of: word0), Shard(engine, keyHash: key.owner).number == number {
            evictOwner(key)
            if !slot.entry.isSame(as: word0) { return }
        }
        evict(slot)
    }

    /// Clears the parts of an unlinked manifest: those in this shard at once, to have their room, the others after the
    /// lock is released.
    func release(_ blob: Change.Blob) {
        // (In a hold with a share of work, only the first at once.)
        let atOnce = !change.hasShare ? blob.parts : min(blob.parts, ShardWriter.partsAtOnce)
        for i in 0..<atOnce {
            PartKey(blob: blob.blob, owner: blob.owner, part: i).withKey(engine) { shard, key in
                if shard.number == number { clearPart(key) }
            }
        }
        spend(atOnce * Share.lookup)
        let isElsewhere = geometry.shards > 1 && blob.blob & PartKey.isInOneShard == 0
        if isElsewhere || atOnce < blob.parts { change.add(blob) }
    }
    private static let partsAtOnce = Sizes.partsAtOnce

    #if !hasFeature(Embedded)
    private func tell(_ listener: EvictionListener, of location: UInt32) {
        guard listener.isListening(listener.context), let record = log.record(location) else { return }
        listener.note(listener.context, record.key, record.header.keyLength)
    }
    #endif
}

extension ShardWriter {
    func clearPart(_ key: Key) {
        if let slot = reader.lookup(key, isPart: true) { unlink(slot) }
    }

    /// Evicts the manifest of a part. `evenPinned`: also a pinned one, if it could not be stored whole.
    @inline(never)
    func evictOwner(_ part: PartKey, evenPinned: Bool = false) {
        let found = reader.owner(of: part).flatMap { evenPinned || !$0.entry.isPinned ? $0 : nil }
        #if SHALE_FAULTS
        shim_tell(SHIM_FORCED, found?.at)
        #endif
        if let found { evict(found) }
    }
}
