import CShalePlatform

/// How far each shard's log is known to be on the disk, and where it began then; written after a sync. Two tables of 16
/// bytes a shard: segment number, offset (32) and check (32). They state facts that stay true, so each is written by
/// itself.
struct SyncedPosition {
    var number: UInt64
    var offset: Int

    func covers(_ segment: UInt64, _ at: Int) -> Bool { segment < number || segment == number && at < offset }

    static let size = 16

    /// Tails count as entries behind all positions, so that no tail passes for another shard's position.
    private static func check(_ engine: EngineRef, _ entry: Int, _ number: UInt64, _ offset: UInt64) -> UInt64 {
        var input = (UInt64(entry), number, offset)
        return withUnsafeBytes(of: &input) { shim_hash($0.start, 24, engine.pointee.secret) } << 32
    }

    /// Returns zeros if nothing was written; nil if the check fails.
    private static func load(_ engine: EngineRef, _ entry: Int) -> LogPosition? {
        let p = engine.pointee.data + engine.pointee.geometry.syncTable + entry * size
        let number = p.u64(0), rest = p.u64(8), offset = rest & 0xFFFF_FFFF
        if number == 0, rest == 0 { return LogPosition() }
        guard rest == offset | check(engine, entry, number, offset), number < Numbers.end else { return nil }
        return LogPosition(number: number, offset: Int(offset))
    }

    /// Writes both words at once: half a position is a damaged one, which promises everything and would cost intact
    /// entries.
    private static func store(_ engine: EngineRef, _ entry: Int, _ position: LogPosition) throws(Failure) {
        var words = (
            position.number, UInt64(position.offset) | check(engine, entry, position.number, UInt64(position.offset))
        )
        try withUnsafeMutableBytes(of: &words) { bytes throws(Failure) in
            try engine.pointee.files.writeData(
                bytes.baseAddress.unsafelyUnwrapped, size, at: engine.pointee.geometry.syncTable + entry * size)
        }
    }

    /// Reads a position. A damaged one promises everything, so that no old record can come back.
    static func read(_ engine: EngineRef, shard: Int) -> SyncedPosition {
        load(engine, shard).map { SyncedPosition(number: $0.number, offset: $0.offset) }
            ?? SyncedPosition(number: .max, offset: .max)
    }

    func write(_ engine: EngineRef, shard: Int) throws(Failure) {
        try SyncedPosition.store(engine, shard, LogPosition(number: number, offset: offset))
    }

    /// Reads where the log began. A damaged entry proves nothing.
    static func tail(_ engine: EngineRef, shard: Int) -> LogPosition {
        load(engine, engine.pointee.geometry.shards + shard) ?? LogPosition()
    }

    static func writeTail(_ engine: EngineRef, shard: Int, _ tail: LogPosition) throws(Failure) {
        try store(engine, engine.pointee.geometry.shards + shard, tail)
    }
}
