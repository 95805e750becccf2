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
private enum Outcome {
    case absent, otherKey
    /// What was read changed meanwhile: look again.
    case moved
    case hit, stale, gone
    case damaged
    /// A part of a large value is not there.
    case incomplete
    case noMemory
}

extension Shard {
    /// Reads without a lock: what is read is checked, and then whether it was recycled meanwhile.
    @inline(__always)
    func get(_ key: Key, _ options: ReadOptions, _ buffer: inout ValueBuffer, _ found: inout Found) throws(Failure)
        -> Status
    {
        var unreadable: UInt32 = 0
        while true {
            let epoch = header.at.acquire(Field.epoch)
            if epoch & 1 != 0 {
                try waitForRebuild()
                continue
            }
            let moves = header.at.acquire(Field.moves)
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
                outcome = read(slot, word0, key, options, epoch, &buffer, &found)
                return outcome != .otherKey
            }
            switch outcome {
            case .hit:
                return .ok
            case .stale:
                return .stale
            case .gone:
                return .miss
            case .absent, .otherKey:
                shim_fence_acquire()
                if header.at.acquire(Field.moves) == moves, header.at.acquire(Field.epoch) == epoch { return .miss }
            case .moved:
                continue
            case .noMemory:
                throw Failure.outOfMemory
            case .damaged, .incomplete:
                // Look twice at the same place, then let it go for good. (It takes the lock: a value that is replaced
                // again and again must not lead here.)
                if unreadable == location {
                    discard(key, location, isDamaged: outcome == .damaged)
                    return .miss
                }
                unreadable = location
            }
        }
    }

    @inline(never)
    private func discard(_ key: Key, _ location: UInt32, isDamaged: Bool) {
        guard var change = try? Change(engine) else { return }
        try? make(&change) { change throws(Failure) in
            try dropUnreadable(key, location: location, isDamaged: isDamaged, &change)
        }
    }

    @inline(never) // a miss needs none of it
    private func read(
        _ slot: Memory, _ word0: UInt64, _ key: Key, _ options: ReadOptions, _ epoch: UInt64,
        _ buffer: inout ValueBuffer, _ found: inout Found
    ) -> Outcome {
        let location = Slot.location(word0)
        guard log.isInside(location) else { return .damaged }
        let row = log.place(of: location), inSegment = log.offsetInSegment(location)
        let offset = log.offset(ofPlace: row) &+ inSegment
        var p = engine.pointee.data + offset
        // The lines of a small record together, rather than one wait after the other.
        prefetch(p, to: 192)
        let numberWord = log.numberWord(row)
        let segment = numberWord.acquire(0)
        let word1 = slot.acquire(8)
        // Pointed to while the place held this segment: so the location is the current one's. And word 1 is this
        // entry's.
        if (slot.acquire(0) ^ word0) & ~Slot.reachBit != 0 { return .moved }
        if segment == 0 { return .damaged }
        let at = Place(number: segment, offset: UInt64(truncatingIfNeeded: offset))
        var record = RecordHeader(at: p)
        // (All of `isPlausible` that keeps the reads inside; its rest shows when the record is used.)
        guard record.keyLength == key.length, record.length <= log.segmentSize &- inSegment,
            memcmp(p + record.keyOffset, key.bytes, key.length) == 0
        else {
            return isOther(p, at, location)
                ? .otherKey : unchanged(slot, word0, numberWord, segment) ? .damaged : .moved
        }
        // The rest of a larger one while its head is verified.
        prefetch(p, from: 192, to: record.length)
        guard record.verifiesHead(at: p, keyHash: key.hash, place: at, secret: secret) else {
            return unchanged(slot, word0, numberWord, segment) ? .damaged : .moved
        }
        let expires = record.expires
        let gone = record.gone(at: p)

        // A touch record: the value is where it says, in a segment of its own.
        var targetWord = numberWord, targetSegment = segment, targetPlace = at
        if record.isKind(.touch) {
            guard record.storedLength == TouchTarget.size else { return .damaged }
            let target = TouchTarget(at: p + record.storedOffset)
            guard log.isSound(target.location) else {
                return unchanged(slot, word0, numberWord, segment) ? .damaged : .moved
            }
            targetWord = log.numberWord(log.place(of: target.location))
            targetSegment = targetWord.acquire(0)
            targetPlace = Place(
                number: targetSegment, offset: UInt64(truncatingIfNeeded: log.offset(of: target.location)))
            if targetSegment != target.number { return unchanged(slot, word0, numberWord, segment) ? .damaged : .moved }
            p = log.address(target.location)
            record = RecordHeader(at: p)
            guard record.keyLength == key.length,
                record.isPlausible(room: log.segmentSize &- log.offsetInSegment(target.location)),
                record.lsn == target.lsn,
                record.verifiesHead(at: p, keyHash: key.hash, place: targetPlace, secret: secret)
            else {
                return unchanged(slot, word0, numberWord, segment) && targetWord.acquire(0) == targetSegment
                    ? .damaged : .moved
            }
        }
        guard record.isKind(.value) || record.isKind(.manifest) else { return .otherKey }

        // Ages and tags, before the last validation.
        var isStale = false
        if expires != Age.neverPoint, !engine.pointee.clock.isWellBefore(expires) {
            let now = engine.pointee.clock.now48
            isStale = now >= expires
            // (What has replaced it meanwhile may be fresh.)
            if isStale, !stands(slot, word0, numberWord, segment, epoch) { return .moved }
            if now >= gone { return .gone }
        }
        if isStale, !options.contains(.stale) { return .gone }
        if record.tagCount > 0, header.at.acquire(Field.tagCount) != 0, tags.invalidates(record, at: p) {
            return stands(slot, word0, numberWord, segment, epoch) && targetWord.acquire(0) == targetSegment
                ? .gone : .moved
        }

        found.metaSize = record.metaLength
        found.size = record.rawLength
        found.storedSize = UInt64(truncatingIfNeeded: record.storedLength)
        if record.isKind(.manifest) {
            var outcome = Outcome.damaged
            if record.storedLength == Manifest.size {
                outcome = readLarge(
                    p + record.metaOffset, record.metaLength, check: record.bodyCheck ^ targetPlace.mix(secret: secret),
                    targetWord, targetSegment,
                    key, options, &buffer, &found)
            }
            switch outcome {
            case .hit: break
            case .moved: return .moved
            case .noMemory: return .noMemory
            case let lost:
                return unchanged(slot, word0, numberWord, segment) && targetWord.acquire(0) == targetSegment
                    ? lost : .moved
            }
        } else if !options.contains(.info) {
            guard buffer.reserve(record.rawLength &+ record.metaLength) else { return .noMemory }
            guard readBody(record, p, targetPlace, into: buffer) else {
                return unchanged(slot, word0, numberWord, segment) && targetWord.acquire(0) == targetSegment
                    ? .damaged : .moved
            }
        } else {
            guard buffer.reserve(record.metaLength) else { return .noMemory }
            if record.metaLength > 0 { memcpy(buffer.start, p + record.metaOffset, record.metaLength) }
        }

        #if DEBUG && !hasFeature(Embedded)
        ReadHook.runBeforeValidation()
        #endif
        shim_fence_acquire()
        guard numberWord.acquire(0) == segment, targetWord.acquire(0) == targetSegment,
            header.at.acquire(Field.epoch) == epoch
        else { return .moved }

        found.created = Age.publicPoint(record.created)
        found.expires = Age.publicPoint(expires)
        found.version = record.lsn
        found.isStale = isStale
        found.isPinned = record.isPinned
        if !options.contains(.peek) { use(slot, word1, key) }
        return isStale ? .stale : .hit
    }

    /// A fresh stamp. It is stored only where the slot is as it was: a reader that was stopped writes none to another
    /// entry.
    @inline(__always)
    private func use(_ slot: Memory, _ word1: UInt64, _ key: Key) {
        if engine.pointee.isReadOnly { return }
        if engine.pointee.geometry.shards > 1 {
            // Order need not be exact over the whole cache: the newest stay as they are, and their page clean.
            let age = header.at.u64(Field.stamp) &- Slot.stamp(word1)
            if age < header.at.u64(Field.entriesHint) >> 5 { return }
        }
        let stamp = nextStamp()
        if stamp >= Sizes.rebaseStampsAt, stamp & 0xFFFF == 0 { Rebase(self).request() }
        if !shim_cas64(slot + 8, word1, Slot.used(word1, stamp: stamp)) { useAgain(key, stamp) }
    }

    /// Another reader was there, or a writer, or the entry has moved. The use counts all the same, unless a later one
    /// does.
    @inline(never)
    private func useAgain(_ key: Key, _ stamp: UInt64) {
        while true {
            let epoch = header.at.acquire(Field.epoch), moves = header.at.acquire(Field.moves)
            if epoch & 1 != 0 { return } // all stamps are new after a rebuild
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
                        its > stamp && its <= header.at.u64(Field.stamp)
                        || shim_cas64(slot + 8, word1, Slot.used(word1, stamp: nextStamp()))
                }
                return true
            }
            if isDone { return }
            shim_fence_acquire()
            if !isThere, header.at.acquire(Field.moves) == moves, header.at.acquire(Field.epoch) == epoch { return }
        }
    }

    /// Whether what is stale, or gone by age or tags, was the key's entry when that was decided.
    @inline(never)
    private func stands(_ slot: Memory, _ word0: UInt64, _ numberWord: Memory, _ segment: UInt64, _ epoch: UInt64)
        -> Bool
    {
        unchanged(slot, word0, numberWord, segment) && header.at.acquire(Field.epoch) == epoch
    }
    @inline(never)
    private func unchanged(_ slot: Memory, _ word0: UInt64, _ numberWord: Memory, _ segment: UInt64) -> Bool {
        shim_fence_acquire()
        return numberWord.acquire(0) == segment && (slot.acquire(0) ^ word0) & ~Slot.reachBit == 0
    }
    /// Whether a sound record of another key is there, with the same fraction by chance.
    @inline(never)
    private func isOther(_ p: Memory, _ at: Place, _ location: UInt32) -> Bool {
        RecordHeader(at: p).isSound(
            at: p, room: log.segmentSize - log.offsetInSegment(location), place: at, secret: secret)
    }

    // MARK: Bodies

    /// Copies or decompresses value and meta, and checks them. False: damaged, or recycled meanwhile.
    @inline(__always)
    private func readBody(_ record: RecordHeader, _ p: Memory, _ place: Place, into buffer: ValueBuffer) -> Bool {
        let size = record.rawLength
        let out = buffer.start
        let stored = p + record.storedOffset
        let expected = record.bodyCheck ^ place.mix(secret: secret)
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
            let outcome = PartKey(blob: manifest.blob, owner: key.hash, part: i).withKey(secret) { part in
                Shard(engine, keyHash: part.hash).readPart(part, into: out, length)
            }
            // A part that is not there: the manifest was replaced meanwhile, or the value is lost.
            if outcome != .hit { return outcome == .damaged ? .damaged : .incomplete }
        }
        return .hit
    }

    private func readPart(_ key: Key, into out: Memory, _ size: Int) -> Outcome {
        while true {
            let epoch = header.at.acquire(Field.epoch)
            if epoch & 1 != 0 {
                guard (try? waitForRebuild()) != nil else { return .damaged }
                continue
            }
            let moves = header.at.acquire(Field.moves)
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
                shim_fence_acquire()
                if header.at.acquire(Field.moves) == moves, header.at.acquire(Field.epoch) == epoch { return .absent }
            default: return outcome
            }
        }
    }

    @inline(never) // five calls in the probe
    private func readPart(_ slot: Memory, _ word0: UInt64, _ key: Key, into out: Memory, _ size: Int) -> Outcome {
        let location = Slot.location(word0)
        guard log.isSound(location) else { return .damaged }
        let numberWord = log.numberWord(log.place(of: location))
        let segment = numberWord.acquire(0)
        if (slot.acquire(0) ^ word0) & ~Slot.reachBit != 0 { return .moved }
        let at = Place(number: segment, offset: UInt64(log.offset(of: location)))
        let p = log.address(location)
        let record = RecordHeader(at: p)
        guard record.isKind(.part), record.keyLength == key.length,
            record.isPlausible(room: log.segmentSize - log.offsetInSegment(location)),
            memcmp(p + record.keyOffset, key.bytes, key.length) == 0
        else {
            return isOther(p, at, location)
                ? .otherKey : unchanged(slot, word0, numberWord, segment) ? .damaged : .moved
        }
        let sound =
            record.verifiesHead(at: p, keyHash: key.hash, place: at, secret: secret) && record.rawLength == size
            && record.metaLength == 0
            && readBody(record, p, at, into: ValueBuffer(data: out, capacity: size))
        return unchanged(slot, word0, numberWord, segment) ? (sound ? .hit : .damaged) : .moved
    }
}
