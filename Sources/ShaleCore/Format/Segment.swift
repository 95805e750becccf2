import CShalePlatform

/// A point of a shard's log.
struct LogPosition: Equatable {
    var number: UInt64 = 0
    var offset = 0

    func isBefore(_ other: LogPosition) -> Bool {
        number < other.number || number == other.number && offset < other.offset
    }
}

/// The header at the start of each segment. Words: magic · shard (32) and frame (32) · number · number of the previous
/// segment in the log · number of the log's tail when this one began · check over all of it · the lsn counter at that
/// time (so that versions stay new where a clear leaves no record) · the tail's offset in its segment (32).
///
/// A rebuild takes the highest number as the head; the log is every segment from the furthest tail that any header
/// names to the head. Older segments are free.
struct SegmentHeader {
    static let size = 64
    private static let magic: UInt64 = 0x3147_4553_454C_4853 // "SHLESEG1"

    let shard: Int
    let frame: Int
    let number: UInt64
    let previous: UInt64
    let tail: LogPosition
    let lsn: UInt64

    func write(to p: Memory, secret: UInt64) {
        // The check is destroyed first and written last: a kill leaves the old header invalid, never a mixture.
        p.set(40, 0)
        shim_fence_release()
        p.set(0, SegmentHeader.magic)
        p.set(8, UInt64(shard) << 32 | UInt64(frame))
        p.set(16, number)
        p.set(24, previous)
        p.set(32, tail.number)
        p.set(48, lsn)
        p.set(56, int: tail.offset)
        p.release(40, check(secret))
    }

    /// Makes the header invalid: the frame holds no segment any more.
    static func destroy(at p: Memory) { p.release(40, 0) }

    /// Replaces a header that may already be on the disk, and is valid there before and after.
    func replace(at offset: Int, _ files: CacheFiles, secret: UInt64) throws(Failure) {
        try withUnsafeTemporaryAllocation(byteCount: SegmentHeader.size, alignment: 8) { bytes throws(Failure) in
            let p = bytes.baseAddress.unsafelyUnwrapped
            write(to: p, secret: secret)
            try files.writeData(p, SegmentHeader.size, at: offset)
        }
    }

    /// Nil where the bytes are not the header of this frame.
    init?(at p: Memory, shard: Int, frame: Int, secret: UInt64) {
        guard p.u64(0) == SegmentHeader.magic, p.u64(8) == UInt64(shard) << 32 | UInt64(frame) else { return nil }
        let offset = p.u64(56)
        self.init(
            shard: shard, frame: frame, number: p.u64(16), previous: p.u64(24),
            tail: LogPosition(number: p.u64(32), offset: Int(truncatingIfNeeded: offset)),
            lsn: p.u64(48))
        guard p.u64(40) == check(secret), number > 0, number < Numbers.end, lsn < Numbers.end,
            tail.number <= number, offset < 1 << 32, previous < number
        else { return nil }
    }

    init(shard: Int, frame: Int, number: UInt64, previous: UInt64, tail: LogPosition, lsn: UInt64) {
        self.shard = shard
        self.frame = frame
        self.number = number
        self.previous = previous
        self.tail = tail
        self.lsn = lsn
    }

    private func check(_ secret: UInt64) -> UInt64 {
        var input = (
            SegmentHeader.magic, UInt64(shard) << 32 | UInt64(frame), number, previous, tail.number, lsn,
            UInt64(truncatingIfNeeded: tail.offset)
        )
        return withUnsafeBytes(of: &input) { shim_hash($0.start, 56, secret) }
    }
}
