import CShalePlatform

/// Replays a shard's log: each record supersedes the earlier ones of its key.
struct Replay: ShardParts {
    let log: Log

    /// The position up to which the log was certainly on disk.
    var synced = SyncedPosition(number: 0, offset: 0)
    var highestLSN: UInt64 = 0
    /// Set once the table could not hold all entries: those dead at this time are unlinked and stay out of the index,
    /// until a later touch record.
    var now: UInt64?
    /// Whether tags were invalidated or expired since.
    var hasNewInvalidations = false
    /// Whether there are parts of large values, and whether some may belong to values in other shards.
    var hasParts = false, hasSpreadParts = false
    private let time: UInt64

    init(_ shard: borrowing ShardWriter, at time: UInt64) {
        log = shard.log
        self.time = time
    }

    @inline(never)
    mutating func apply(_ record: SoundRecord, _ shard: borrowing ShardWriter) throws(Failure) {
        let view = record.view, header = view.header
        let key = Key(bytes: UnsafeRawPointer(view.key), length: header.keyLength, hash: record.keyHash)
        switch record.kind {
        case .value, .manifest, .part:
            try applyValue(view, key, shard)
        case .touch:
            try applyTouch(view, key, shard)
        case .tombstone:
            if let slot = reader.lookup(key) { shard.unlink(slot) }
        case .invalidate, .expire:
            guard key.length == 8 else { return }
            let tag = view.key.loadUnaligned(as: UInt64.self)
            try shard.makeTagRoom(for: tag)
            tags.add(tag, record.kind == .expire ? .expiry(header.expires) : .invalidation, lsn: header.lsn)
            hasNewInvalidations = true
        case .damage:
            if key.length == Damage.size { apply(Damage(at: view.key), shard) }
        case .end, .gap: break
        }
    }

    @inline(never)
    private mutating func applyValue(
        _ view: RecordView, _ key: Key, isTouched: Bool = false, _ shard: borrowing ShardWriter
    ) throws(Failure) {
        let record = view.header, isPart = record.isKind(.part)
        if isPart, view.partKey == nil { return }
        let slot = reader.lookup(key, isPart: isPart)
        if record.codec == RecordHeader.Codec.dictionary, !engine.pointee.dictionaries.frames.has(record.dictionary) {
            // The entry was evicted before its dictionary was replaced by another.
            if let slot { shard.unlink(slot) }
            return
        }
        guard log.isBodySound(view) else {
            // It still supersedes older records, unless the older one is what it was copied from.
            header[Field.corrupt] += 1
            if let slot, reader.lsn(of: slot) != record.lsn { shard.unlink(slot) }
            return
        }
        let lifetime = record.lifetime(at: view.at)
        if let now, lifetime.isOver(at: now), !isTouched {
            // (For a clock that is set back, or another handle's, it may be fresh.)
            if let slot { shard.unlink(slot) } else { header[Field.residual] = log.headNumber }
            return
        }
        guard let target = slot != nil ? slot : try freeSlot(for: key, isPinned: record.isPinned, shard) else { return }
        var draft = Draft(record, keyHash: key.hash, key: key.bytes)
        draft.lifetime = lifetime
        header.begin()
        shard.publish(&draft, at: view.location, in: target, isNew: slot == nil)
    }

    /// Returns a free slot; nil if even evicting frees none: then the entry is in the log only. Never nil for a pinned
    /// entry.
    private mutating func freeSlot(for key: Key, isPinned: Bool, _ shard: borrowing ShardWriter) throws(Failure)
        -> Slot?
    {
        if !shard.maintainTable() { _ = try shard.evict() }
        var tries = 0
        while true {
            if let free = table.reserve(key.hashBits) { return free }
            tries += 1
            table.advance(Int.max) { shard.unlink($0) }
            if !shard.maintainTable(), tries <= 4 { continue }
            if try shard.evict(), tries <= 1000 { continue }
            if try unlinkDead(shard) {
                tries = 0
            } else if isPinned {
                // More entries are pinned than were admitted, after a power failure.
                if shard.growTable(table.shape, overdraws: true) { continue }
                throw log.noSpace(
                    "the index has no room for all that is pinned; free space on the disk, or raise the capacity")
            } else {
                header[Field.residual] = log.headNumber
                return nil
            }
        }
    }

    /// Unlinks entries dead by now, unless that was done and no tag changed since. Returns whether that freed any slot.
    private mutating func unlinkDead(_ shard: borrowing ShardWriter) throws(Failure) -> Bool {
        if now != nil, !hasNewInvalidations { return false }
        let timed = Change(now: time)
        now = time
        hasNewInvalidations = false
        let used = header[Field.used]
        try shard.with(timed) { shard throws(Failure) in try shard.unlinkDead() }
        return header[Field.used] < used
    }

    @inline(never)
    private mutating func applyTouch(_ view: RecordView, _ key: Key, _ shard: borrowing ShardWriter) throws(Failure) {
        guard let target = view.touchTarget else { return }
        if now != nil, reader.lookup(key) == nil, isInLog(target), let value = log.record(target.location) {
            try applyValue(value, key, isTouched: true, shard)
        }
        guard let slot = reader.lookup(key) else { return }
        guard log.isBodySound(view) else {
            // It still supersedes the age that the value had before.
            header[Field.corrupt] += 1
            shard.unlink(slot)
            return
        }
        let old = slot.entry.location
        guard let current = log.record(old).flatMap({ log.value(of: $0) }), current.header.lsn == target.lsn else {
            return
        }
        guard current.location == target.location else {
            // The copy that was touched is damaged. Its original has an age that may be over.
            shard.unlink(slot)
            return
        }
        shard.account(reader.measure(old), sign: -1, of: slot)
        let word1 = slot.use,
            expiry = SlotExpiry.of(
                deadline: view.header.lifetime(at: view.at).deadline, base: engine.pointee.block.expiryBase)
        slot.release(SlotUse(stamp: word1.stamp, expiry: expiry))
        slot.release(slot.entry.with(location: view.location, kind: SlotEntry.Kind.touched))
        shard.account(reader.measure(view.location), sign: 1, of: slot)
    }

    /// Whether the touched value is still at its location, and intact.
    private func isInLog(_ target: TouchTarget) -> Bool {
        guard let value = log.record(target.location), log.segment(of: target.location) == target.number,
            log.state(ofFrame: log.frame(of: target.location)) == .inLog
        else { return false }
        return value.header.lsn == target.lsn && log.isHeadSound(value) && log.isBodySound(value)
    }

    private mutating func apply(_ damage: Damage, _ shard: borrowing ShardWriter) {
        table.probe(damage.hashBits) { slot, word0 in
            let at = word0.location, segment = log.numberWord(log.frame(of: at)).u64(0)
            let isOlder =
                segment < damage.segment || segment == damage.segment && log.offsetInSegment(at) <= Int(damage.offset)
            if isOlder, !word0.isPart { shard.unlink(slot) }
            return false
        }
    }
}
