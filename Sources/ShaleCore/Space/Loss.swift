import CShalePlatform

/// The key of a loss record: an entry that could not be read, and is no entry any more.
///
/// Whose it was, its record cannot say; its slot knows the fraction of the key's hash, and where the record is. A
/// rebuild drops what has this fraction and lies there or before, or it would serve what the entry had superseded.
/// What was written behind that place stays. (Another key with the same fraction may be hit, once in 2^32 pairs: a
/// miss after the rebuild.)
struct Loss {
    static let size = 16
    static let length = RecordHeader.size + size

    let fraction: UInt32
    /// In the segment.
    let offset: UInt32
    let segment: UInt64

    init(fraction: UInt32, offset: Int, segment: UInt64) {
        self.fraction = fraction
        self.offset = UInt32(truncatingIfNeeded: offset)
        self.segment = segment
    }
    init(at p: UnsafeRawPointer) {
        let word = p.loadUnaligned(as: UInt64.self)
        self.init(
            fraction: UInt32(truncatingIfNeeded: word), offset: Int(word >> 32),
            segment: p.loadUnaligned(fromByteOffset: 8, as: UInt64.self))
    }
    var words: (UInt64, UInt64) { (UInt64(fraction) | UInt64(offset) << 32, segment) }
}

extension ShardWriter {
    /// Takes a damaged entry out of the index, for good, and counts it. Where its records' heads are what is damaged, the
    /// sums are in doubt from here on.
    ///
    /// `isAtTail`: on a full disk it goes without a loss record, or the cleaner could not pass it. Its frame is the next that
    /// the head takes, and the header of that says that the log begins behind everything that the entry had superseded.
    func lose(_ slot: Slot, isAtTail: Bool = false) throws(Failure) {
        // What a part supersedes has the same bytes, and a large value without a part is noticed.
        let isPart = slot.entry.isPart
        var isNoted = !isPart
        if isNoted, Loss.length > log.headRoom {
            do throws(Failure) { try log.roll() } catch {
                guard isAtTail, error.status == .full else { throw error }
                isNoted = false
            }
        }
        if !isPart { noteLoss(of: slot) }
        let m = reader.soundMeasure(slot.entry.location)
        if m == nil { doubtSums() }
        spend(4 * Share.lookup)
        table.forgetCopy(of: slot)
        header.begin()
        if isNoted { appendLoss(of: slot) }
        header[Field.corrupt] += 1
        takeOut(slot, m ?? Measure())
    }

    /// Within a transaction, where the head has room.
    private func appendLoss(of slot: Slot) {
        let word0 = slot.entry, at = word0.location, segment = log.segment(of: at)
        let fraction = table.fraction(at: table.position(of: slot), word0, table.shape)
        // A slot that leads nowhere is damaged itself: all that was written so far.
        let loss =
            segment != 0
            ? Loss(fraction: fraction, offset: log.offsetInSegment(at), segment: segment)
            : Loss(fraction: fraction, offset: log.headOffset, segment: log.headNumber)
        var words = loss.words
        withUnsafeBytes(of: &words) { key in
            var draft = Draft(
                RecordHeader(kind: .loss, keyLength: Loss.size), keyHash: shim_hash(key.start, Loss.size, secret),
                key: key.start)
            log.append(&draft, lsn: 0)
        }
    }
}
