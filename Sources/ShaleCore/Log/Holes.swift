import CShalePlatform

/// Keeps what is in the file's cache apart from the holes beside it.
///
/// File systems allocate all that a large page of the file's cache covers as soon as a byte of it changes, the part
/// that lies in a hole too, which nobody counts (ext4 on Linux 6.18: up to 2 MiB beside each part of a file). Such
/// pages come from whoever reads a file with reading ahead: `cat`, a backup. No page is made where another one is:
/// as long as the last page before a hole and the first one behind it are in the file's cache by themselves, no large
/// page spans the hole's ends. So both are touched, and what spans the ends nevertheless is parted by giving the hole
/// back once more. No such page comes while they are mapped, unless memory is so short that they are taken away.
///
/// All of it happens where space is allocated or given back, and when the first writer comes: not in a steady state.
struct Holes {
    let engine: EngineRef

    private var files: CacheFiles { engine.pointee.files }
    private var geometry: Geometry { engine.pointee.geometry }
    private var canPunch: Bool { !files.isMemory && !engine.pointee.isReadOnly && files.index >= 0 }

    /// The hole's ends, as offsets in a file. `hasEnd`: something is behind it.
    private func part(inIndex: Bool, _ from: Int, _ to: Int, hasBegin: Bool = true, hasEnd: Bool) {
        if from >= to { return }
        let base = inIndex ? engine.pointee.index : engine.pointee.data
        for _ in 0..<4 {
            if hasBegin { shim_sys_touch(base + from - 1) }
            if hasEnd { shim_sys_touch(base + to) }
            if !(hasBegin && shim_sys_is_resident(base + from)), !(hasEnd && shim_sys_is_resident(base + to - pageSize))
            {
                return
            }
            guard inIndex ? files.releaseIndex(from, to - from) : files.releaseData(from, to - from) else { return }
        }
    }

    /// What is in the file's cache of a piece that is about to be allocated: it spans the piece's ends perhaps.
    /// Under the shard's lock, while nobody else takes the piece.
    @inline(never)
    func forget(inIndex: Bool, _ at: Int, _ count: Int) {
        guard canPunch else { return }
        let base = inIndex ? engine.pointee.index : engine.pointee.data
        if shim_sys_is_resident(base + at) || shim_sys_is_resident(base + (at + count - pageSize)) {
            _ = inIndex ? files.releaseIndex(at, count) : files.releaseData(at, count)
        }
    }

    /// Of a piece that was allocated.
    @inline(never)
    func touchEnds(inIndex: Bool, _ at: Int, _ count: Int) {
        guard canPunch else { return }
        let base = inIndex ? engine.pointee.index : engine.pointee.data
        shim_sys_touch(base + at)
        shim_sys_touch(base + (at + count - 1))
    }

    // MARK: The index

    /// How much of a chunk is there. They are numbered as they lie in the file; before the first are the shards'
    /// regions.
    @inline(never) private func bytes(ofChunk i: Int) -> Int {
        if i < 0 { return Table.chunkBytes }
        let end = Table.chunksEnd(Log(engine, i % geometry.shards).header)
        return min(max(0, end - i / geometry.shards * Table.chunkBytes), Table.chunkBytes)
    }

    @inline(never) private func partChunk(_ i: Int, behind: Int) {
        guard canPunch else { return }
        let at = geometry.chunks + i * Table.chunkBytes
        part(
            inIndex: true, at + behind, at + Table.chunkBytes,
            hasBegin: behind > 0 || bytes(ofChunk: i - 1) == Table.chunkBytes, hasEnd: bytes(ofChunk: i + 1) > 0)
    }

    /// The rest of a chunk behind that byte of a shard's chunks.
    @inline(never)
    func partChunk(of shard: Int, behind end: Int) {
        partChunk(end / Table.chunkBytes * geometry.shards + shard, behind: end % Table.chunkBytes)
    }

    // MARK: The data

    /// Frames lie in turn, the shards' one behind the other.
    private func state(_ i: Int) -> Log.FrameState {
        Log(engine, i % geometry.shards).state(ofFrame: i / geometry.shards)
    }
    private func isThere(_ i: Int) -> Bool {
        guard i >= 0, i < geometry.framesPerShard * geometry.shards else { return false }
        return state(i) == .free || state(i) == .inLog
    }
    private func index(_ shard: Int, _ frame: Int) -> Int { frame * geometry.shards + shard }

    func forget(_ shard: Int, frame: Int) {
        if geometry.hasSmallPages {
            forget(inIndex: false, geometry.segments + index(shard, frame) * geometry.segmentSize, geometry.segmentSize)
        }
    }
    func touchEnds(_ shard: Int, frame: Int) {
        if geometry.hasSmallPages {
            touchEnds(
                inIndex: false, geometry.segments + index(shard, frame) * geometry.segmentSize, geometry.segmentSize)
        }
    }

    /// Beside a frame that was given back.
    func touchNeighbours(_ shard: Int, frame: Int) {
        guard canPunch, geometry.hasSmallPages else { return }
        let i = index(shard, frame), at = engine.pointee.data + (geometry.segments + i * geometry.segmentSize)
        if isThere(i - 1) { shim_sys_touch(at - 1) }
        if isThere(i + 1) { shim_sys_touch(at + geometry.segmentSize) }
    }

    // MARK: All of them

    /// Where nobody else writes: parts what others have read while nobody looked, before the first store.
    func partAll() throws(Failure) {
        guard canPunch else { return }
        let g = geometry, size = try files.dataSize()
        for i in 0..<max(0, (try files.indexSize() - g.chunks + Table.chunkBytes - 1) / Table.chunkBytes) {
            partChunk(i, behind: bytes(ofChunk: i))
        }
        if size > g.segments { part(inIndex: false, g.head, g.segments, hasEnd: isThere(0)) }
        guard g.hasSmallPages else { return }
        for i in 0..<max(0, (size - g.segments) / g.segmentSize) where state(i) == .absent {
            let from = g.segments + i * g.segmentSize
            part(inIndex: false, from, from + g.segmentSize, hasBegin: isThere(i - 1), hasEnd: isThere(i + 1))
        }
    }
}
