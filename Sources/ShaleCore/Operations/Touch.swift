import CShalePlatform

extension ShardWriter {
    /// `since`: a fencing token; if the entry has changed since, returns `conflict`.
    func touch(
        _ key: Key, version: UInt64, since token: UInt64? = nil, maxAge: Int64
    ) throws(Failure) -> Status {
        guard let found = reader.lookup(key) else { return .miss }
        guard let before = reader.entry(found, now: change.now) else {
            try unlinkUnreadable(key, location: found.entry.location, isDamaged: true)
            return .miss
        }
        if before.isDead || version != 0 && before.value.header.lsn != version { return .miss }
        if let token, refusal(key, since: token, before.value.tags, before.value.header.tagCount) != nil {
            return .conflict
        }
        // The entry keeps its own stale period.
        let lifetime = Lifetime(from: change.now, maxAge: maxAge, stale: before.lifetime.stale)
        return try before.freshness.isExpired
            ? renew(key, before, lifetime) : age(key, before, lifetime)
    }

    /// Makes an entry fresh that a tag has made stale. It needs a new LSN: the tag table ends entries with a lower one.
    @inline(never)
    private func renew(_ key: Key, _ before: Entry, _ lifetime: Lifetime) throws(Failure)
        -> Status
    {
        let record = before.value.header.aged(lifetime)
        change.keepsOwn = true
        change.replaced = reader.measure(before.slot.entry.location).pinned
        try makeRoom(record.length, live: true, pins: record.isPinned ? record.length : 0)
        // Cleaning may have moved or evicted the value.
        guard let current = reader.entry(key, now: change.now), !current.isDead else { return .miss }
        rewrite(current.slot, current.value, keyHash: key.hash, lifetime, lsn: reader.drawLSN())
        return .ok
    }

    /// Makes a fresh entry stale. Removes an entry that would not be kept, and residual records of a key without an
    /// entry: none comes back fresh.
    func expire(_ key: Key) throws(Failure) -> Status {
        guard let before = reader.entry(key, now: change.now), !before.isDead, before.lifetime.stale > 0 else {
            return try remove(key, version: 0)
        }
        noteRemoval(of: key)
        if !before.isFresh { return .ok }
        if !change.progress.removesInstead {
            do throws(Failure) {
                if try age(key, before, before.lifetime.ended(at: change.now)) == .ok { return .ok }
            } catch {
                // (On a full disk, the entry itself may occupy the room for its touch record.)
                guard error.status == .full, !change.makesRoomElsewhere else { throw error }
                change.progress.removesInstead = true
            }
        }
        (change.replaced, change.keepsOwn) = (0, false)
        _ = try remove(key, version: 0)
        return .ok
    }

    /// Appends a touch record with another age.
    @inline(never)
    private func age(_ key: Key, _ before: Entry, _ lifetime: Lifetime) throws(Failure)
        -> Status
    {
        let flags = (before.value.header.isPinned ? RecordHeader.Flag.pinned : 0) | lifetime.flag
        let record = RecordHeader(
            kind: .touch, flags: flags, keyLength: key.length, storedLength: TouchTarget.size,
            rawLength: TouchTarget.size,
            created: before.value.header.created, expires: lifetime.expires)
        // (It is not evicted to make the room.)
        change.keepsOwn = true
        change.replaced = record.isPinned && before.slot.entry.isTouched ? record.length : 0
        try makeRoom(
            record.length, live: true, pins: record.isPinned ? record.length + before.value.length : 0)
        // Cleaning may have moved or evicted the value.
        guard let current = reader.entry(key, now: change.now), !current.isDead else { return .miss }
        let target = TouchTarget(
            location: current.value.location, number: log.segment(of: current.value.location),
            lsn: current.value.header.lsn)
        var words = target.words
        let slot = current.slot
        let old = slot.entry
        header.begin()
        account(reader.measure(old.location), sign: -1, of: slot)
        let location = withUnsafeBytes(of: &words) { body in
            var draft = Draft(
                record, keyHash: key.hash, key: key.bytes, stored: body.start,
                bodyHash: bodyHash(
                    meta: body.start, metaLength: 0, stored: body.start, storedLength: TouchTarget.size, secret: secret)
            )
            draft.lifetime = lifetime
            return log.append(&draft, lsn: reader.drawLSN())
        }
        account(reader.measure(location), sign: 1, of: slot)
        header.restamp(
            slot, 0, expiry: SlotExpiry.of(deadline: lifetime.deadline, base: engine.pointee.block.expiryBase))
        header.commit(slot, old.with(location: location, kind: SlotEntry.Kind.touched))
        return .ok
    }
}
