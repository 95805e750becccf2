import CShalePlatform

extension Engine {
    /// Rebuilds shards in parallel, in threads that end with the call. Other handles that need a shard earlier rebuild
    /// it themselves.
    @inline(never)
    func rebuildShards() throws(Failure) {
        guard Shard.areSomeBeingRebuilt(ref) else { return }
        _ = FileLock.rebuilding.share(ref.pointee.files.data)
        defer { FileLock.rebuilding.release(ref.pointee.files.data) }
        let now = ref.pointee.clock.now48
        try takeStep(RebuildStep(engine: ref, now: now, waits: true))
        try takeStep(RebuildStep(engine: ref, now: now, waits: false))
    }

    private func takeStep(_ step: RebuildStep) throws(Failure) {
        let shards = ref.pointee.geometry.shards
        var step = step
        shim_for_each(
            shards, Sizes.rebuildingThreads,
            { number, step in
                // (A shard locked by another process is being rebuilt there.)
                try? step?.assumingMemoryBound(to: RebuildStep.self).pointee.take(number, waiting: .none)
            }, &step)
        // The caller's thread waits for others, and gets the error if one fails.
        for i in 0..<shards { try step.take(i, waiting: .ofCall) }
    }
}

private struct RebuildStep {
    let engine: EngineRef
    let now: UInt64
    /// Whether parts wait for the manifests of all shards, which the first step replays.
    let waits: Bool

    func take(_ number: Int, waiting patience: Patience) throws(Failure) {
        let shard = Shard(engine, number), moment = shard.header.moment
        if waits ? shard.header.hasManifests(moment) : !moment.isOfRebuild { return }
        try shard.rebuild(at: now, waits: waits, waiting: patience)
    }
}
