import CShalePlatform

/// The parts of an index file that hold something, as the file itself says: read by system calls, because a copy may have
/// holes in their place, and touching a hole takes space where there may be none.
struct IndexParts {
    private static let most = 16 << 10

    private let files: CacheFiles
    private let geometry: Geometry

    /// Nil where the file cannot have them.
    init?(_ files: CacheFiles, _ geometry: Geometry) throws(Failure) {
        self.files = files
        self.geometry = geometry
        let end = try files.indexSize()
        for i in 0..<geometry.shards {
            guard let pages = tablePages(i), pages >= geometry.shardIndexBytes(buckets: Table.leastBuckets),
                pages <= geometry.shardIndexBytes(buckets: geometry.maxBuckets),
                geometry.indexEnd(i, pages: pages) <= end
            else { return nil }
        }
    }

    private func tablePages(_ shard: Int) -> Int? {
        var word: UInt64 = 0
        let at = geometry.region(shard) + ShardHeader.Field.tablePages.word.offset
        guard shim_sys_pread(files.index, &word, 8, Int64(at)) == 8 else { return nil }
        return Int(exactly: word)
    }

    /// In the order of the file for one shard, and of the shards for several.
    func forEach(_ body: (_ offset: Int, _ count: Int) throws(Failure) -> Void) throws(Failure) {
        try body(0, geometry.chunks)
        for i in 0..<geometry.shards {
            let pages = tablePages(i) ?? geometry.region
            try geometry.forEachPiece(i, from: 0, to: pages - geometry.region, body)
        }
    }

    /// Of all their bytes but the head's first words, which name the files. XXH3-64 of each piece, 16 KiB at most, with
    /// the sum before it as the seed.
    func sum() throws(Failure) -> UInt64 {
        guard let memory = shim_malloc(IndexParts.most) else { throw Failure.outOfMemory }
        defer { shim_free(memory) }
        var sum: UInt64 = 0
        try forEach { offset, count throws(Failure) in
            var at = max(offset, IndexHead.lsn.offset)
            while at < offset + count {
                let length = min(offset + count - at, IndexParts.most)
                let result = shim_sys_pread(files.index, memory, length, Int64(at))
                guard result == length else {
                    throw Failure.system("read", files.path, CacheFiles.indexName, min(result, 0))
                }
                sum = shim_hash(memory, length, sum)
                at += length
            }
        }
        return sum
    }
}
