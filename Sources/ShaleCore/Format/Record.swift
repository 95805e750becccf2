import CShalePlatform

/// One record of the log. In the file, in little-endian 64-bit words:
///
///     0  lsn                                   the entry's public version
///     1  body check                            XXH3-64 over meta and stored value, mixed with the address
///     2  head check (32) · kind (4) codec (4) · tag count (4) flags (4) · key length (16)
///     3  stored length (32) · raw length (32)
///     4  meta length (16) · created (48)       milliseconds since 1970
///     5  dictionary number (16) · expires (48) all ones: never
///        [where flag `keepsStale`: deadline (64), or, where it never expires, the stale period for a later touch]
///        [where flag `isExtended`: a word that this library does not know]
///        tags (64 each) · key · meta · stored value
///
/// padded to 8 bytes. The head check covers words 0, 3, 4, 5, the rest of 2, the hash of the key, the tags, and the
/// address: the segment's number and the record's offset in the file. So a record of an earlier lap, of another address
/// or cache, or planted inside a value never verifies. The key's hash stands for its bytes, which readers compare with
/// the caller's anyway.
struct RecordHeader {
    static let size = 48

    /// A gap covers bytes that a rebuild found unreadable, so that the next one skips them. A damage record covers
    /// other unreadable entries: see `Damage`.
    enum Kind: UInt8 { case value = 1, manifest, part, tombstone, touch, invalidate, end, gap, damage, expire }
    enum Codec { static let raw: UInt8 = 0, lz4: UInt8 = 1, dictionary: UInt8 = 2 }
    /// The last two are for later library versions: this one sets neither, and copies a record with both.
    enum Flag { static let pinned: UInt8 = 1, keepsStale: UInt8 = 2, recompressed: UInt8 = 4, isExtended: UInt8 = 8 }

    var lsn: UInt64
    var bodyCheck: UInt64
    var word2: UInt64
    var lengths: UInt64
    var created48: UInt64
    var expires48: UInt64

    @inline(__always)
    init(
        kind: Kind, codec: UInt8 = Codec.raw, flags: UInt8 = 0, tagCount: Int = 0, keyLength: Int, metaLength: Int = 0,
        storedLength: Int = 0, rawLength: Int = 0, created: UInt64 = 0, expires: UInt64 = Time48.neverPoint,
        dictionary: UInt16 = 0
    ) {
        lsn = 0
        bodyCheck = 0
        word2 =
            UInt64(kind.rawValue | codec << 4) << 32 | UInt64(UInt8(truncatingIfNeeded: tagCount) | flags << 4) << 40
            | UInt64(truncatingIfNeeded: keyLength) << 48
        lengths = UInt64(truncatingIfNeeded: storedLength) | UInt64(truncatingIfNeeded: rawLength) << 32
        created48 = UInt64(truncatingIfNeeded: metaLength) & 0xFFFF | created << 16
        expires48 = UInt64(dictionary) | expires << 16
    }

    /// Copies the six words, so that the words that are checked are those that are used.
    @inline(__always)
    init(at p: Memory) {
        #if SHALE_FAULTS
        shim_count_record()
        #endif
        lsn = p.u64(0)
        bodyCheck = p.u64(8)
        word2 = p.u64(16)
        lengths = p.u64(24)
        created48 = p.u64(32)
        expires48 = p.u64(40)
    }

    @inline(__always) var headCheck: UInt32 { UInt32(truncatingIfNeeded: word2) }
    @inline(__always) var kindBits: UInt8 { UInt8(truncatingIfNeeded: word2 >> 32) & 15 }
    @inline(__always) var kind: Kind? { Kind(rawValue: kindBits) }
    @inline(__always) func isKind(_ kind: Kind) -> Bool { kindBits == kind.rawValue }
    @inline(__always) var codec: UInt8 { UInt8(truncatingIfNeeded: word2 >> 36) & 15 }
    @inline(__always) var tagCount: Int { Int(truncatingIfNeeded: word2 >> 40) & 15 }
    @inline(__always) var flags: UInt8 { UInt8(truncatingIfNeeded: word2 >> 44) & 15 }
    @inline(__always) var keyLength: Int { Int(truncatingIfNeeded: word2 >> 48) }
    @inline(__always) var storedLength: Int { Int(truncatingIfNeeded: lengths & 0xFFFF_FFFF) }
    @inline(__always) var rawLength: Int { Int(truncatingIfNeeded: lengths >> 32) }
    @inline(__always) var metaLength: Int { Int(truncatingIfNeeded: created48 & 0xFFFF) }
    @inline(__always) var created: UInt64 { created48 >> 16 }
    @inline(__always) var expires: UInt64 { expires48 >> 16 }
    @inline(__always) var dictionary: UInt16 { UInt16(truncatingIfNeeded: expires48) }
    @inline(__always) var isPinned: Bool { flags & Flag.pinned != 0 }
    @inline(__always) var keepsStale: Bool { flags & Flag.keepsStale != 0 }

    /// Bytes of the words between header and key: each flag's bit is moved to where it counts for 8.
    @inline(__always) var extensionLength: Int { tagsOffset - RecordHeader.size + tagCount * 8 }
    @inline(__always) private var tagsOffset: Int {
        RecordHeader.size + Int(flags & Flag.keepsStale) << 2 + Int(flags & Flag.isExtended)
    }
    @inline(__always) var keyOffset: Int { RecordHeader.size + extensionLength }
    @inline(__always) var metaOffset: Int { keyOffset + keyLength }
    @inline(__always) var storedOffset: Int { metaOffset + metaLength }
    @inline(__always) var length: Int { (storedOffset + storedLength + 7) & ~7 }

    /// A cheap test before anything is hashed. `room`: bytes up to the segment's end.
    @inline(__always) func isPlausible(room: Int) -> Bool {
        kindBits &- 1 < 10 && codec <= Codec.dictionary && tagCount <= 8 && length <= room
    }

    /// `p`: where the record is, or will be. The extension must be in place there.
    @inline(__always)
    func computeHeadCheck(at p: Memory, keyHash: UInt64, address: RecordAddress, secret: UInt64) -> UInt32 {
        let rest = extensionLength
        let extensionHash: UInt64 = rest == 0 ? 0 : shim_hash(p + RecordHeader.size, rest, secret)
        var input = (
            lsn, word2 & ~0xFFFF_FFFF, lengths, created48, expires48, keyHash, extensionHash, address.number,
            address.offset
        )
        return UInt32(
            truncatingIfNeeded: withUnsafeBytes(of: &input) { shim_hash_72($0.baseAddress.unsafelyUnwrapped, secret) })
    }

    @inline(__always)
    func verifiesHead(at p: Memory, keyHash: UInt64, address: RecordAddress, secret: UInt64) -> Bool {
        computeHeadCheck(at: p, keyHash: keyHash, address: address, secret: secret) == headCheck
    }

    /// Both tests, out of line: for everything but the hit path.
    @inline(never)
    func isSound(at p: Memory, room: Int, address: RecordAddress, secret: UInt64) -> Bool {
        isPlausible(room: room) && verifiesHead(at: p, address: address, secret: secret)
    }

    /// For a key whose hash is not known yet.
    @inline(__always)
    func verifiesHead(at p: Memory, address: RecordAddress, secret: UInt64) -> Bool {
        verifiesHead(
            at: p, keyHash: keyLength == 0 ? 0 : shim_hash(p + keyOffset, keyLength, secret), address: address,
            secret: secret)
    }

    /// Returns the header with another age, without the word that only a later library version knows.
    func aged(_ lifetime: Lifetime) -> RecordHeader {
        var record = self
        record.word2 = word2 & ~(UInt64(Flag.keepsStale | Flag.isExtended) << 44) | UInt64(lifetime.flag) << 44
        record.expires48 = UInt64(dictionary) | lifetime.expires << 16
        return record
    }

    @inline(__always)
    mutating func setHeadCheck(_ check: UInt32) { word2 = word2 & ~0xFFFF_FFFF | UInt64(check) }

    /// Writes all but the head check, which `seal` stores last: a killed writer leaves no record.
    @inline(__always)
    func writeUnsealed(to p: Memory) {
        p.set(16, 0)
        shim_fence_release()
        p.set(0, lsn)
        p.set(8, bodyCheck)
        p.set(24, lengths)
        p.set(32, created48)
        p.set(40, expires48)
    }
    @inline(__always)
    func seal(at p: Memory) { p.release(16, word2) }

    /// The part of its lifetime that a reader needs.
    @inline(__always) func deadline(at p: Memory) -> UInt64 {
        keepsStale && expires != Time48.neverPoint ? p.u64(RecordHeader.size) : expires
    }
    @inline(__always) func lifetime(at p: Memory) -> Lifetime {
        Lifetime(expires: expires, keepsStale: keepsStale, staleWord: keepsStale ? p.u64(RecordHeader.size) : 0)
    }
    @inline(__always) func tag(_ i: Int, at p: Memory) -> UInt64 {
        p.u64(tagsOffset + i * 8)
    }
}

extension Lifetime {
    var flag: UInt8 { keepsStale ? RecordHeader.Flag.keepsStale : 0 }
}

/// A record's address, as its checksums include it.
struct RecordAddress {
    /// The segment's number, which never repeats in its shard.
    let number: UInt64
    /// The record's offset in the data file.
    let offset: UInt64

    /// The value mixed into the body check: a record is moved by mixing again, without reading the body.
    @inline(__always)
    func mix(secret: UInt64) -> UInt64 {
        var input = (number, offset)
        return withUnsafeBytes(of: &input) { shim_hash_16($0.baseAddress.unsafelyUnwrapped, secret) }
    }
}

@inline(__always)
func bodyHash(meta: UnsafeRawPointer, metaLength: Int, stored: UnsafeRawPointer, storedLength: Int, secret: UInt64)
    -> UInt64
{
    let seed = metaLength == 0 ? secret : shim_hash(meta, metaLength, secret)
    return shim_hash_short(stored, storedLength, seed)
}

/// The body of a touch record: the value that gets a new age.
struct TouchTarget {
    static let size = 24
    var location: UInt32
    var number: UInt64
    var lsn: UInt64

    init(location: UInt32, number: UInt64, lsn: UInt64) {
        self.location = location
        self.number = number
        self.lsn = lsn
    }
    @inline(__always) init(at p: UnsafeRawPointer) {
        location = UInt32(truncatingIfNeeded: p.loadUnaligned(as: UInt64.self))
        number = p.loadUnaligned(fromByteOffset: 8, as: UInt64.self)
        lsn = p.loadUnaligned(fromByteOffset: 16, as: UInt64.self)
    }
    var words: (UInt64, UInt64, UInt64) { (UInt64(location), number, lsn) }
}

/// The body of a manifest: a value stored in parts.
struct Manifest {
    static let size = 40
    /// Names the parts; drawn like an lsn, so it never repeats.
    var blob: UInt64
    var rawLength: UInt64
    var storedLength: UInt64
    var partLength: UInt64
    var partCount: UInt64

    init(blob: UInt64, rawLength: Int, storedLength: Int, partLength: Int, partCount: Int) {
        self.blob = blob
        self.rawLength = UInt64(rawLength)
        self.storedLength = UInt64(storedLength)
        self.partLength = UInt64(partLength)
        self.partCount = UInt64(partCount)
    }
    init(at p: UnsafeRawPointer) {
        blob = p.loadUnaligned(as: UInt64.self)
        rawLength = p.loadUnaligned(fromByteOffset: 8, as: UInt64.self)
        storedLength = p.loadUnaligned(fromByteOffset: 16, as: UInt64.self)
        partLength = p.loadUnaligned(fromByteOffset: 24, as: UInt64.self)
        partCount = p.loadUnaligned(fromByteOffset: 32, as: UInt64.self)
    }
    var words: (UInt64, UInt64, UInt64, UInt64, UInt64) { (blob, rawLength, storedLength, partLength, partCount) }
    /// Whether a sound manifest can have these lengths, so that nothing is allocated for a damaged one.
    var isPlausible: Bool {
        rawLength <= Limits.valueLength && storedLength <= Limits.valueLength && partLength > 0 && partLength <= 1 << 24
            && partCount <= 1 << 20
            && partCount == (rawLength + partLength - 1) / partLength
    }
}

/// The key of a part record: blob, the hash of the owner's key, the part's number.
struct PartKey {
    static let size = 24
    var words: (UInt64, UInt64, UInt64)

    init(blob: UInt64, owner: UInt64, part: Int) { words = (blob, owner, UInt64(part)) }
    init(at p: UnsafeRawPointer) {
        words = (
            p.loadUnaligned(as: UInt64.self), p.loadUnaligned(fromByteOffset: 8, as: UInt64.self),
            p.loadUnaligned(fromByteOffset: 16, as: UInt64.self)
        )
    }
    var blob: UInt64 { words.0 }
    var owner: UInt64 { words.1 }

    /// Bit in the number of a blob whose parts are all in the shard of its manifest.
    static let isInOneShard: UInt64 = 1 << 63
}

/// Limits of entries and caches.
enum Limits {
    static let keyLength = 65_535
    static let metaLength = Sizes.metaLength
    static let tagCount = 8
    static let valueLength: UInt64 = 1 << 30
    static let capacity = Sizes.capacity
    static let segmentSizes = Sizes.segment
    /// How new caches divide the capacity: into shards of the least size while they are few, of the usual size where
    /// they would be many. A table has slots for 4 GiB of the smallest records.
    static let leastShard = 128 << 20, usualShard = 4 << 30
    static let oneShardEntries: UInt64 = 65_536
    static let shards = 65_536
    static let framesPerShard = 65_535
    /// A location counts 8-byte units in 32 bits.
    static let shardLogBytes = 32 << 30
    static let mostCapacity: UInt64 = 1 << 44
    /// The most that a file on ext4 with blocks of 4 KiB may have.
    static let fileBytes = 1 << 44 - 4096
}
