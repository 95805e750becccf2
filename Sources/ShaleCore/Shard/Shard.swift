import CShalePlatform

/// A complete small cache: one lock for writers, one slot table, one log.
///
/// Invariants, under the lock while `state` is quiet
/// - every slot points to a record of the log whose key has the slot's fraction;
/// - `entries`, `used`, `live`, `raw`, `stored` and `pinned` are the sums over the slots;
/// - the queue holds the log's frames from the tail to the head, numbers ascending;
/// - at least `Log.reserve` frames are left for the cleaner.
struct Shard {
    typealias Field = ShardHeader.Field

    let log: Log

    @inline(__always) init(_ engine: EngineRef, _ number: Int) { log = Log(engine, number) }

    @inline(__always) init(_ engine: EngineRef, keyHash: UInt64) {
        self.init(
            engine,
            scaled(UInt32(truncatingIfNeeded: keyHash >> 32), to: engine.pointee.geometry.shards)
        )
    }

    @inline(__always) var engine: EngineRef { log.engine }
    @inline(__always) var number: Int { log.number }
    @inline(__always) var header: ShardHeader { log.header }
    @inline(__always) var geometry: Geometry { @inline(__always) get { engine.pointee.geometry } }
    @inline(__always) var secret: UInt64 { engine.pointee.secret }
    @inline(__always) var table: Table {
        Table(
            header: header, buckets: engine.pointee.buckets + number &* Table.chunkBytes,
            gap: engine.pointee.geometry.chunkGap)
    }
    @inline(__always) var isAdaptive: Bool { log.isAdaptive }
    var chunks: Chunks { Chunks(engine: engine, shard: number) }
    var tags: TagTable { TagTable(header: header, table: table) }
    var leases: LeaseTable {
        LeaseTable(at: header.at + engine.pointee.geometry.leases, groups: engine.pointee.geometry.leaseGroups)
    }
    var largeWriters: LargeWriters {
        LargeWriters(at: header.at + engine.pointee.geometry.writers, groups: engine.pointee.geometry.writerGroups)
    }
    /// Those among whom a blob's writer is, in whichever shard that is.
    static func largeWriters(_ engine: EngineRef, of blob: UInt64) -> LargeWriters {
        Shard(engine, keyHash: LargeWriters.hash(blob)).largeWriters
    }
    var fences: FenceTable {
        FenceTable(at: header.at + engine.pointee.geometry.fences, lines: engine.pointee.geometry.fenceLines)
    }
    var useTimes: UseTimes { UseTimes(header: header, at: header.at + engine.pointee.geometry.useTimes) }
    var victims: Victims { Victims(table: table) }

    // MARK: Time and recency

    @inline(__always) func nextStamp() -> UInt64 {
        let stamp = shim_add64(header.address(Field.stamp), 1) &+ 1
        return stamp
    }
    func raiseEpoch(by step: UInt64) {
        header.release(Field.epoch, header[Field.epoch] &+ step)
        shim_fence()
    }

    func drawLSN() -> UInt64 { shim_add64(engine.pointee.head.address(IndexHead.lsn), 1) &+ 1 }
}
