import CShalePlatform

/// Sums over a shard's slots.
struct Sums {
    let entries, used, live, raw, stored, pinned, pinnedBytes, pinnedMost: ShardHeader.Count
    /// 16 consecutive counts.
    let dictionaries: ShardHeader.Count

    private typealias Field = ShardHeader.Field

    @inline(__always) static var running: Sums {
        Sums(
            entries: Field.entries, used: Field.used, live: Field.live, raw: Field.raw, stored: Field.stored,
            pinned: Field.pinned, pinnedBytes: Field.pinnedBytes, pinnedMost: Field.pinnedMost,
            dictionaries: Field.dictionaries)
    }
    static var audited: Sums {
        let first = Field.auditedSums
        return Sums(
            entries: first[0], used: first[1], live: first[2], raw: first[3], stored: first[4], pinned: first[5],
            pinnedBytes: first[6], pinnedMost: first[7], dictionaries: first[8])
    }

    @inline(never)
    func forEach(with other: Sums, _ body: (ShardHeader.Count, ShardHeader.Count) -> Void) {
        body(entries, other.entries)
        body(used, other.used)
        body(live, other.live)
        body(raw, other.raw)
        body(stored, other.stored)
        body(pinned, other.pinned)
        body(pinnedBytes, other.pinnedBytes)
        body(pinnedMost, other.pinnedMost)
        for i in 0..<16 { body(dictionaries[i], other.dictionaries[i]) }
    }
}

/// The sizes of an entry, read from its records.
struct Measure {
    var bytes = 0
    var raw = 0
    var stored = 0
    /// Equals `bytes` if the entry is pinned, else 0.
    var pinned = 0
    var dictionary: UInt16 = 0
    /// LSN of the value.
    var lsn: UInt64 = 0
    var blob = Change.Blob()
}

extension Measure {
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
            (m.raw, m.stored) = (0, 0) // the manifest counts for its parts
        }
        if value.location != location {
            m.bytes += record.length
            m.pinned = record.header.isPinned ? m.bytes : 0
        }
        return m
    }

    /// Returns an entry's sizes if all its records are intact: the sums contain exactly these.
    @inline(never)
    func soundMeasure(_ location: UInt32) -> Measure? {
        guard let record = log.record(location), log.isHeadSound(record) else { return nil }
        if record.header.isKind(.value) { return Measure(record.header) }
        guard let value = log.value(of: record),
            // A touch record and a manifest keep their data in the body.
            value.location == location || log.isBodySound(record) && log.isHeadSound(value),
            value.manifest == nil || log.isBodySound(value)
        else { return nil }
        return measure(location)
    }

    /// Live records that need a dictionary, by its number modulo the frames.
    func dictionaryField(_ number: UInt16) -> ShardHeader.Count { Field.dictionaries[dictionaryIndex(number)] }
    @inline(__always)
    fileprivate func dictionaryIndex(_ number: UInt16) -> Int { Int(number) % max(1, geometry.dictionaryFrames) }

    @inline(__always)
    func forEachSlot<E: Error>(_ body: (_ slot: Slot, _ word0: SlotEntry) throws(E) -> Void) throws(E) {
        try table.forEachSlot { slot, word0, _ throws(E) in try body(slot, word0) }
    }
}

extension ShardWriter {
    @inline(__always)
    func account(_ m: Measure, sign: Int, _ hashBits: @autoclosure () -> UInt32) {
        add(m, sign: sign, to: .running)
        if isAuditing { audit(m, sign: sign, hashBits()) }
    }
    @inline(never)
    func account(_ m: Measure, sign: Int, of slot: Slot) { account(m, sign: sign, table.hashBits(of: slot)) }

    func count(_ word0: SlotEntry, sign: Int, _ hashBits: @autoclosure () -> UInt32) {
        count(word0, sign: sign, in: .running)
        header.release(Field.entriesHint, UInt64(header[Field.entries]))
        if isAuditing { audit(word0, sign: sign, hashBits()) }
    }

    /// Replaces one entry by another of the same key and kind.
    @inline(__always)
    func exchange(_ old: Measure, _ oldWord0: SlotEntry, for new: Measure, _ newFlags: UInt64, _ hashBits: UInt32) {
        let sums = Sums.running
        adjust(sums.live, new.bytes &- old.bytes)
        adjust(sums.raw, new.raw &- old.raw)
        adjust(sums.stored, new.stored &- old.stored)
        if old.pinned | new.pinned != 0 {
            addPinned(old.pinned, sign: -1, to: sums.pinnedBytes, sums.pinnedMost)
            addPinned(new.pinned, sign: 1, to: sums.pinnedBytes, sums.pinnedMost)
        }
        if old.dictionary != new.dictionary {
            add(dictionary: old.dictionary, sign: -1, to: sums)
            add(dictionary: new.dictionary, sign: 1, to: sums)
        }
        let isPinned = newFlags & SlotEntry.pinnedBit != 0
        if oldWord0.isPinned != isPinned { adjust(sums.pinned, isPinned ? 1 : -1) }
        if isAuditing { auditExchange(old, oldWord0, for: new, newFlags, hashBits) }
    }

    // MARK: In one set of sums

    private func adjust(_ field: ShardHeader.Count, _ delta: Int) { header[field] = max(0, header[field] &+ delta) }

    @inline(__always)
    private func add(_ m: Measure, sign: Int, to sums: Sums) {
        adjust(sums.live, sign * m.bytes)
        adjust(sums.raw, sign * m.raw)
        adjust(sums.stored, sign * m.stored)
        if m.pinned != 0 { addPinned(m.pinned, sign: sign, to: sums.pinnedBytes, sums.pinnedMost) }
        add(dictionary: m.dictionary, sign: sign, to: sums)
    }

    @inline(__always)
    private func add(dictionary: UInt16, sign: Int, to sums: Sums) {
        if dictionary != 0 { adjust(sums.dictionaries[reader.dictionaryIndex(dictionary)], sign) }
    }

    /// (Takes words: with all sums, every change would build them in memory for the call.)
    @inline(never)
    private func addPinned(_ bytes: Int, sign: Int, to sum: ShardHeader.Count, _ longest: ShardHeader.Count) {
        adjust(sum, sign * bytes)
        let most = header[longest]
        if sign > 0 {
            // (Lengths are multiples of 8.)
            if bytes > most { header[longest] = bytes | most & 1 }
        } else if header[sum] == 0 {
            header[longest] = 0
        } else if bytes == most & ~1 {
            header[longest] = most | 1
        }
    }

    @inline(__always)
    private func count(_ word0: SlotEntry, sign: Int, in sums: Sums) {
        adjust(sums.used, sign)
        if word0.isPart { return }
        adjust(sums.entries, sign)
        if word0.isPinned { adjust(sums.pinned, sign) }
    }

    // MARK: During an audit

    @inline(__always) var isAuditing: Bool { header[Field.auditAt] != 0 }

    private func isAudited(_ hashBits: UInt32) -> Bool {
        UInt64(hashBits) & (Table.allHashBits - 1) < header[Field.auditAt] &- ShardHeader.auditBegins
    }

    @inline(never)
    func addToAudit(_ m: Measure, sign: Int) { add(m, sign: sign, to: .audited) }
    @inline(never)
    func countInAudit(_ word0: SlotEntry, sign: Int) { count(word0, sign: sign, in: .audited) }

    @inline(never)
    private func audit(_ m: Measure, sign: Int, _ hashBits: UInt32) {
        if isAudited(hashBits) { addToAudit(m, sign: sign) }
    }
    @inline(never)
    private func audit(_ word0: SlotEntry, sign: Int, _ hashBits: UInt32) {
        if isAudited(hashBits) { countInAudit(word0, sign: sign) }
    }
    @inline(never)
    private func auditExchange(
        _ old: Measure, _ oldWord0: SlotEntry, for new: Measure, _ newFlags: UInt64, _ hashBits: UInt32
    ) {
        guard isAudited(hashBits) else { return }
        addToAudit(old, sign: -1)
        countInAudit(oldWord0, sign: -1)
        addToAudit(new, sign: 1)
        countInAudit(SlotEntry(newFlags), sign: 1)
    }
}
