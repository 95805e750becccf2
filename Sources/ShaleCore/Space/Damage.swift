import CShalePlatform

/// The key of a damage record, which ends an entry that cannot be read.
///
/// The damaged record no longer identifies its key, but its slot still holds the key's hash bits and the record's
/// location. A rebuild unlinks entries with these hash bits at that location or before it; otherwise it would serve a
/// value that the damaged entry had superseded. Later records are kept. (Another key with the same hash bits, one in
/// 2^32 pairs, misses after the rebuild.)
struct Damage {
    static let size = 16
    static let length = RecordHeader.size + size

    let hashBits: UInt32
    /// Offset in the segment.
    let offset: UInt32
    let segment: UInt64

    init(hashBits: UInt32, offset: Int, segment: UInt64) {
        self.hashBits = hashBits
        self.offset = UInt32(truncatingIfNeeded: offset)
        self.segment = segment
    }
    init(at p: UnsafeRawPointer) {
        let word = p.loadUnaligned(as: UInt64.self)
        self.init(
            hashBits: UInt32(truncatingIfNeeded: word), offset: Int(word >> 32),
            segment: p.loadUnaligned(fromByteOffset: 8, as: UInt64.self))
    }
    var words: (UInt64, UInt64) { (UInt64(hashBits) | UInt64(offset) << 32, segment) }
}

extension ShardWriter {
    /// Unlinks a damaged entry and counts it. If the heads of its records are damaged, the sums are in doubt from now
    /// on.
    ///
    /// `isAtTail`: on a full disk the entry is unlinked without a damage record, or the cleaner could not pass it. The
    /// head takes its frame next, and that segment's header says that the log begins after everything the entry had
    /// superseded.
    func unlinkDamaged(_ slot: Slot, isAtTail: Bool = false) throws(Failure) {
        // A part needs no damage record: a part that it supersedes has the same bytes, and readers notice a missing
        // part.
        let isPart = slot.entry.isPart
        var isNoted = !isPart
        if isNoted, Damage.length > log.headRoom {
            do throws(Failure) { try log.roll() } catch {
                guard isAtTail, error.status == .full else { throw error }
                isNoted = false
            }
        }
        if !isPart { noteDamage(of: slot) }
        let m = reader.soundMeasure(slot.entry.location)
        if m == nil { doubtSums() }
        spend(4 * Share.lookup)
        table.clearCopy(of: slot)
        header.begin()
        if isNoted { appendDamage(of: slot) }
        header[Field.corrupt] += 1
        commitUnlink(slot, m ?? Measure())
    }

    /// Appends the damage record. Needs a transaction and room at the head.
    private func appendDamage(of slot: Slot) {
        let word0 = slot.entry, at = word0.location, segment = log.segment(of: at)
        let hashBits = table.hashBits(at: table.position(of: slot), word0, table.shape)
        // A slot that points to no segment is damaged itself: end everything written so far.
        let damage =
            segment != 0
            ? Damage(hashBits: hashBits, offset: log.offsetInSegment(at), segment: segment)
            : Damage(hashBits: hashBits, offset: log.headOffset, segment: log.headNumber)
        var words = damage.words
        withUnsafeBytes(of: &words) { key in
            var draft = Draft(
                RecordHeader(kind: .damage, keyLength: Damage.size), keyHash: shim_hash(key.start, Damage.size, secret),
                key: key.start)
            log.append(&draft, lsn: 0)
        }
    }
}
