import CShalePlatform

/// What a read may do and returns.
public struct ReadOptions: OptionSet, Sendable {
    public let rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }
    /// Also what is past its age but kept.
    public static let stale = ReadOptions(rawValue: 1)
    /// Leave recency and counters alone.
    public static let peek = ReadOptions(rawValue: 2)
    /// All but the bytes.
    public static let info = ReadOptions(rawValue: 4)
}

/// Why there is nothing for a reader, as bits of the C interface.
public struct Miss: Equatable, Sendable {
    public let rawValue: UInt8
    public static let absent = Miss(rawValue: 0)
    /// Past its age, and not asked for or not kept any longer.
    public static let expired = Miss(rawValue: 4)
    /// One of its tags was invalidated.
    public static let invalidated = Miss(rawValue: 8)
    /// It could not be read: it was damaged, or lacked a part.
    public static let damaged = Miss(rawValue: 16)

    /// Where it is counted.
    @inline(__always) var counter: Int { IndexHead.misses &+ Int(rawValue) &* 2 }
}

/// What a read answers, and where that is counted. (By a constant for each way out: a hit and a miss need not look.)
struct Answer {
    let status: Status
    let counter: Int
    @inline(__always) init(_ status: Status, _ counter: Int) {
        self.status = status
        self.counter = counter
    }

    @inline(__always) static func miss(_ why: Miss, _ found: inout Found) -> Answer {
        found.miss = why
        return Answer(.miss, why.counter)
    }
}

/// What is known of a value that was found.
public struct Found: Sendable {
    public var size = 0
    public var metaSize = 0
    /// Milliseconds since 1970.
    public var created: Int64 = 0
    /// Milliseconds since 1970; `Int64.max`: never.
    public var expires: Int64 = 0
    public var version: UInt64 = 0
    /// Bytes that the value takes after compression.
    public var storedSize: UInt64 = 0
    public var isStale = false
    public var isPinned = false
    /// Where none was.
    public var miss = Miss.absent
    public init() {}
}

/// A caller's buffer, grown as getline(3) grows its own: value first, meta behind it.
public struct ValueBuffer {
    public var data: UnsafeMutableRawPointer?
    public var capacity: Int
    @inline(__always) public init(data: UnsafeMutableRawPointer? = nil, capacity: Int = 0) {
        self.data = data
        self.capacity = capacity
    }

    /// At least `count` bytes. What was in it is lost. False where there is no memory.
    @inline(__always)
    mutating func reserve(_ count: Int) -> Bool { count <= capacity && capacity != 0 || grow(count) }
    @inline(never)
    private mutating func grow(_ count: Int) -> Bool {
        let wanted = max(256, count + count / 8)
        guard let fresh = shim_malloc(wanted) else { return false }
        shim_free(data)
        data = fresh
        capacity = wanted
        return true
    }
    @inline(__always) var start: Memory { data.unsafelyUnwrapped }
}

/// How a try at one slot ended.
private enum Outcome: Error {
    case absent, otherKey
    /// What was read changed meanwhile: look again.
    case moved
    case hit, stale, expired, invalidated
    case damaged
    /// A part of a large value is not there.
    case incomplete
    case noMemory
}

/// A slot that was read without the lock, and where it pointed.
private struct Sighting {
    let slot: Memory
    let word0: UInt64, word1: UInt64
    let spot: Spot

    /// Whether it still points there, to what it pointed to.
    @inline(__always) var isUnchanged: Bool { Sighting.isUnchanged(slot, word0, spot.numberWord, spot.address.number) }
    /// (By words: a struct would be kept in memory for the call, by every read.)
    @inline(never)
    private static func isUnchanged(_ slot: Memory, _ word0: UInt64, _ numberWord: Memory, _ number: UInt64) -> Bool {
        shim_fence_acquire()
        return numberWord.acquire(0) == number && (slot.acquire(0) ^ word0) & ~Slot.reachBit == 0
    }
}

extension ShardReader {
    /// Reads without a lock: what is read is checked, and then whether it was recycled meanwhile.
    @inline(__always)
    func get(_ key: Key, _ options: ReadOptions, _ buffer: inout ValueBuffer, _ found: inout Found) throws(Failure)
        -> Answer
    {
        var unreadable: UInt32 = 0
        while true {
            let version = header.version
            if version.isOfRebuild {
                try shard.waitForRebuild()
                continue
            }
            var outcome = Outcome.absent
            var location: UInt32 = 0
            let table = self.table
            let home = table.shape.home(key.fraction)
            #if DEBUG && !hasFeature(Embedded)
            ReadHook.runBeforeProbe()
            #endif
            table.probe(key.fraction, home: home) { slot, word0 in
                if Slot.isPart(word0) { return false }
                location = Slot.location(word0)
                outcome = read(slot, word0, key, options, version.epoch, &buffer, &found)
                return outcome != .otherKey
            }
            switch outcome {
            case .hit:
                return Answer(.ok, IndexHead.hits)
            case .stale:
                return Answer(.stale, IndexHead.staleHits)
            case .expired:
                return .miss(.expired, &found)
            case .invalidated:
                return .miss(.invalidated, &found)
            case .absent, .otherKey:
                if header.isStill(version) {
                    return unreadable == ShardReader.discarded ? .miss(.damaged, &found) : Answer(.miss, IndexHead.misses)
                }
            case .moved:
                continue
            case .noMemory:
                throw Failure.outOfMemory
            case .damaged, .incomplete:
                // Look twice at the same place, then let it go for good. (It takes the lock: a value that is replaced
                // again and again must not lead here.) The key's entry may be behind one whose key is damaged.
                if unreadable == location {
                    guard discard(key, location, isDamaged: outcome == .damaged) else {
                        return .miss(.damaged, &found)
                    }
                    unreadable = ShardReader.discarded
                } else {
                    unreadable = location
                }
            }
        }
    }

    /// No record's location: something damaged was let go of, and nothing was found since.
    private static var discarded: UInt32 { .max }

    /// Whether it is worth looking again.
    @inline(never)
    private func discard(_ key: Key, _ location: UInt32, isDamaged: Bool) -> Bool {
        guard var change = try? Change(engine) else { return false }
        return
            (try? shard.write(&change) { shard throws(Failure) in
                try shard.dropUnreadable(key, location: location, isDamaged: isDamaged)
            }) ?? false
    }

    @inline(never) // a miss needs none of it
    private func read(
        _ slot: Memory, _ word0: UInt64, _ key: Key, _ options: ReadOptions, _ epoch: UInt64,
        _ buffer: inout ValueBuffer, _ found: inout Found
    ) -> Outcome {
        do throws(Outcome) {
            let sighting = try locate(slot, word0)
            let record = try match(sighting, key)
            let value = try followTouch(record, sighting, key)
            var isStale = try judgeAge(record, sighting, epoch, options)
            found.expires = Age.publicPoint(record.header.expires)
            if value.header.tagCount > 0, header.hasTags,
                let expires = try judgeTags(record, value, sighting, epoch, options)
            {
                isStale = true
                found.expires = Age.publicPoint(expires)
            }
            found.metaSize = value.header.metaLength
            found.size = value.header.rawLength
            found.storedSize = UInt64(truncatingIfNeeded: value.header.storedLength)
            if value.header.isKind(.manifest) {
                try takeParts(value, sighting, key, options, &buffer, &found)
            } else if options.contains(.info) {
                try takeMeta(value, sighting, &buffer)
            } else {
                guard buffer.reserve(value.header.rawLength &+ value.header.metaLength) else { throw .noMemory }
                guard readBody(value.header, value.spot.at, value.spot.address, into: buffer) else {
                    throw unreadable(sighting, value.spot)
                }
            }

            #if DEBUG && !hasFeature(Embedded)
            ReadHook.runBeforeValidation()
            #endif
            shim_fence_acquire()
            guard sighting.spot.isUnchanged, value.spot.isUnchanged, header.acquire(Field.epoch) == epoch
            else { throw .moved }

            found.created = Age.publicPoint(value.header.created)
            found.version = value.header.lsn
            found.isStale = isStale
            found.isPinned = value.header.isPinned
            if !options.contains(.peek) { use(slot, sighting.word1, key) }
            return isStale ? .stale : .hit
        } catch { return error }
    }

    // MARK: Steps of a read
    // (What fails one is thrown, and means the same to each. They are all inlined, and are small enough for that.)

    /// Where the slot points, as of a moment at which the frame held this segment.
    @inline(__always)
    private func locate(_ slot: Memory, _ word0: UInt64) throws(Outcome) -> Sighting {
        guard let spot = log.spot(Slot.location(word0)) else { throw .damaged }
        // The lines of a small record together, rather than one wait after the other.
        prefetchLines(spot.at, to: 192)
        let word1 = slot.acquire(8)
        // Pointed to while the frame held this segment: so the location is the current one's. And word 1 is this
        // entry's.
        if (slot.acquire(0) ^ word0) & ~Slot.reachBit != 0 { throw .moved }
        if spot.address.number == 0 { throw .damaged }
        return Sighting(slot: slot, word0: word0, word1: word1, spot: spot)
    }

    /// The record there, if it is the key's.
    @inline(__always)
    private func match(_ sighting: Sighting, _ key: Key) throws(Outcome) -> SpottedRecord {
        let spot = sighting.spot, p = spot.at, record = RecordHeader(at: p)
        // (All of `isPlausible` that keeps the reads inside; its rest shows when the record is used.)
        guard record.keyLength == key.length, record.length <= log.segmentSize &- log.offsetInSegment(spot.location),
            memcmp(p + record.keyOffset, key.bytes, key.length) == 0
        else { throw isOther(p, spot.address, spot.location) ? .otherKey : unreadable(sighting) }
        // The rest of a larger one while its head is verified.
        prefetchLines(p, from: 192, to: record.length)
        guard record.verifiesHead(at: p, keyHash: key.hash, address: spot.address, secret: secret) else {
            throw unreadable(sighting)
        }
        return SpottedRecord(spot: spot, header: record)
    }

    /// The record that holds the value: that of a touch record is where it says, in a segment of its own.
    @inline(__always)
    private func followTouch(_ record: SpottedRecord, _ sighting: Sighting, _ key: Key) throws(Outcome) -> SpottedRecord
    {
        var value = record
        if record.header.isKind(.touch) {
            guard let target = record.view.touchTarget else { throw .damaged }
            guard let spot = log.spot(target.location), spot.address.number == target.number else {
                throw unreadable(sighting)
            }
            guard let found = log.record(at: spot), found.header.keyLength == key.length,
                found.header.lsn == target.lsn,
                found.header.verifiesHead(at: spot.at, keyHash: key.hash, address: spot.address, secret: secret)
            else { throw unreadable(sighting, spot) }
            value = SpottedRecord(spot: spot, header: found.header)
        }
        guard value.header.isKind(.value) || value.header.isKind(.manifest) else { throw .otherKey }
        return value
    }

    /// Whether the value is stale, and may be served all the same.
    @inline(__always)
    private func judgeAge(_ record: SpottedRecord, _ sighting: Sighting, _ epoch: UInt64, _ options: ReadOptions)
        throws(Outcome) -> Bool
    {
        let expires = record.header.expires
        if expires == Age.neverPoint || engine.pointee.clock.isWellBefore(expires) { return false }
        let deadline = record.header.deadline(at: record.spot.at), now = engine.pointee.clock.now48,
            isStale = now >= expires
        // (What has replaced it meanwhile may be fresh.)
        if isStale, !stands(sighting, epoch) { throw .moved }
        if now >= deadline || isStale && !options.contains(.stale) { throw .expired }
        return isStale
    }

    /// Where one of the value's tags was expired since, when its age is over, if it may be served all the same; nil where
    /// nothing has happened to them.
    @inline(__always)
    private func judgeTags(
        _ record: SpottedRecord, _ value: SpottedRecord, _ sighting: Sighting, _ epoch: UInt64, _ options: ReadOptions
    ) throws(Outcome) -> UInt64? {
        let standing = standing(record.view, value.view)
        if !standing.isInvalidated, !standing.isExpired { return nil }
        if !stands(sighting, epoch) || !value.spot.isUnchanged { throw .moved }
        if standing.isInvalidated { throw .invalidated }
        if !options.contains(.stale) || standing.isGone(at: engine.pointee.clock.now48) { throw .expired }
        return standing.lifetime.expires
    }

    /// Where the value itself is not asked for.
    @inline(__always)
    private func takeMeta(_ value: SpottedRecord, _ sighting: Sighting, _ buffer: inout ValueBuffer) throws(Outcome) {
        let record = value.header, p = value.spot.at
        guard buffer.reserve(record.metaLength) else { throw .noMemory }
        guard
            record.metaLength == 0
                || readMeta(
                    p + record.metaOffset, record.metaLength, p + record.storedOffset, record.storedLength,
                    check: record.bodyCheck ^ value.spot.address.mix(secret: secret), into: buffer.start)
        else { throw unreadable(sighting, value.spot) }
    }
    /// Copies and checks meta. One check covers it and the value. (Words, as for `readLarge`.)
    @inline(never)
    private func readMeta(
        _ meta: Memory, _ metaLength: Int, _ stored: Memory, _ storedLength: Int, check: UInt64, into out: Memory
    ) -> Bool {
        memcpy(out, meta, metaLength)
        return bodyHash(meta: out, metaLength: metaLength, stored: stored, storedLength: storedLength, secret: secret)
            == check
    }

    /// A large value.
    @inline(__always)
    private func takeParts(
        _ value: SpottedRecord, _ sighting: Sighting, _ key: Key, _ options: ReadOptions, _ buffer: inout ValueBuffer,
        _ found: inout Found
    ) throws(Outcome) {
        let record = value.header, spot = value.spot
        guard record.storedLength == Manifest.size else { throw unreadable(sighting, spot) }
        let outcome = readLarge(
            spot.at + record.metaOffset, record.metaLength, check: record.bodyCheck ^ spot.address.mix(secret: secret),
            spot.numberWord, spot.address.number, key, options, &buffer, &found)
        switch outcome {
        case .hit: break
        case .moved, .noMemory: throw outcome
        case let lost: throw unreadable(sighting, spot, lost)
        }
    }

    /// What cannot be read is damaged, or was recycled meanwhile.
    @inline(__always)
    private func unreadable(_ sighting: Sighting) -> Outcome { sighting.isUnchanged ? .damaged : .moved }
    @inline(__always)
    private func unreadable(_ sighting: Sighting, _ value: Spot, _ outcome: Outcome = .damaged) -> Outcome {
        sighting.isUnchanged && value.isUnchanged ? outcome : .moved
    }

    /// A fresh stamp. It is stored only where the slot is as it was: a reader that was stopped writes none to another
    /// entry.
    @inline(__always)
    private func use(_ slot: Memory, _ word1: UInt64, _ key: Key) {
        if engine.pointee.isReadOnly { return }
        if isAdaptive {
            // (Where the word changes meanwhile, the use does not count.)
            if Slot.hits(word1) < Slot.mostHits { _ = shim_cas64(slot + 8, word1, word1 &+ Slot.hit) }
            return
        }
        if engine.pointee.geometry.shards > 1 {
            // Order need not be exact over the whole cache: the newest stay as they are, and their page clean.
            let age = header[Field.stamp] &- Slot.stamp(word1)
            if age < header[Field.entriesHint] >> 5 { return }
        }
        let stamp = nextStamp()
        if stamp >= Sizes.rebaseStampsAt, stamp & 0xFFFF == 0 { shard.requestRebase() }
        if !shim_cas64(slot + 8, word1, Slot.used(word1, stamp: stamp)) { useAgain(key, stamp) }
    }

    /// Another reader was there, or a writer, or the entry has moved. The use counts all the same, unless a later one
    /// does.
    @inline(never)
    private func useAgain(_ key: Key, _ stamp: UInt64) {
        while true {
            let version = header.version
            if version.isOfRebuild { return } // all stamps are new after a rebuild
            var isDone = false, isThere = false
            table.probe(key.fraction) { slot, word0 in
                if Slot.isPart(word0) { return false }
                let word1 = slot.acquire(8)
                let isKey = holds(key, Slot.location(word0))
                shim_fence_acquire()
                let isSame = (slot.acquire(0) ^ word0) & ~Slot.reachBit == 0
                if isSame, !isKey { return false }
                isThere = true
                if isSame {
                    // (A stamp above the counter's is from before they were rebased.)
                    let its = Slot.stamp(word1)
                    isDone =
                        its > stamp && its <= header[Field.stamp]
                        || shim_cas64(slot + 8, word1, Slot.used(word1, stamp: nextStamp()))
                }
                return true
            }
            if isDone { return }
            if !isThere, header.isStill(version) { return }
        }
    }

    /// Whether what is stale, or gone by age or tags, was the key's entry when that was decided.
    @inline(__always)
    private func stands(_ sighting: Sighting, _ epoch: UInt64) -> Bool {
        sighting.isUnchanged && header.acquire(Field.epoch) == epoch
    }
    /// Whether a sound record of another key is there, with the same fraction by chance.
    @inline(never)
    private func isOther(_ p: Memory, _ at: RecordAddress, _ location: UInt32) -> Bool {
        RecordHeader(at: p).isSound(
            at: p, room: log.segmentSize - log.offsetInSegment(location), address: at, secret: secret)
    }

    // MARK: Bodies

    /// Copies or decompresses value and meta, and checks them. False: damaged, or recycled meanwhile.
    @inline(__always)
    private func readBody(_ record: RecordHeader, _ p: Memory, _ address: RecordAddress, into buffer: ValueBuffer)
        -> Bool
    {
        let size = record.rawLength
        let out = buffer.start
        let stored = p + record.storedOffset
        let expected = record.bodyCheck ^ address.mix(secret: secret)
        let metaLength = record.metaLength
        if metaLength > 0 { memcpy(out + size, p + record.metaOffset, metaLength) }
        let seed = metaLength == 0 ? secret : shim_hash(out + size, metaLength, secret)
        if record.codec == RecordHeader.Codec.raw {
            // (Checked before it is copied: whoever reads what was just written waits for it.)
            guard record.storedLength == size, shim_hash_short(stored, size, seed) == expected else { return false }
            memcpy(out, stored, size)
            return true
        }
        guard shim_hash(stored, record.storedLength, seed) == expected else { return false }
        return decompress(record, stored, into: out, size)
    }

    @inline(__always)
    private func decompress(_ record: RecordHeader, _ stored: Memory, into out: Memory, _ size: Int) -> Bool {
        if record.codec == RecordHeader.Codec.lz4 {
            return Int(
                shim_lz4_decompress(
                    stored, out, Int32(truncatingIfNeeded: record.storedLength), Int32(truncatingIfNeeded: size)))
                == size
        }
        return engine.pointee.dictionaries.decompress(number: record.dictionary, stored, record.storedLength, out, size)
    }

    /// Collects the parts of a large value. `bytes`: meta, and the manifest behind it. (Words of the header that was
    /// verified; the header itself would have to be copied for the call, by reads of small values too.)
    @inline(never)
    private func readLarge(
        _ bytes: Memory, _ metaLength: Int, check: UInt64, _ numberWord: Memory, _ segment: UInt64, _ key: Key,
        _ options: ReadOptions,
        _ buffer: inout ValueBuffer, _ found: inout Found
    ) -> Outcome {
        guard buffer.reserve(metaLength + Manifest.size) else { return .noMemory }
        memcpy(buffer.start, bytes, metaLength + Manifest.size)
        let body = buffer.start + metaLength
        guard
            bodyHash(
                meta: buffer.start, metaLength: metaLength, stored: body, storedLength: Manifest.size, secret: secret)
                == check
        else { return .damaged }
        shim_fence_acquire()
        guard numberWord.acquire(0) == segment else { return .moved }
        let manifest = Manifest(at: body)
        guard manifest.isPlausible else { return .damaged }
        let size = Int(manifest.rawLength)
        found.size = size
        found.storedSize = manifest.storedLength
        if options.contains(.info) { return .hit }
        guard buffer.reserve(size + metaLength) else { return .noMemory }
        memcpy(buffer.start + size, bytes, metaLength)
        let seed = metaLength == 0 ? secret : shim_hash(buffer.start + size, metaLength, secret)
        var words = manifest.words
        guard withUnsafeBytes(of: &words, { shim_hash($0.start, Manifest.size, seed) }) == check else {
            return .damaged
        }
        let partLength = Int(manifest.partLength)
        for i in 0..<Int(manifest.partCount) {
            let length = min(partLength, size - i * partLength)
            let out = buffer.start + i * partLength
            let outcome = PartKey(blob: manifest.blob, owner: key.hash, part: i).withKey(engine) { shard, part in
                shard.reader.readPart(part, into: out, length)
            }
            // A part that is not there: the manifest was replaced meanwhile, or the value is lost.
            if outcome != .hit { return outcome == .damaged ? .damaged : .incomplete }
        }
        return .hit
    }

    private func readPart(_ key: Key, into out: Memory, _ size: Int) -> Outcome {
        while true {
            let version = header.version
            if version.isOfRebuild {
                guard (try? shard.waitForRebuild()) != nil else { return .damaged }
                continue
            }
            var outcome = Outcome.absent
            let table = self.table
            table.probe(key.fraction) { slot, word0 in
                guard Slot.isPart(word0) else { return false }
                outcome = readPart(slot, word0, key, into: out, size)
                return outcome != .otherKey
            }
            switch outcome {
            case .moved: continue
            case .absent, .otherKey:
                if header.isStill(version) { return .absent }
            default: return outcome
            }
        }
    }

    @inline(never) // five calls in the probe
    private func readPart(_ slot: Memory, _ word0: UInt64, _ key: Key, into out: Memory, _ size: Int) -> Outcome {
        do throws(Outcome) {
            let sighting = try locate(slot, word0)
            let record = try match(sighting, key).header, spot = sighting.spot
            guard record.isKind(.part) else { throw .otherKey }
            let isSound =
                record.rawLength == size && record.metaLength == 0
                && readBody(record, spot.at, spot.address, into: ValueBuffer(data: out, capacity: size))
            return sighting.isUnchanged ? isSound ? .hit : .damaged : .moved
        } catch { return error }
    }
}
