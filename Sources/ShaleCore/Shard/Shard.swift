import CShalePlatform

/// The components of a shard. `Shard` gives anyone access, `ShardReader` reads without the lock, `ShardWriter` changes
/// what the lock guards.
protocol ShardParts: ~Copyable {
    var log: Log { get }
}

extension ShardParts where Self: ~Copyable {
    typealias Field = ShardHeader.Field

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
    @inline(__always) var isClock: Bool { log.isClock }
    @inline(__always) var chunks: Chunks { Chunks(engine: engine, shard: number) }
    @inline(__always) var tags: TagTable { TagTable(header: header, table: table) }
    @inline(__always) var leases: LeaseTable {
        LeaseTable(at: header.at + engine.pointee.geometry.leases, groups: engine.pointee.geometry.leaseGroups)
    }
    @inline(__always) var largeWriters: LargeWriters {
        LargeWriters(
            at: header.at + engine.pointee.geometry.writers, groups: engine.pointee.geometry.writerGroups,
            owner: engine.pointee.owner)
    }
    @inline(__always) var fences: FenceTable {
        FenceTable(at: header.at + engine.pointee.geometry.fences, lines: engine.pointee.geometry.fenceLines)
    }
    @inline(__always) var accessClock: AccessClock {
        AccessClock(header: header, at: header.at + engine.pointee.geometry.accessClock)
    }
    @inline(__always) var victims: Victims { Victims(table: table) }
}

/// A complete small cache: one lock for writers, one slot table, one log.
///
/// Invariants, under the lock while `state` is quiet
/// - every slot points to a record of the log whose key has the slot's hash bits;
/// - `entries`, `used`, `live`, `raw`, `stored` and `pinned` are the sums over the slots;
/// - the queue holds the log's frames from the tail to the head, in ascending order of their numbers;
/// - at least `Log.reserve` frames are left for the cleaner.
struct Shard: ShardParts {
    let log: Log

    @inline(__always) init(_ log: Log) { self.log = log }
    @inline(__always) init(_ engine: EngineRef, _ number: Int) { log = Log(engine, number) }

    @inline(__always) init(_ engine: EngineRef, keyHash: UInt64) {
        self.init(
            engine,
            scaled(UInt32(truncatingIfNeeded: keyHash >> 32), to: engine.pointee.geometry.shards)
        )
    }

    /// Returns the table that holds a blob's writer, in whichever shard it is.
    static func largeWriters(_ engine: EngineRef, of blob: UInt64) -> LargeWriters {
        Shard(engine, keyHash: LargeWriters.hash(blob)).largeWriters
    }
}
