import CShalePlatform

/// What is known of an entry under the lock.
struct Entry {
    let slot: Slot
    /// The record that holds the value: the slot's, or the target of its touch record.
    let value: RecordView
    let standing: Standing
    let now: UInt64

    var lifetime: Lifetime { standing.lifetime }
    var isGone: Bool { standing.isGone(at: now) }
    var isFresh: Bool { standing.isFresh(at: now) }
}

/// How long an entry lives, as its records and the tag table say.
struct Standing {
    let lifetime: Lifetime
    /// One of its tags was invalidated since it was written; or expired, and it has no stale period.
    var isInvalidated = false
    /// One of its tags was expired: it is stale, whatever time a clock says that it is.
    var isExpired = false

    func isGone(at now: UInt64) -> Bool { isInvalidated || lifetime.isOver(at: now) }
    func isFresh(at now: UInt64) -> Bool { !isInvalidated && !isExpired && lifetime.isFresh(at: now) }
}

/// What records say.
extension ShardReader {
    /// The manifest of a location, by way of a touch record too; nil where it is none.
    @inline(never)
    func manifest(at location: UInt32) -> Manifest? { log.record(location).flatMap { log.value(of: $0) }?.manifest }

    /// Which value a slot's part belongs to.
    @inline(never)
    func partKey(of word0: SlotEntry) -> PartKey? { log.record(word0.location)?.partKey }

    /// Of the value, not of a touch record that points to it; 0 where that cannot be read.
    @inline(never)
    func lsn(of slot: Slot) -> UInt64 {
        log.record(slot.entry.location).flatMap { log.value(of: $0) }?.header.lsn ?? 0
    }

    /// The value that a location's touch record points to.
    @inline(never)
    func touchTarget(_ location: UInt32) -> UInt32? { log.record(location)?.touchTarget?.location }

    /// Whether a slot needs a record of this stretch of the log: it points there, itself or by way of a touch record.
    func needs(_ word0: SlotEntry, from low: UInt32, through high: UInt32) -> Bool {
        let at = word0.location
        return at >= low && at <= high
            || word0.isTouched && touchTarget(at).map { $0 >= low && $0 <= high } == true
    }

    /// The slot of this fraction that points to the value, itself or by way of a touch record.
    func slot(pointingTo at: UInt32, _ fraction: UInt32) -> Slot? {
        var found: Slot?
        table.probe(fraction) { slot, word0 in
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
        table.probe(key.fraction) { slot, word0 in
            guard word0.isPart == isPart, holds(key, word0.location) else { return false }
            found = slot
            return true
        }
        return found
    }

    /// Whether a record cannot be read that may be the key's: it may supersede an older one that can.
    @inline(never)
    func hasUnreadable(_ key: Key) -> Bool {
        var found = false
        table.probe(key.fraction) { slot, word0 in
            guard !word0.isPart else { return false }
            found = log.record(word0.location).map { !log.isHeadSound($0) } ?? true
            return found
        }
        return found
    }

    /// (For readers without the lock too.)
    @inline(never) // five calls in the probe
    func holds(_ key: Key, _ location: UInt32) -> Bool {
        guard let record = log.record(location), record.header.keyLength == key.length else { return false }
        #if SHALE_FAULTS
        shim_look(record.key, key.length)
        #endif
        return memcmp(record.key, key.bytes, key.length) == 0
    }

    /// Nil where the heads of its records are damaged: what they say is not to be acted on.
    @inline(never)
    func entry(_ slot: Slot, now: UInt64) -> Entry? {
        guard let record = log.record(slot.entry.location), log.isHeadSound(record),
            let value = log.value(of: record)
        else { return nil }
        if value.location != record.location, !log.isHeadSound(value) { return nil }
        return Entry(slot: slot, value: value, standing: standing(record, value), now: now)
    }

    /// Of an entry whose slot points to `record`, and that holds `value`. (For readers without the lock too.)
    @inline(never)
    func standing(_ record: RecordView, _ value: RecordView) -> Standing {
        let lifetime = record.header.lifetime(at: record.at)
        switch tags.effect(on: value.header, at: value.at) {
        case .untouched: return Standing(lifetime: lifetime)
        case .invalidated: return Standing(lifetime: lifetime, isInvalidated: true)
        case .expired(let time):
            return Standing(lifetime: lifetime.ended(at: time), isInvalidated: lifetime.stale <= 0, isExpired: true)
        }
    }
    func entry(_ key: Key, now: UInt64) -> Entry? { lookup(key).flatMap { entry($0, now: now) } }
}
