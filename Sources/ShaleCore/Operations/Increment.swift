import CShalePlatform

extension ShardWriter {
    /// `room`: scratch for meta and tags, which cleaning may move.
    func increment(
        _ key: Key, delta: Int64, initial: Int64, maxAge: Int64, stale: Int64, room: Memory
    ) throws(Failure) -> Int64 {
        var start = initial
        var record: RecordHeader
        let lifetime: Lifetime
        var tagCount = 0
        // A damaged number must not become the start of an intact one.
        if let existing = reader.entry(key, now: change.now), existing.isFresh,
            log.soundBytes(existing.slot.entry.location) != nil
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
}
