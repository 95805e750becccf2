/// The space of a shard's table in `shale.index`: its chunks, which alternate with those of the other shards. Bytes are
/// counted as if the chunks were contiguous.
struct Chunks {
    let engine: EngineRef
    let shard: Int

    private var geometry: Geometry { engine.pointee.geometry }

    /// Allocates space, which must be unused. (Of all chunks' heap pages, the heaps fill at most the first half.)
    func allocate(from: Int, to: Int) throws(Failure) {
        let guarded = PageCacheGuard(engine: engine)
        try geometry.forEachPiece(shard, from: from, to: to) { offset, count throws(Failure) in
            guarded.releasePages(inIndex: true, offset, count)
            try engine.pointee.files.allocateIndex(offset, count)
            guarded.touchEnds(inIndex: true, offset, count)
        }
        if from < to { guarded.separateChunk(of: shard, behind: to) }
    }

    func release(from: Int, to: Int) -> Bool {
        var isReleased = true
        geometry.forEachPiece(shard, from: from, to: to) { offset, count in
            if !engine.pointee.files.releaseIndex(offset, count) { isReleased = false }
        }
        var at = from
        while at < to {
            PageCacheGuard(engine: engine).separateChunk(of: shard, behind: at)
            at = (at / Table.chunkBytes + 1) * Table.chunkBytes
        }
        return isReleased
    }
}
