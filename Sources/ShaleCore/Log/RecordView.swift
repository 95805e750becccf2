import CShalePlatform

/// A record at a location. Its lengths were checked, so all of it lies in its segment, even if the slot is damaged or a
/// reader has no lock. Its checks were not: see `isHeadSound` and `isBodySound`.
struct RecordView {
    let location: UInt32
    let at: Memory
    let header: RecordHeader

    @inline(__always) var length: Int { header.length }
    @inline(__always) var key: Memory { at + header.keyOffset }
    var tags: UnsafePointer<UInt64> {
        UnsafePointer((key - header.tagCount * 8).assumingMemoryBound(to: UInt64.self))
    }
    @inline(__always) var body: Memory { at + header.storedOffset }

    /// The value to which a touch record gives a new age.
    @inline(__always) var touchTarget: TouchTarget? {
        header.isKind(.touch) && header.storedLength == TouchTarget.size ? TouchTarget(at: body) : nil
    }
    var manifest: Manifest? {
        header.isKind(.manifest) && header.storedLength == Manifest.size ? Manifest(at: body) : nil
    }
    var partKey: PartKey? { header.isKind(.part) && header.keyLength == PartKey.size ? PartKey(at: key) : nil }
}

/// A location, and the number of the segment that a reader without the lock found there. Bytes read there count if
/// `isUnchanged` holds afterwards, behind a fence.
struct Spot {
    let location: UInt32
    let at: Memory
    let address: RecordAddress
    let numberWord: Memory

    @inline(__always) var isUnchanged: Bool { numberWord.acquire(0) == address.number }
}

/// A record that was read without the lock, and its spot.
struct SpottedRecord {
    let spot: Spot
    let header: RecordHeader

    @inline(__always) var view: RecordView { RecordView(location: spot.location, at: spot.at, header: header) }
}

/// A record that was found by its frame and offset, and verified there.
struct SoundRecord {
    let view: RecordView
    /// Offset in its segment.
    let offset: Int
    let kind: RecordHeader.Kind
    let keyHash: UInt64

    @inline(__always) var end: Int { offset + view.length }
}

extension Log {
    /// Returns nil if no record can be there.
    @inline(__always)
    func record(_ location: UInt32) -> RecordView? { spot(location).flatMap { record(at: $0) } }

    /// Returns nil outside the shard's frames.
    @inline(__always)
    func spot(_ location: UInt32) -> Spot? {
        guard isInside(location) else { return nil }
        let row = frame(of: location), offset = offset(ofFrame: row) &+ offsetInSegment(location)
        let word = numberWord(row)
        return Spot(
            location: location, at: engine.pointee.data + offset,
            address: RecordAddress(number: word.acquire(0), offset: UInt64(truncatingIfNeeded: offset)),
            numberWord: word)
    }

    /// Returns the address of a location for a look without the lock; nil where no segment is: a load could raise a
    /// signal there.
    @inline(__always)
    func readableAddress(_ location: UInt32) -> Memory? {
        guard let spot = spot(location), spot.address.number != 0 else { return nil }
        return spot.at
    }

    /// (A frame without a number may lie beyond the end of the file.)
    @inline(__always)
    func record(at spot: Spot) -> RecordView? {
        guard spot.address.number != 0 else { return nil }
        let header = RecordHeader(at: spot.at)
        return header.isPlausible(room: segmentSize - offsetInSegment(spot.location))
            ? RecordView(location: spot.location, at: spot.at, header: header) : nil
    }

    /// For walks over a segment: returns the record at an offset, or nil if its head is not sound.
    @inline(__always)
    func soundRecord(frame: Int, offset: Int) -> SoundRecord? {
        let start = self.offset(ofFrame: frame) + offset, p = engine.pointee.data + start
        let header = RecordHeader(at: p)
        guard header.isPlausible(room: room(from: offset)), let kind = header.kind else { return nil }
        let keyHash = header.keyLength == 0 ? 0 : shim_hash(p + header.keyOffset, header.keyLength, secret)
        let here = RecordAddress(number: numberWord(frame).u64(0), offset: UInt64(start))
        guard header.verifiesHead(at: p, keyHash: keyHash, address: here, secret: secret) else { return nil }
        let view = RecordView(location: location(frame: frame, offset: offset), at: p, header: header)
        return SoundRecord(view: view, offset: offset, kind: kind, keyHash: keyHash)
    }

    /// Returns the first sound record from an offset on.
    func nextRecord(frame: Int, from offset: Int) -> SoundRecord? {
        nextRecord(frame: frame, from: offset, reading: .max).record
    }

    /// The same, but pauses once it has read so many bytes: bytes that look like a record's head name a key, which its
    /// check covers.
    @inline(never)
    func nextRecord(frame: Int, from first: Int, reading most: Int) -> Search {
        var offset = first, read = 0
        while offset <= segmentSize - RecordHeader.size, read < most {
            if let record = soundRecord(frame: frame, offset: offset) {
                return Search(record: record, end: record.offset, read: read)
            }
            let header = RecordHeader(at: engine.pointee.data + (self.offset(ofFrame: frame) + offset))
            read += RecordHeader.size + (header.isPlausible(room: room(from: offset)) ? header.keyLength : 0)
            offset += 8
        }
        return Search(record: nil, end: offset > segmentSize - RecordHeader.size ? segmentSize : offset, read: read)
    }

    struct Search {
        let record: SoundRecord?
        /// The record's offset, or where the search continues; the segment's end if no record can begin any more.
        let end: Int
        /// Bytes read that were no record.
        let read: Int
    }

    /// Returns the record that holds the value: this one, or the target of a touch record. Nil if the target has left
    /// the log.
    @inline(__always)
    func value(of record: RecordView) -> RecordView? { record.header.isKind(.touch) ? target(of: record) : record }

    @inline(never)
    private func target(of touch: RecordView) -> RecordView? {
        guard let target = touch.touchTarget, let value = record(target.location),
            segment(of: target.location) == target.number,
            !value.header.isKind(.touch)
        else { return nil }
        return value
    }

    /// Out of line: for everything but the hit path.
    @inline(never)
    func isHeadSound(_ record: RecordView) -> Bool {
        record.header.verifiesHead(at: record.at, address: recordAddress(of: record.location), secret: secret)
    }
    @inline(never)
    func isBodySound(_ record: RecordView) -> Bool {
        let header = record.header, mix = recordAddress(of: record.location).mix(secret: secret)
        return bodyHash(
            meta: record.at + header.metaOffset, metaLength: header.metaLength, stored: record.body,
            storedLength: header.storedLength, secret: secret)
            ^ mix == header.bodyCheck
    }

    /// Returns the record's length plus that of a touch record's target; nil if one of their checks fails.
    @inline(never)
    func soundBytes(_ location: UInt32) -> Int? {
        func isWhole(_ record: RecordView) -> Bool {
            record.header.keyLength > 0 && isHeadSound(record) && isBodySound(record)
        }
        guard let record = record(location), isWhole(record), let value = value(of: record) else { return nil }
        if value.location == location { return record.length }
        return isWhole(value) ? record.length + value.length : nil
    }
}
