import CShalePlatform

extension Table {
    /// Returns the bytes of a table's chunks: whole ones, and the used part of the last.
    static func bytes(of buckets: Int) -> Int {
        let (whole, rest) = (buckets + spill).quotientAndRemainder(dividingBy: chunkBuckets)
        return whole * chunkBytes + (rest == 0 ? 0 : chunkHead + roundUp(rest * bucketSize, to: pageSize))
    }

    static func chunks(of buckets: Int) -> Int { chunks(inBytes: bytes(of: buckets)) }
    static func chunks(inBytes bytes: Int) -> Int { (bytes + chunkBytes - 1) / chunkBytes }

    /// Returns where the used part of the chunks ends: for buckets, also of a larger table that is being prepared, or
    /// for generations of tags.
    static func chunksEnd(_ header: ShardHeader) -> Int {
        max(bytes(of: TableShape(header.acquire(Field.shape)).extent), header[Field.tableReady], tagsEnd(header))
    }

    static func tagsEnd(_ header: ShardHeader) -> Int {
        let chunks = TagGenerations(header.acquire(Field.tagGenerations)).mostChunks
        return chunks == 0 ? 0 : (chunks - 1) * chunkBytes + chunkHead
    }
}
