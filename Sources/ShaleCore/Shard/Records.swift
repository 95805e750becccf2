import CShalePlatform

/// What is known of an entry under the lock.
struct Entry {
    let slot: Memory
    /// The record that holds the value: the slot's, or the target of its touch record.
    let value: RecordHeader
    let valueAt: Memory
    let valueLocation: UInt32
    let lifetime: Lifetime
    /// By age and by tags.
    let isGone: Bool
    let isFresh: Bool
}

/// What records say. What a slot points to may be damaged, or, without the lock, recycled: all of it is looked at within
/// its segment.
extension Shard {
    // MARK: Soundness

    func isHeadSound(_ record: RecordHeader, _ p: Memory, _ location: UInt32) -> Bool {
        record.isSound(at: p, room: log.segmentSize - log.offsetInSegment(location), place: log.placeOf(location), secret: secret)
    }
    @inline(never)
    func isBodySound(_ record: RecordHeader, _ p: Memory, _ place: Place) -> Bool {
        bodyHash(meta: p + record.metaOffset, metaLength: record.metaLength, stored: p + record.storedOffset, storedLength: record.storedLength, secret: secret)
            ^ place.mix(secret: secret) == record.bodyCheck
    }

    /// The record's length, with its touch target's, or nil where one of its checks fails.
    func soundBytes(_ location: UInt32) -> Int? {
        guard log.isSound(location) else { return nil }
        let p = log.address(location)
        let record = RecordHeader(at: p)
        guard record.keyLength > 0, isHeadSound(record, p, location), isBodySound(record, p, log.placeOf(location)) else { return nil }
        guard record.isKind(.touch) else { return record.length }
        let target = TouchTarget(at: p + record.storedOffset)
        guard log.isSound(target.location), !RecordHeader(at: log.address(target.location)).isKind(.touch) else { return nil }
        return soundBytes(target.location).map { $0 + record.length }
    }

    // MARK: By kind

    @inline(never)
    func touchTarget(_ location: UInt32) -> UInt32? {
        guard log.isSound(location) else { return nil }
        let p = log.address(location)
        let record = RecordHeader(at: p)
        guard record.isKind(.touch), record.storedLength == TouchTarget.size,
              record.isPlausible(room: log.segmentSize - log.offsetInSegment(location)) else { return nil }
        return TouchTarget(at: p + record.storedOffset).location
    }

    /// The manifest of a location, by way of a touch record too; nil where it is none.
    @inline(never)
    func manifest(at location: UInt32) -> Manifest? {
        guard log.isSound(location) else { return nil }
        let at = touchTarget(location) ?? location
        guard log.isSound(at) else { return nil }
        let p = log.address(at)
        let record = RecordHeader(at: p)
        guard record.isKind(.manifest), record.storedLength == Manifest.size, record.isPlausible(room: log.segmentSize - log.offsetInSegment(at)) else { return nil }
        return Manifest(at: p + record.storedOffset)
    }

    /// Which value a slot's part belongs to.
    func partKey(of word0: UInt64) -> PartKey? {
        let location = Slot.location(word0)
        guard log.isSound(location) else { return nil }
        let p = log.address(location), record = RecordHeader(at: p)
        guard record.isKind(.part), record.keyLength == PartKey.size, record.isPlausible(room: log.segmentSize - log.offsetInSegment(location)) else { return nil }
        return PartKey(at: p + record.keyOffset)
    }

    /// Of the value, not of a touch record that points to it.
    func lsn(of slot: Memory) -> UInt64 {
        let at = Slot.location(slot.u64(0)), value = touchTarget(at) ?? at
        return log.isSound(value) ? RecordHeader(at: log.address(value)).lsn : 0
    }

    /// Whether a slot needs a record of this stretch of the log: it points there, itself or by way of a touch record.
    func needs(_ word0: UInt64, from low: UInt32, through high: UInt32) -> Bool {
        let at = Slot.location(word0)
        return at >= low && at <= high || Slot.isTouched(word0) && touchTarget(at).map { $0 >= low && $0 <= high } == true
    }

    // MARK: By key, under the lock

    func lookup(_ key: Key, isPart: Bool = false) -> Memory? {
        var found: Memory?
        table.probe(key.fraction, home: table.shape.home(key.fraction)) { slot, word0 in
            guard Slot.isPart(word0) == isPart, holds(key, Slot.location(word0)) else { return false }
            found = slot
            return true
        }
        return found
    }

    /// (For readers without the lock too: whatever is there, it is looked at within the segment.)
    @inline(never) // five calls in the probe
    func holds(_ key: Key, _ location: UInt32) -> Bool {
        guard log.isSound(location) else { return false }
        let p = log.address(location)
        let record = RecordHeader(at: p)
        guard record.keyLength == key.length, record.isPlausible(room: log.segmentSize - log.offsetInSegment(location)) else { return false }
        return memcmp(p + record.keyOffset, key.bytes, key.length) == 0
    }

    /// Nil where the heads of its records are damaged: what they say is not to be acted on.
    @inline(never)
    func entry(_ slot: Memory, now: UInt64) -> Entry? {
        var at = Slot.location(slot.u64(0))
        guard log.isSound(at) else { return nil }
        var p = log.address(at)
        var record = RecordHeader(at: p)
        guard isHeadSound(record, p, at) else { return nil }
        let lifetime = record.lifetime(at: p)
        if record.isKind(.touch) {
            guard record.storedLength == TouchTarget.size else { return nil }
            let target = TouchTarget(at: p + record.storedOffset)
            guard log.isSound(target.location) else { return nil }
            at = target.location
            p = log.address(at)
            record = RecordHeader(at: p)
            guard record.lsn == target.lsn, isHeadSound(record, p, at) else { return nil }
        }
        let isGone = now >= lifetime.gone || tags.invalidates(record, at: p)
        return Entry(slot: slot, value: record, valueAt: p, valueLocation: at, lifetime: lifetime, isGone: isGone, isFresh: !isGone && now < lifetime.expires)
    }
    func entry(_ key: Key, now: UInt64) -> Entry? { lookup(key).flatMap { entry($0, now: now) } }
}
