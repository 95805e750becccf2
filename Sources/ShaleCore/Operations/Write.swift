import CShalePlatform

/// When a set may happen.
public enum Condition: Sendable {
    case always, ifAbsent, ifPresent, ifVersion(UInt64)
    /// Nothing has happened to the key, or to the value's tags, since the token was drawn.
    case ifUntouched(since: UInt64)
}

/// How a put ended.
enum PutOutcome { case done, conflict, dictionaryRetired }

extension ShardReader {
    // MARK: On the way

    /// What a change of the key will look at is fetched while the value is hashed and compressed: its slot first,
    /// then the record that the slot points to. Hints: without the lock, and whatever they find.
    @inline(__always) func prefetchSlot(_ key: Key) { shim_prefetch(table.home(of: key.fraction)) }
    @inline(__always) func prefetchRecord(_ key: Key) {
        let line = table.home(of: key.fraction)
        for i in 0..<4 {
            let word0 = line.u64(i &* Slot.size)
            if Slot.matches(word0, UInt64(key.fraction & 0xFF_FFFF) << 32), log.isSound(Slot.location(word0)) {
                shim_prefetch(log.address(Slot.location(word0)))
            }
        }
    }
    /// And where its record will be.
    @inline(__always) func prefetchHead(_ length: Int) {
        let frame = log.headFrame, offset = log.headOffset
        guard UInt(bitPattern: frame) < UInt(bitPattern: geometry.rows),
            UInt(bitPattern: offset) < UInt(bitPattern: log.segmentSize)
        else { return }
        prefetchLines(engine.pointee.data + (log.offset(ofFrame: frame) &+ offset), to: length)
    }
}

extension ShardWriter {
    // MARK: Set

    /// `tagged`: the tags of the value that is to be set.
    @inline(__always)
    private func mayHappen(
        _ condition: Condition, _ key: Key, _ tagged: UnsafePointer<UInt64>?, _ tagCount: Int, now: UInt64,
        _ refused: inout FenceTable.Refusal?
    ) -> Bool {
        if case .always = condition { return true }
        if case .ifUntouched(let token) = condition {
            refused = refusal(key, since: token, tagged, tagCount)
            return refused == nil
        }
        // (A large value that lacks a part is a miss to every reader.)
        let existing = reader.entry(key, now: now).flatMap { reader.isWhole($0.value.location, key) ? $0 : nil }
        return switch condition {
        case .always, .ifUntouched: true
        case .ifAbsent: existing.map { !$0.isFresh } ?? true
        case .ifPresent: existing.map { $0.isFresh } ?? false
        case .ifVersion(let version): existing.map { !$0.isGone && $0.value.header.lsn == version } ?? false
        }
    }

    /// Whether a conditional set of a large value may begin. The entry becomes the newest, so that it is the last to
    /// make room for what others store meanwhile.
    func mayReplace(
        _ key: Key, _ condition: Condition, _ tagged: UnsafePointer<UInt64>?, _ tagCount: Int, now: UInt64
    ) -> Bool {
        var refused: FenceTable.Refusal?
        guard mayHappen(condition, key, tagged, tagCount, now: now, &refused) else {
            if let refused { count(refused) }
            return false
        }
        guard let slot = reader.lookup(key) else { return true }
        while true {
            let word1 = slot.u64(8)
            if shim_cas64(slot + 8, word1, Slot.used(word1, stamp: reader.nextStamp())) { return true }
        }
    }

    /// Stores a value, manifest or part. Conflict where the condition does not hold.
    @inline(never)
    func put(_ draft: inout Draft, _ key: Key, condition: Condition) throws(Failure)
        -> PutOutcome
    {
        let isPart = draft.record.isKind(.part)
        var refused: FenceTable.Refusal?
        if !mayHappen(condition, key, draft.tags, draft.record.tagCount, now: change.now, &refused) {
            if change.ownIsGone { throw log.filled() }
            if let refused { count(refused) }
            return .conflict
        }
        if draft.record.codec == RecordHeader.Codec.dictionary,
            !engine.pointee.dictionaries.frames.mayUse(draft.record.dictionary)
        {
            return .dictionaryRetired
        }
        let tableHasRoom = maintainTable()
        change.replaced =
            header[Field.pinnedBytes] == 0 || isPart
            ? 0 : reader.lookup(key).map { reader.measure(Slot.location($0.u64(0))).pinned } ?? 0
        if isAdaptive, !isPart, geometry.entriesPerShard > 0, header[Field.entries] >= geometry.entriesPerShard,
            reader.lookup(key) == nil
        {
            try SecondChance(self).makeEntryRoom(self)
        }
        try makeRoom(
            draft.record.length, live: true, pins: draft.record.isPinned ? draft.record.length : 0)
        let found = reader.lookup(key, isPart: isPart)
        // (Making a slot leaves the room there: it evicts, or makes room again.)
        let slot =
            if let found {
                found
            } else {
                // (Where the entry itself has made room, its slot is free.)
                try makeSlot(for: draft.record, key, tableHasRoom: tableHasRoom || change.ownIsGone)
            }
        let before = log.headOffset
        header.begin()
        if !isPart { header[Field.sets] += 1 }
        let location = log.append(&draft, lsn: reader.drawLSN())
        // Half a segment ahead, so that it is there in time, and a shard that is hardly used takes one only.
        if before < log.segmentSize / 2, log.headOffset >= log.segmentSize / 2, log.wantsFrame {
            change.wantsFrame = true
        }
        publish(&draft, at: location, in: slot, isNew: found == nil)
        return .done
    }

    /// A free slot near the key's home.
    private func reserveSlot(_ key: Key) throws(Failure) -> Memory {
        var tries = 0
        while true {
            if let slot = table.reserve(key.fraction) { return slot }
            // About once in 10^8 neighbourhoods, or where many were removed in the table's order: finish a pass, or
            // grow, which spreads the neighbourhood; or let somebody go.
            tries += 1
            if table.shape.mode != Table.Shape.Mode.steady {
                table.advance(Int.max) { evict($0) }
            } else if tries > 6 || !growTable(table.shape) {
                guard evict() || dropOrphans(), tries < 10_000 else {
                    throw log.noSpace("pinned entries fill the index; unpin or remove some, or raise the capacity")
                }
            }
        }
    }

    /// A slot for a new key. What is dead in the log may be in the way of a larger table: then it is cleaned, and room
    /// made anew.
    private func makeSlot(for record: RecordHeader, _ key: Key, tableHasRoom: Bool)
        throws(Failure) -> Memory
    {
        let isPart = record.isKind(.part)
        do throws(Failure) { return try makeSlot(key, tableHasRoom: tableHasRoom, isPart: isPart) } catch {
            guard !tableHasRoom, growTableByCleaning() else { throw error }
            change.crowdedBy = nil
            try makeRoom(record.length, live: true, pins: record.isPinned ? record.length : 0)
            return try makeSlot(key, tableHasRoom: maintainTable(), isPart: isPart)
        }
    }

    /// A slot for a new key, within the limits by entries, and by what the table can hold.
    @inline(never)
    private func makeSlot(_ key: Key, tableHasRoom: Bool, isPart: Bool) throws(Failure)
        -> Memory
    {
        let limit = geometry.entriesPerShard
        if !isPart, limit > 0 {
            // The limit gives a warning of one sweep, so that the first victim does not wait for all of it.
            if !isAdaptive, header[Field.entries] + limit / 32 >= limit {
                victims.sweep(buckets: 64) { dropIfGone($0) }
            }
            while header[Field.entries] >= limit {
                guard evict() else {
                    throw log.noSpace("pinned entries fill the cache up to max_entries; unpin or remove some")
                }
            }
        }
        if !tableHasRoom, !evict(), !dropOrphans() {
            // The disk may have room again.
            header[Field.noSpace] = 0
            let used = header[Field.used]
            if !growTable(table.shape) { try dropAllGone() }
            guard table.shape.mode != Table.Shape.Mode.steady || header[Field.used] < used else {
                change.crowdedBy = crowdingPart()
                throw log.noSpace(
                    "the index cannot grow, and nothing is left to evict; free space on the disk, or raise the capacity"
                )
            }
        }
        return try reserveSlot(key)
    }

    // MARK: Remove

    /// Removes a key for good: a tombstone keeps older records from coming back in a rebuild.
    func remove(_ key: Key, version: UInt64) throws(Failure) -> Status {
        var existing = reader.entry(key, now: change.now)
        if version != 0, let existing, !existing.isGone, existing.value.header.lsn != version { return .conflict }
        let answer: Status = existing.map { $0.isGone ? .miss : .ok } ?? .miss
        noteRemoval(of: key)
        var slot = reader.lookup(key)
        if slot == nil ? !mayHaveGhosts && !reader.hasUnreadable(key) : version != 0 && answer == .miss { return .miss }
        var draft = Draft(RecordHeader(kind: .tombstone, keyLength: key.length), keyHash: key.hash, key: key.bytes)
        try makeRoom(draft.record.length, live: false)
        slot = reader.lookup(key)
        existing = nil
        bury(&draft, slot, counting: answer == .ok ? Field.removes : nil, isNoted: true)
        return answer
    }

    /// Appends a tombstone, and with it takes the key's entry out.
    private func bury(
        _ draft: inout Draft, _ slot: Memory?, counting field: ShardHeader.Count? = nil, isNoted: Bool = false
    ) {
        guard let slot else {
            log.append(&draft, lsn: reader.drawLSN())
            return
        }
        header.begin()
        if let field { header[field] += 1 }
        log.append(&draft, lsn: reader.drawLSN())
        takeOut(slot, isNoted: isNoted)
    }

    /// Whether a rebuild could find records that the index does not know: it begins at the tail that the file proves,
    /// not at the one of the moment.
    private var mayHaveGhosts: Bool {
        let ghost = header[Field.ghost]
        return ghost != 0 && ghost >= log.provenTail
    }

    /// Drops an entry that a reader found damaged or incomplete, if it is still the current one.
    /// Whether it is worth looking again: it is gone, or it was whole meanwhile.
    @inline(never) @discardableResult
    func dropUnreadable(_ key: Key, location: UInt32, isDamaged: Bool) throws(Failure) -> Bool {
        guard let found = table.find(key.fraction, location: location), !Slot.isPart(found.u64(0)) else { return true }
        if !isDamaged {
            guard let manifest = reader.manifest(at: location), !reader.isBeingWritten(manifest.blob) else { return false }
            if reader.isWhole(location, key) { return true }
        }
        let segment = log.segment(of: location), version = reader.lsn(of: found)
        var draft = Draft(RecordHeader(kind: .tombstone, keyLength: key.length), keyHash: key.hash, key: key.bytes)
        let hasRoom = (try? makeRoom(max(Loss.length, draft.record.length), live: false)) != nil
        // Cleaning may have moved it, or let it go; something else may be where it was. (To look again instead would
        // have no end on a full disk, where all that makes room moves it again.)
        var current: Memory?
        table.probe(key.fraction) { slot, word0 in
            let at = Slot.location(word0)
            guard !Slot.isPart(word0),
                at == location && log.segment(of: at) == segment || version != 0 && reader.lsn(of: slot) == version
            else { return false }
            current = slot
            return true
        }
        guard let slot = current else { return true }
        if !hasRoom {
            // Then it is a miss from now on, if not for those who make the index anew. When it was set is not known.
            if isDamaged { noteLoss(of: slot) }
            drop(slot)
            if isDamaged { recount() }
        } else if isDamaged {
            try loseOne(slot)
        } else {
            bury(&draft, slot)
        }
        return true
    }

    // MARK: Touch and increment

    /// `since`: a token, where nothing may have happened since it was drawn.
    func touch(
        _ key: Key, version: UInt64, since token: UInt64? = nil, maxAge: Int64
    ) throws(Failure) -> Status {
        guard let found = reader.lookup(key) else { return .miss }
        guard let before = reader.entry(found, now: change.now) else {
            try dropUnreadable(key, location: Slot.location(found.u64(0)), isDamaged: true)
            return .miss
        }
        if before.isGone || version != 0 && before.value.header.lsn != version { return .miss }
        if let token, refusal(key, since: token, before.value.tags, before.value.header.tagCount) != nil {
            return .conflict
        }
        // The entry's own stale period stays.
        let lifetime = Lifetime(from: change.now, maxAge: maxAge, stale: before.lifetime.stale)
        return try before.standing.isExpired
            ? renew(key, before, lifetime) : age(key, before, lifetime)
    }

    /// What a tag has made stale becomes fresh under a new number: the tag table ends what has a lower one.
    @inline(never)
    private func renew(_ key: Key, _ before: Entry, _ lifetime: Lifetime) throws(Failure)
        -> Status
    {
        let record = before.value.header.aged(lifetime)
        change.keepsOwn = true
        change.replaced = reader.measure(Slot.location(before.slot.u64(0))).pinned
        try makeRoom(record.length, live: true, pins: record.isPinned ? record.length : 0)
        // Cleaning may have moved the value, or let it go.
        guard let current = reader.entry(key, now: change.now), !current.isGone else { return .miss }
        rewrite(current.slot, current.value, keyHash: key.hash, lifetime, lsn: reader.drawLSN())
        return .ok
    }

    /// Makes a fresh entry stale. One that would not be kept then goes as by a removal, and so does what the log may have of
    /// a key without one: nothing of it comes back fresh.
    func expire(_ key: Key) throws(Failure) -> Status {
        guard let before = reader.entry(key, now: change.now), !before.isGone, before.lifetime.stale > 0 else {
            return try remove(key, version: 0)
        }
        noteRemoval(of: key)
        if !before.isFresh { return .ok }
        if try age(key, before, before.lifetime.ended(at: change.now)) == .miss {
            change.replaced = 0
            _ = try remove(key, version: 0)
        }
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
        // (It is not replaced by what needs the room.)
        change.keepsOwn = true
        change.replaced = record.isPinned && Slot.isTouched(before.slot.u64(0)) ? record.length : 0
        try makeRoom(
            record.length, live: true, pins: record.isPinned ? record.length + before.value.length : 0)
        // Cleaning may have moved the value, or let it go.
        guard let current = reader.entry(key, now: change.now), !current.isGone else { return .miss }
        let target = TouchTarget(
            location: current.value.location, number: log.segment(of: current.value.location),
            lsn: current.value.header.lsn)
        var words = target.words
        let slot = current.slot
        let old = slot.u64(0)
        header.begin()
        account(reader.measure(Slot.location(old)), sign: -1)
        let location = withUnsafeBytes(of: &words) { body in
            var draft = Draft(
                record, keyHash: key.hash, key: key.bytes, stored: body.start,
                bodyHash: bodyHash(
                    meta: body.start, metaLength: 0, stored: body.start, storedLength: TouchTarget.size, secret: secret)
            )
            draft.lifetime = lifetime
            return log.append(&draft, lsn: reader.drawLSN())
        }
        account(reader.measure(location), sign: 1)
        header.restamp(
            slot, 0, expiry: SlotExpiry.of(deadline: lifetime.deadline, base: engine.pointee.block.expiryBase))
        header.commit(slot, Slot.with(old, location: location) & ~Slot.Kind.mask | Slot.Kind.touched)
        return .ok
    }

    /// `room`: scratch for meta and tags, which cleaning may move.
    func increment(
        _ key: Key, delta: Int64, initial: Int64, maxAge: Int64, stale: Int64, room: Memory
    ) throws(Failure) -> Int64 {
        var start = initial
        var record: RecordHeader
        let lifetime: Lifetime
        var tagCount = 0
        // A damaged number must not become the start of a sound one.
        if let existing = reader.entry(key, now: change.now), existing.isFresh,
            log.soundBytes(Slot.location(existing.slot.u64(0))) != nil
        {
            let value = existing.value.header
            guard value.isKind(.value), value.codec == RecordHeader.Codec.raw, value.storedLength == 8 else {
                throw Failure.because(
                    .invalid, "the value is not an 8-byte integer; shale_increment works on those alone")
            }
            start = (existing.value.body).loadUnaligned(as: Int64.self)
            lifetime = existing.lifetime
            tagCount = value.tagCount
            #if SHALE_FAULTS
            shim_look(existing.value.at + value.keyOffset, value.length - value.keyOffset)
            #endif
            memcpy(room, existing.value.at + value.metaOffset, value.metaLength)
            memcpy(room + Limits.metaLength + 1, existing.value.at + value.keyOffset - tagCount * 8, tagCount * 8)
            record = RecordHeader(
                kind: .value, flags: value.flags & RecordHeader.Flag.pinned | lifetime.flag, tagCount: tagCount,
                keyLength: key.length, metaLength: value.metaLength, storedLength: 8, rawLength: 8,
                created: value.created, expires: lifetime.expires)
        } else {
            lifetime = Lifetime(from: change.now, maxAge: maxAge, stale: stale)
            record = RecordHeader(
                kind: .value, flags: lifetime.flag, keyLength: key.length, storedLength: 8, rawLength: 8,
                created: change.now, expires: lifetime.expires)
        }
        let (sum, overflow) = start.addingReportingOverflow(delta)
        if overflow { throw Failure.because(.invalid, "the sum overflows a 64-bit integer; the value is unchanged") }
        var word = sum.littleEndian
        try withUnsafeBytes(of: &word) { body throws(Failure) in
            var draft = Draft(
                record, keyHash: key.hash, key: key.bytes, meta: UnsafeRawPointer(room), stored: body.start,
                bodyHash: bodyHash(
                    meta: UnsafeRawPointer(room), metaLength: record.metaLength, stored: body.start, storedLength: 8,
                    secret: secret))
            draft.lifetime = lifetime
            draft.tags = UnsafePointer((room + Limits.metaLength + 1).assumingMemoryBound(to: UInt64.self))
            _ = try put(&draft, key, condition: .always)
        }
        return sum
    }

    // MARK: Many at once

    /// `expires`: what carries the tag becomes stale.
    func invalidate(_ tag: UInt64, expires: Bool) throws(Failure) {
        var word = tag
        try withUnsafeBytes(of: &word) { key throws(Failure) in
            let record =
                expires
                ? RecordHeader(kind: .expire, keyLength: 8, expires: change.now)
                : RecordHeader(kind: .invalidate, keyLength: 8)
            var draft = Draft(record, keyHash: shim_hash(key.start, 8, secret), key: key.start)
            try makeRoom(draft.record.length, live: false)
            // (Last: what makes room may forget all tags.)
            makeTagRoom(for: tag)
            let lsn = reader.drawLSN()
            noteChange(ofTag: tag, lsn)
            header.begin()
            log.append(&draft, lsn: lsn)
            guard let cell = tags.prepare(tag, expires ? .expiry(change.now) : .invalidation, lsn: lsn) else {
                header.end()
                return
            }
            if expires { header.replaceSecond(cell.pair, change.now) }
            header.commit(cell.word, cell.value)
        }
    }
}
