import CShalePlatform

/// An entry as read under the lock.
struct Entry {
    let slot: Slot
    /// The record that holds the value: the slot's, or the target of its touch record.
    let value: RecordView
    let freshness: Freshness
    let now: UInt64

    var lifetime: Lifetime { freshness.lifetime }
    var isDead: Bool { freshness.isDead(at: now) }
    var isFresh: Bool { freshness.isFresh(at: now) }
}

/// How long an entry lives, from its records and the tag table.
struct Freshness {
    let lifetime: Lifetime
    /// Whether one of its tags was invalidated since it was written, or was expired and it has no stale period.
    var isInvalidated = false
    /// Whether one of its tags was expired: it is stale at any clock time.
    var isExpired = false

    func isDead(at now: UInt64) -> Bool { isInvalidated || lifetime.isOver(at: now) }
    func isFresh(at now: UInt64) -> Bool { !isInvalidated && !isExpired && lifetime.isFresh(at: now) }
}

extension ShardReader {
    /// Returns the manifest at a location, also through a touch record.
    @inline(never)
    func manifest(at location: UInt32) -> Manifest? { log.record(location).flatMap { log.value(of: $0) }?.manifest }

    @inline(never)
    func partKey(of word0: SlotEntry) -> PartKey? { log.record(word0.location)?.partKey }

    /// Returns the LSN of the value, not of its touch record; 0 if unreadable.
    @inline(never)
    func lsn(of slot: Slot) -> UInt64 {
        log.record(slot.entry.location).flatMap { log.value(of: $0) }?.header.lsn ?? 0
    }

    @inline(never)
    func touchTarget(_ location: UInt32) -> UInt32? { log.record(location)?.touchTarget?.location }

    /// Whether a slot points into this range of the log, directly or through a touch record.
    func needs(_ word0: SlotEntry, from low: UInt32, through high: UInt32) -> Bool {
        let at = word0.location
        return at >= low && at <= high
            || word0.isTouched && touchTarget(at).map { $0 >= low && $0 <= high } == true
    }

    /// Returns the slot that points to the value, directly or through a touch record.
    func slot(pointingTo at: UInt32, _ hashBits: UInt32) -> Slot? {
        var found: Slot?
        table.probe(hashBits) { slot, word0 in
            let location = word0.location
            if location == at || word0.isTouched && touchTarget(location) == at {
                found = slot
                return true
            }
            return false
        }
        return found
    }

    // MARK: By key, under the lock

    func lookup(_ key: Key, isPart: Bool = false) -> Slot? {
        var found: Slot?
        table.probe(key.hashBits) { slot, word0 in
            guard word0.isPart == isPart, holds(key, word0.location) else { return false }
            found = slot
            return true
        }
        return found
    }

    /// Whether an unreadable record may be the key's: it may supersede an older, readable one.
    @inline(never)
    func hasUnreadable(_ key: Key) -> Bool {
        var found = false
        table.probe(key.hashBits) { slot, word0 in
            guard !word0.isPart else { return false }
            found = log.record(word0.location).map { !log.isHeadSound($0) } ?? true
            return found
        }
        return found
    }

    /// (Also for readers without the lock.)
    @inline(never) // five calls in the probe
    func holds(_ key: Key, _ location: UInt32) -> Bool {
        guard let record = log.record(location), record.header.keyLength == key.length else { return false }
        #if SHALE_FAULTS
        shim_look(record.key, key.length)
        #endif
        return memcmp(record.key, key.bytes, key.length) == 0
    }

    /// Returns nil if the heads of its records are damaged: they must not be acted on.
    @inline(never)
    func entry(_ slot: Slot, now: UInt64) -> Entry? {
        guard let record = log.record(slot.entry.location), log.isHeadSound(record),
            let value = log.value(of: record)
        else { return nil }
        if value.location != record.location, !log.isHeadSound(value) { return nil }
        return Entry(slot: slot, value: value, freshness: freshness(record, value), now: now)
    }

    /// (Also for readers without the lock.)
    @inline(never)
    func freshness(_ record: RecordView, _ value: RecordView) -> Freshness {
        let lifetime = record.header.lifetime(at: record.at)
        switch tags.effect(on: value.header, at: value.at) {
        case .unchanged: return Freshness(lifetime: lifetime)
        case .invalidated: return Freshness(lifetime: lifetime, isInvalidated: true)
        case .expired(let time):
            return Freshness(lifetime: lifetime.ended(at: time), isInvalidated: lifetime.stale <= 0, isExpired: true)
        }
    }
    func entry(_ key: Key, now: UInt64) -> Entry? { lookup(key).flatMap { entry($0, now: now) } }
}
