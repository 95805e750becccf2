import CShalePlatform

/// What a killed writer had appended and not yet shown to readers.
///
/// Its call never returned, so it may count or not; but a reader may have seen
/// since that it does not, and then it must not come to light later. At most
/// one record can be in that state: the last of the head segment, if it is the
/// killed writer's own and lies behind the offset at which its change began.
/// (An earlier one that the index does not show any more was completed, and
/// dropped since: an evicted value, or the invalidation of a tag that a sweep
/// has just emptied out of the table. It still supersedes what is older.)
/// It is taken back before the shard is rebuilt, while the old index can still
/// be asked.
extension Shard {
    func takeBackUnfinished() {
        guard header[Field.queueCount] > 0, header[Field.queueCount] <= geometry.rows, let (offset, record) = lastRecord(),
              offset >= header[Field.begunOffset] else { return }
        let place = header[Field.headPlace]
        let at = location(place: place, offset: offset)
        let p = address(at)
        let keyHash = shim_hash(p + record.keyOffset, record.keyLength, secret)
        let isShown: Bool
        switch record.kind {
        case .value, .manifest, .part, .touch:
            isShown = table.find(UInt32(truncatingIfNeeded: keyHash), location: at) != nil
        case .tombstone:
            isShown = lookup(Key(bytes: UnsafeRawPointer(p + record.keyOffset), length: record.keyLength, hash: keyHash)) == nil
        case .invalidate:
            isShown = record.keyLength == 8 && tags.invalidation(of: (p + record.keyOffset).loadUnaligned(as: UInt64.self)) >= record.lsn
        case .end, .gap, nil:
            isShown = true
        }
        if !isShown { p.release(16, 0) }
    }

    private func lastRecord() -> (offset: Int, RecordHeader)? {
        let place = header[Field.headPlace]
        guard place < geometry.rows, state(ofPlace: place) == .inLog else { return nil }
        let base = offset(ofPlace: place), segment = numberWord(place).u64(0)
        var offset = SegmentHeader.size
        var last: (Int, RecordHeader)?
        while offset <= segmentSize - RecordHeader.size {
            let p = engine.pointee.data + base + offset
            let record = RecordHeader(at: p)
            guard record.isSound(at: p, room: segmentSize - offset, place: Place(number: segment, offset: UInt64(base + offset)), secret: secret) else { break }
            last = (offset, record)
            offset += record.length
        }
        return last
    }
}
