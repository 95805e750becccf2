import CShalePlatform

/// What the chunks of a table take.
extension Table {
    /// What the chunks of a table take: whole ones, and of the last one what is used.
    static func bytes(of buckets: Int) -> Int {
        let (whole, rest) = (buckets + spill).quotientAndRemainder(dividingBy: chunkBuckets)
        return whole * chunkBytes + (rest == 0 ? 0 : chunkHead + roundUp(rest * bucketSize, to: pageSize))
    }

    static func chunks(of buckets: Int) -> Int { chunks(inBytes: bytes(of: buckets)) }
    static func chunks(inBytes bytes: Int) -> Int { (bytes + chunkBytes - 1) / chunkBytes }

    /// Up to where the chunks are in use, and up to where generations of tags use them.
    static func chunksEnd(_ header: ShardHeader) -> Int {
        max(bytes(of: TableShape(header.acquire(Field.shape)).extent), tagsEnd(header))
    }

    static func tagsEnd(_ header: ShardHeader) -> Int {
        let chunks = TagGenerations(header.acquire(Field.tagGenerations)).mostChunks
        return chunks == 0 ? 0 : (chunks - 1) * chunkBytes + chunkHead
    }
}
