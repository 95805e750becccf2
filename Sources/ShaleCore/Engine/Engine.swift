import CShalePlatform

/// An open cache: the floor below every interface.
///
/// A copyable reference to raw memory; every function may be called from any
/// thread until `close`. Errors leave their sentence in the thread's error slot.
public struct Engine: @unchecked Sendable {
    let ref: EngineRef

    init(_ ref: EngineRef) { self.ref = ref }
    public init(opaque: OpaquePointer) { ref = EngineRef(opaque) }
    public var opaque: OpaquePointer { OpaquePointer(ref) }

    // MARK: Keys and ages

    @inline(__always)
    func key(_ bytes: Bytes) throws(Failure) -> Key {
        if UInt(bitPattern: bytes.count &- 1) >= UInt(Limits.keyLength) { throw Engine.badKey(bytes.count) }
        return Key(bytes, secret: ref.pointee.secret)
    }
    @inline(never)
    private static func badKey(_ count: Int) -> Failure {
        if count == 0 { return Failure.because(.invalid, "the key is empty; a key has 1 to 65,535 bytes") }
        return Message().adding("the key has ").adding(count).adding(" bytes; a key has at most 65,535").failure(.tooLarge)
    }

    func tag(_ bytes: Bytes) throws(Failure) -> UInt64 {
        if bytes.count == 0 { throw Failure.because(.invalid, "the tag is empty; a tag has 1 to 65,535 bytes") }
        if bytes.count > Limits.keyLength { throw Message().adding("the tag has ").adding(bytes.count).adding(" bytes; a tag has at most 65,535").failure(.invalid) }
        // 0 is a free place of the tag table.
        return max(1, shim_hash(bytes.start, bytes.count, ~ref.pointee.secret))
    }

    func ages(_ maxAge: Int64, _ stale: Int64) throws(Failure) -> (maxAge: Int64, stale: Int64) {
        guard Configuration.isAge(maxAge), Configuration.isAge(stale) else {
            throw Failure.because(.invalid, "an age is negative; use 0 for the default, SHALE_NEVER or SHALE_NONE")
        }
        return (maxAge == 0 ? ref.pointee.maxAge : maxAge, stale == 0 ? ref.pointee.stale : stale)
    }

    // MARK: Counters

    @inline(__always)
    func count(_ field: Int) {
        if ref.pointee.isReadOnly { return }
        let stripe = Int(truncatingIfNeeded: (shim_thread_number() &* 0x9E37_79B1) >> 12) & (IndexHead.stripes - 1)
        _ = shim_add64(ref.pointee.index + (IndexHead.counters &+ stripe &* 64 &+ field), 1)
    }

    // MARK: Aftermath

    /// A change in a shard, and what follows it once the lock is released.
    @inline(__always)
    func change<R>(_ shard: Shard, _ body: (inout Aftermath) throws(Failure) -> R) throws(Failure) -> R {
        var after = Aftermath()
        var crowded = 0
        while true {
            do throws(Failure) {
                let result = try shard.change(&after, body)
                if after.blobCount > 0 || after.wantsPlace { settle(shard, &after) }
                return result
            } catch {
                let settled = after.blobCount > 0
                // (Preparing a place could fail too, and put its sentence over that of this error.)
                after.wantsPlace = false
                if settled { settle(shard, &after) }
                // Other shards' parts fill this one: their owners go, and it is tried again.
                let part = after.crowdedBy
                after.crowdedBy = nil
                guard error.status == .full, part != nil || settled, crowded < 4096 else { throw error }
                crowded += 1
                guard let part else { continue }
                let owner = Shard(ref, keyHash: part.owner)
                try owner.change(&after) { after throws(Failure) in owner.evictOwner(part, &after) }
                settle(owner, &after)
            }
        }
    }

    @inline(never)
    private func settle(_ shard: Shard, _ after: inout Aftermath) {
        if after.wantsPlace {
            after.wantsPlace = false
            shard.prepareNextPlace()
        }
        let blobs = after.blobs, count = after.blobCount
        after.blobCount = 0
        for i in 0..<count {
            clearParts(i == 0 ? blobs.0 : i == 1 ? blobs.1 : i == 2 ? blobs.2 : blobs.3)
        }
    }

    /// One shard's lock at a time; a rebuild or the cleaner finds what a kill leaves.
    func clearParts(_ blob: Aftermath.Blob) {
        for i in 0..<blob.parts {
            PartKey(blob: blob.blob, owner: blob.owner, part: i).withKey(ref.pointee.secret) { key in
                let shard = Shard(ref, keyHash: key.hash)
                if shard.lookup(key, isPart: true) == nil { return }
                var after = Aftermath()
                try? shard.change(&after) { after throws(Failure) in shard.clearPart(key, &after) }
            }
        }
    }
}
