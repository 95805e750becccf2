import CShalePlatform

/// A new index: its shards are rebuilt while others may use the cache.
extension Engine {
    /// Rebuilds what is to be rebuilt, side by side, in threads that end with the call. Others may be attached: whoever
    /// needs a shard before its turn has come rebuilds it himself.
    @inline(never)
    func rebuildShards() throws(Failure) {
        guard Shard.areSomeBeingRebuilt(ref) else { return }
        _ = FileLock.rebuilding.share(ref.pointee.files.data)
        defer { FileLock.rebuilding.release(ref.pointee.files.data) }
        let now = ref.pointee.clock.now48
        takeStep(RebuildStep(engine: ref, now: now, waits: true))
        takeStep(RebuildStep(engine: ref, now: now, waits: false))
        // What fails says why in the caller's thread.
        for i in 0..<ref.pointee.geometry.shards where Shard(ref, i).header.isBeingRebuilt {
            try Shard(ref, i).rebuild(at: now, waits: false)
        }
    }

    private func takeStep(_ step: RebuildStep) {
        var step = step
        shim_for_each(ref.pointee.geometry.shards, Sizes.rebuildingThreads, { RebuildStep.take($0, $1) }, &step)
    }
}

/// What the threads of a rebuild are told.
private struct RebuildStep {
    let engine: EngineRef
    let now: UInt64
    let waits: Bool

    static func take(_ number: Int, _ step: UnsafeMutableRawPointer?) {
        guard let step = step?.assumingMemoryBound(to: RebuildStep.self).pointee else { return }
        let shard = Shard(step.engine, number)
        if step.waits ? shard.header.isBeingRebuilt : shard.header.lacksParts {
            try? shard.rebuild(at: step.now, waits: step.waits)
        }
    }
}
