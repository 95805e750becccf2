import CShalePlatform

/// Keeps page-cache pages of allocated space apart from the holes beside it.
///
/// When a byte of a large page-cache page changes, file systems allocate all that the page covers, including its part
/// in a hole, which no budget counts (ext4 on Linux 6.18: up to 2 MiB beside each part of a file). Such pages come from
/// processes that read a file with read-ahead: `cat`, a backup. No page is created where another one is: while the last
/// page before a hole and the first one behind it are cached by themselves, no large page spans the hole's ends. So
/// both are touched, and a page that spans the ends nevertheless is split by punching the hole again. No such page is
/// created while they are mapped, unless memory is so short that they are reclaimed.
///
/// All of it happens when space is allocated or given back, and when a sole writer opens the cache: not in the steady
/// state.
struct PageCacheGuard {
    let engine: EngineRef

    private var files: CacheFiles { engine.pointee.files }
    private var geometry: Geometry { engine.pointee.geometry }
    private var canPunch: Bool { !files.isMemory && !engine.pointee.isReadOnly && files.index >= 0 }

    /// Separates the ends of a hole, which are offsets in a file. `hasEnd`: something is behind it.
    private func separate(inIndex: Bool, _ from: Int, _ to: Int, hasBegin: Bool = true, hasEnd: Bool) {
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

    /// Releases cached pages of a piece that is about to be allocated, since they may span its ends. Under the shard's
    /// lock, while no other caller takes the piece.
    @inline(never)
    func releasePages(inIndex: Bool, _ at: Int, _ count: Int) {
        guard canPunch else { return }
        let base = inIndex ? engine.pointee.index : engine.pointee.data
        if shim_sys_is_resident(base + at) || shim_sys_is_resident(base + (at + count - pageSize)) {
            _ = inIndex ? files.releaseIndex(at, count) : files.releaseData(at, count)
        }
    }

    /// Touches the ends of a piece that was allocated.
    @inline(never)
    func touchEnds(inIndex: Bool, _ at: Int, _ count: Int) {
        guard canPunch else { return }
        let base = inIndex ? engine.pointee.index : engine.pointee.data
        shim_sys_touch(base + at)
        shim_sys_touch(base + (at + count - 1))
    }

    // MARK: The index

    /// Returns how much of a chunk is allocated. Chunks are numbered as they lie in the file; before the first are the
    /// shards' regions.
    @inline(never) private func bytes(ofChunk i: Int) -> Int {
        if i < 0 { return Table.chunkBytes }
        let end = Table.chunksEnd(Log(engine, i % geometry.shards).header)
        return min(max(0, end - i / geometry.shards * Table.chunkBytes), Table.chunkBytes)
    }

    @inline(never) private func separateChunk(_ i: Int, behind: Int) {
        guard canPunch else { return }
        let at = geometry.chunks + i * Table.chunkBytes
        separate(
            inIndex: true, at + behind, at + Table.chunkBytes,
            hasBegin: behind > 0 || bytes(ofChunk: i - 1) == Table.chunkBytes, hasEnd: bytes(ofChunk: i + 1) > 0)
    }

    /// Separates the rest of a chunk behind a byte of a shard's chunks.
    @inline(never)
    func separateChunk(of shard: Int, behind end: Int) {
        separateChunk(end / Table.chunkBytes * geometry.shards + shard, behind: end % Table.chunkBytes)
    }

    // MARK: The data

    /// Frames are numbered as they lie in the file, where the shards' frames alternate.
    private func state(_ i: Int) -> Log.FrameState {
        Log(engine, i % geometry.shards).state(ofFrame: i / geometry.shards)
    }
    private func isThere(_ i: Int) -> Bool {
        guard i >= 0, i < geometry.framesPerShard * geometry.shards else { return false }
        return state(i) == .free || state(i) == .inLog
    }
    private func index(_ shard: Int, _ frame: Int) -> Int { frame * geometry.shards + shard }

    func releasePages(_ shard: Int, frame: Int) {
        if geometry.hasSmallPages {
            releasePages(
                inIndex: false, geometry.segments + index(shard, frame) * geometry.segmentSize, geometry.segmentSize)
        }
    }
    func touchEnds(_ shard: Int, frame: Int) {
        if geometry.hasSmallPages {
            touchEnds(
                inIndex: false, geometry.segments + index(shard, frame) * geometry.segmentSize, geometry.segmentSize)
        }
    }

    /// Touches the pages beside a frame that was given back.
    func touchNeighbours(_ shard: Int, frame: Int) {
        guard canPunch, geometry.hasSmallPages else { return }
        let i = index(shard, frame), at = engine.pointee.data + (geometry.segments + i * geometry.segmentSize)
        if isThere(i - 1) { shim_sys_touch(at - 1) }
        if isThere(i + 1) { shim_sys_touch(at + geometry.segmentSize) }
    }

    // MARK: All of them

    /// Separates what other processes have read in meanwhile, before the first store. Requires that no other process
    /// writes.
    func separateAll() throws(Failure) {
        guard canPunch else { return }
        let g = geometry, size = try files.dataSize()
        for i in 0..<max(0, (try files.indexSize() - g.chunks + Table.chunkBytes - 1) / Table.chunkBytes) {
            separateChunk(i, behind: bytes(ofChunk: i))
        }
        if size > g.segments { separate(inIndex: false, g.head, g.segments, hasEnd: isThere(0)) }
        guard g.hasSmallPages else { return }
        for i in 0..<max(0, (size - g.segments) / g.segmentSize) where state(i) == .absent {
            let from = g.segments + i * g.segmentSize
            separate(inIndex: false, from, from + g.segmentSize, hasBegin: isThere(i - 1), hasEnd: isThere(i + 1))
        }
    }
}
