import CShalePlatform

/// What an entry takes, read from its records.
struct Measure {
    var bytes = 0
    var raw = 0
    var stored = 0
    /// All of `bytes`, where nothing may evict it.
    var pinned = 0
    var dictionary: UInt16 = 0
    /// Of the value.
    var lsn: UInt64 = 0
    var blob = Change.Blob()
}

extension Measure {
    /// A record by itself: all there is to a plain value.
    @inline(__always) init(_ record: RecordHeader) {
        let length = record.length
        self.init(
            bytes: length, raw: record.rawLength, stored: record.storedLength, pinned: record.isPinned ? length : 0,
            dictionary: record.codec == RecordHeader.Codec.dictionary ? record.dictionary : 0, lsn: record.lsn)
    }
}

extension ShardReader {
    @inline(never)
    func measure(_ location: UInt32) -> Measure {
        guard let record = log.record(location) else { return Measure() }
        if record.header.isKind(.value) { return Measure(record.header) }
        guard let value = log.value(of: record) else { return Measure(record.header) }
        var m = Measure(value.header)
        if let manifest = value.manifest, manifest.isPlausible {
            m.stored = Int(manifest.storedLength)
            m.blob = Change.Blob(
                blob: manifest.blob, owner: shim_hash(value.key, value.header.keyLength, secret),
                parts: Int(manifest.partCount))
        } else if value.header.isKind(.part) {
            (m.raw, m.stored) = (0, 0) // the manifest counts for all
        }
        if value.location != location {
            m.bytes += record.length
            m.pinned = record.header.isPinned ? m.bytes : 0
        }
        return m
    }

    /// How many current records of this shard need a dictionary; by its number, modulo the frames.
    func dictionaryField(_ number: UInt16) -> ShardHeader.Count {
        Field.dictionaries[Int(number) % max(1, geometry.dictionaryFrames)]
    }

    @inline(__always)
    func forEachSlot<E: Error>(_ body: (_ slot: Slot, _ word0: SlotEntry) throws(E) -> Void) throws(E) {
        try table.forEachSlot { slot, word0, _ throws(E) in try body(slot, word0) }
    }
}

extension ShardWriter {
    private func adjust(_ field: ShardHeader.Count, _ delta: Int) { header[field] = max(0, header[field] &+ delta) }

    func account(_ m: Measure, sign: Int) {
        adjust(Field.live, sign * m.bytes)
        adjust(Field.raw, sign * m.raw)
        adjust(Field.stored, sign * m.stored)
        if m.pinned != 0 { accountPinned(m.pinned, sign: sign) }
        if m.dictionary != 0 { adjust(reader.dictionaryField(m.dictionary), sign) }
    }

    @inline(never)
    private func accountPinned(_ bytes: Int, sign: Int) {
        adjust(Field.pinnedBytes, sign * bytes)
        let most = header[Field.pinnedMost]
        if sign > 0 {
            // (Lengths are multiples of 8.)
            if bytes > most { header[Field.pinnedMost] = bytes | most & 1 }
        } else if header[Field.pinnedBytes] == 0 {
            header[Field.pinnedMost] = 0
        } else if bytes == most {
            header[Field.pinnedMost] = most | 1
        }
    }

    /// One entry in the place of another, of the same key and kind.
    @inline(__always)
    func exchange(_ old: Measure, _ oldWord0: SlotEntry, for new: Measure, _ newFlags: UInt64) {
        adjust(Field.live, new.bytes &- old.bytes)
        adjust(Field.raw, new.raw &- old.raw)
        adjust(Field.stored, new.stored &- old.stored)
        if old.pinned | new.pinned != 0 {
            accountPinned(old.pinned, sign: -1)
            accountPinned(new.pinned, sign: 1)
        }
        if old.dictionary != new.dictionary {
            if old.dictionary != 0 { adjust(reader.dictionaryField(old.dictionary), -1) }
            if new.dictionary != 0 { adjust(reader.dictionaryField(new.dictionary), 1) }
        }
        let isPinned = newFlags & SlotEntry.pinnedBit != 0
        if oldWord0.isPinned != isPinned { adjust(Field.pinned, isPinned ? 1 : -1) }
    }

    func count(_ word0: SlotEntry, sign: Int) {
        adjust(Field.used, sign)
        if word0.isPart { return }
        adjust(Field.entries, sign)
        header.release(Field.entriesHint, UInt64(header[Field.entries]))
        if word0.isPinned { adjust(Field.pinned, sign) }
    }

    /// Sums up anew from the slots, after damage has made the running sums unsure.
    func recount() {
        header.pend(ShardHeader.Pending.recount)
        for field in [
            Field.entries, Field.used, Field.live, Field.raw, Field.stored, Field.pinned, Field.pinnedBytes,
            Field.pinnedMost,
        ] { header[field] = 0 }
        for i in 0..<16 { header[Field.dictionaries[i]] = 0 }
        reader.forEachSlot { slot, word0 in
            account(reader.measure(word0.location), sign: 1)
            count(word0, sign: 1)
        }
        header.finish(ShardHeader.Pending.recount)
    }
}
