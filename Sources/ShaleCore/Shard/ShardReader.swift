import CShalePlatform

/// A shard without its lock: what it says may change at any moment, and a reader looks again (`Operations/Get.swift`), or
/// holds the lock. Stamps and counters are everyone's.
struct ShardReader: ShardParts {
    let log: Log

    @inline(__always) var shard: Shard { Shard(log) }

    @inline(__always) func nextStamp() -> UInt64 {
        let stamp = shim_add64(header.address(Field.stamp), 1) &+ 1
        return stamp
    }
    func drawLSN() -> UInt64 { shim_add64(engine.pointee.head.address(IndexHead.lsn), 1) &+ 1 }
}

extension ShardParts where Self: ~Copyable {
    @inline(__always) var reader: ShardReader { ShardReader(log: log) }
}
