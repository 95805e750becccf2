import CShalePlatform

public struct SetOptions {
    /// Milliseconds; 0: the cache's default, `Int64.max`: for ever, -1: stale at once.
    public var maxAge: Int64 = 0
    public var stale: Int64 = 0
    public var condition: Condition = .always
    public var isPinned = false
    public var isUncompressed = false
    public var meta = Bytes(start: nil, count: 0)
    /// Hashed tags, at most 8.
    var tagCount = 0
    var tags: (UInt64, UInt64, UInt64, UInt64, UInt64, UInt64, UInt64, UInt64) = (0, 0, 0, 0, 0, 0, 0, 0)

    public init() {}

    public mutating func add(tag: Bytes, _ engine: Engine) throws(Failure) {
        guard tagCount < Limits.tagCount else { throw Failure.because(.invalid, "an entry carries at most 8 tags") }
        let hash = try engine.tag(tag)
        let i = tagCount
        withUnsafeMutableBytes(of: &tags) { $0.storeBytes(of: hash, toByteOffset: i * 8, as: UInt64.self) }
        tagCount += 1
    }
}

extension Engine {
    /// An entry that is being set.
    struct NewEntry {
        let key: Key
        let lifetime: Lifetime
        let created: UInt64

        func header(_ kind: RecordHeader.Kind, _ options: borrowing SetOptions, _ encoded: Encoded, raw: Int)
            -> RecordHeader
        {
            let flags = (options.isPinned ? RecordHeader.Flag.pinned : 0) | lifetime.flag
            return RecordHeader(
                kind: kind, codec: encoded.codec, flags: flags, tagCount: options.tagCount, keyLength: key.length,
                metaLength: options.meta.count,
                storedLength: encoded.count, rawLength: raw, created: created, expires: lifetime.expires,
                dictionary: encoded.dictionary)
        }
    }

    /// Returns a value's stored form, in the scratch's buffer if it is compressed. Without a scratch, it is not.
    @inline(__always)
    func encode(_ value: UnsafeRawPointer, _ count: Int, _ scratch: Scratch?) -> Encoded {
        guard let scratch else { return .raw(value, count) }
        return compress(value, count, scratch)
    }

    @inline(never)
    private func compress(_ value: UnsafeRawPointer, _ count: Int, _ scratch: Scratch) -> Encoded {
        let encoded = Compressor.encode(value, count, ref.pointee.compression, ref.pointee.dictionaries, scratch)
        if encoded.isSample {
            ref.pointee.dictionaries.sample(value, count, scratch) { DictionaryRetirement(engine: ref).store($0) }
        }
        return encoded
    }

    @inline(never)
    func put(
        _ shard: Shard, _ entry: NewEntry, _ kind: RecordHeader.Kind, _ encoded: Encoded, raw: Int,
        _ options: borrowing SetOptions,
        _ version: inout UInt64, _ change: inout Change
    ) throws(Failure) -> PutOutcome {
        let secret = ref.pointee.secret
        // (Compressing took long enough for its slot to arrive from memory; else hashing goes first.)
        let isCompressed = encoded.codec != RecordHeader.Codec.raw
        if isCompressed { shard.reader.fetchRecord(entry.key) }
        var tags = options.tags
        let header = entry.header(kind, options, encoded, raw: raw)
        if header.length > shard.log.segmentRoom {
            throw ref.pointee.tooLarge(header.length, most: shard.log.segmentRoom, .segment)
        }
        shard.reader.prefetchHead(header.length)
        shard.log.fetchEnds()
        shard.reader.fetchVictim()
        let body = bodyHash(
            meta: options.meta.start, metaLength: options.meta.count, stored: encoded.bytes,
            storedLength: encoded.count, secret: secret)
        if !isCompressed { shard.reader.fetchRecord(entry.key) }
        let meta = options.meta.start, condition = options.condition
        var lsn: UInt64 = 0
        let outcome = try withUnsafeBytes(of: &tags) { tagWords throws(Failure) in
            var draft = Draft(
                header, keyHash: entry.key.hash, key: entry.key.bytes, meta: meta, stored: encoded.bytes, bodyHash: body
            )
            draft.lifetime = entry.lifetime
            draft.tags = tagWords.start.assumingMemoryBound(to: UInt64.self)
            let outcome = try shard.write(&change) { shard throws(Failure) in
                try shard.put(&draft, entry.key, condition: condition)
            }
            lsn = draft.record.lsn
            return outcome
        }
        version = lsn
        return outcome
    }
}
