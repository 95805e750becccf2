/// The space of a shard's table in `shale.index`: its chunks, between those of the other shards. Bytes are counted as
/// if the chunks followed each other.
struct Chunks {
    let engine: EngineRef
    let shard: Int

    private var geometry: Geometry { engine.pointee.geometry }

    /// What lies there is unused. (Of the pages that the heaps share, they take the first half at most.)
    func allocate(from: Int, to: Int) throws(Failure) {
        let holes = Holes(engine: engine)
        try geometry.forEachPiece(shard, from: from, to: to) { offset, count throws(Failure) in
            holes.forget(inIndex: true, offset, count)
            try engine.pointee.files.allocateIndex(offset, count)
            holes.touchEnds(inIndex: true, offset, count)
        }
        if from < to { holes.partChunk(of: shard, behind: to) }
    }

    func release(from: Int, to: Int) -> Bool {
        var isReleased = true
        geometry.forEachPiece(shard, from: from, to: to) { offset, count in
            if !engine.pointee.files.releaseIndex(offset, count) { isReleased = false }
        }
        var at = from
        while at < to {
            Holes(engine: engine).partChunk(of: shard, behind: at)
            at = (at / Table.chunkBytes + 1) * Table.chunkBytes
        }
        return isReleased
    }
}
