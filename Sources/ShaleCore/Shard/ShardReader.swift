import CShalePlatform

/// A shard, read without its lock. All it returns may change at any moment: a reader checks again
/// (`Operations/Get.swift`) or holds the lock. Stamps and counters may be changed without the lock.
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
