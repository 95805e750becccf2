import CShalePlatform

/// The used parts of an index file, by its own words. They are read by system calls: a copy may have holes there, and
/// touching one takes space that may not exist.
struct IndexParts {
    private static let most = 16 << 10

    private let files: CacheFiles
    private let geometry: Geometry

    /// Returns nil if the file is too short for them.
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

    /// Visits the parts in the file's order within a shard, shard by shard.
    func forEach(_ body: (_ offset: Int, _ count: Int) throws(Failure) -> Void) throws(Failure) {
        try body(0, geometry.chunks)
        for i in 0..<geometry.shards {
            let pages = tablePages(i) ?? geometry.region
            try geometry.forEachPiece(i, from: 0, to: pages - geometry.region, body)
        }
    }

    /// Returns the XXH3-64 of all their bytes except the head's first words, which name the files: in pieces of at most
    /// 16 KiB, with the previous sum as the seed.
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
