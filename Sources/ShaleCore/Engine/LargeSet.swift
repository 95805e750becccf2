import CShalePlatform

/// A set of a large value: parts first, in the manifest's shard or each in that of its own hash (`drawBlob`), then the
/// manifest under the user's key.
///
/// The value that it replaces stays until then. Where both do not fit, the old one is evicted first, if that is all that
/// is missing. But a set with a condition fails, as its condition would not hold any more, and so does one that pins, as
/// that cannot be known beforehand.
struct LargeSet {
    let engine: Engine
    let shard: Shard
    let entry: Engine.NewEntry
    let value: Bytes
    let options: SetOptions
    let scratch: Scratch
    let partLength: Int
    let count: Int

    private var ref: EngineRef { engine.ref }

    init(
        _ engine: Engine, _ shard: Shard, _ entry: Engine.NewEntry, _ value: Bytes, _ options: SetOptions,
        _ scratch: Scratch
    ) {
        self.engine = engine
        self.shard = shard
        self.entry = entry
        self.value = value
        self.options = options
        self.scratch = scratch
        let geometry = engine.ref.pointee.geometry
        let share = (geometry.segmentSize - SegmentHeader.size - RecordHeader.size) / geometry.partsPerSegment
        partLength = (share - RecordHeader.size - PartKey.size) & ~7
        count = (value.count + partLength - 1) / partLength
    }

    @inline(never)
    func store(_ version: inout UInt64, _ change: inout Change) throws(Failure) -> Status {
        // Before anything makes room for parts that need not be stored; the manifest's put asks again.
        if manifestLength > shard.log.segmentRoom {
            throw ref.pointee.tooLarge(manifestLength, most: shard.log.segmentRoom, .segment)
        }
        if isConditional {
            var tags = options.tags
            let mayBegin = try withUnsafeBytes(of: &tags) { tags throws(Failure) in
                try write(to: shard, &change) { shard throws(Failure) in
                    try shard.mayReplace(
                        entry.key, options.condition, tags.start.assumingMemoryBound(to: UInt64.self), options.tagCount,
                        now: shard.change.now)
                }
            }
            if !mayBegin { return .conflict }
        }
        do throws(Failure) { return try storeBesideOwn(&version, &change) } catch {
            guard error.status == .full, !error.isFileLimit, try replacesUnpinned() else { throw error }
            if isConditional || options.isPinned {
                throw shard.log.noSpace(
                    """
                    a set that pins or has a condition keeps the value that it replaces until the new one is stored, \
                    and both do not fit; set it without a condition, or raise the capacity
                    """)
            }
            let blob = try drawBlob(keepsOwn: false, &change)
            _ = try write(to: shard, &change) { shard in
                if let slot = shard.reader.lookup(entry.key) { shard.evict(slot) }
                return true
            }
            return try store(blob, &version, &change)
        }
    }

    /// A number under which no shard gets more of the parts than it has room for. Those of a value that is much smaller
    /// than its shard are there: the shard's order is then that of all that it holds. (Spread over several shards, a
    /// value leaves by the order of its manifest's shard alone, and the shard that happens to be the fullest evicts for
    /// all of them.) Where the parts of others go to is by chance. An error where no number is found, before anything
    /// has made room. `keepsOwn`: beside the value that it replaces.
    private func drawBlob(keepsOwn: Bool, isSpread: Bool = false, _ change: inout Change) throws(Failure) -> UInt64 {
        // What is pinned stays whatever becomes of the new value, and only beside it anything is let go of.
        let isKept = hasPins ? try replacesUnpinned() : false, own = isKept && keepsOwn
        var blob = shard.reader.drawLSN()
        if !isSpread, value.count <= ref.pointee.geometry.longestInOneShard {
            let one = blob | PartKey.isInOneShard
            if try misfit(one, isExact: false, isKept: isKept, beside: own) == nil { return one }
        }
        for _ in 0..<64 {
            if try misfit(blob, isExact: false, isKept: isKept, beside: own) == nil { return blob }
            blob = shard.reader.drawLSN()
        }
        while let full = try misfit(blob, isExact: true, isKept: isKept, beside: own) {
            let pinned = full.header[ShardHeader.Field.pinnedBytes]
            // What is pinned and gone is nobody's victim.
            _ = try write(to: full, &change) { full throws(Failure) in
                try full.dropAllGone()
                return true
            }
            if full.header[ShardHeader.Field.pinnedBytes] < pinned { continue }
            throw pinned > 0
                ? full.log.filled()
                : full.log.noSpace("the shards are too small for values of this size; use fewer, or raise the capacity")
        }
        return blob
    }

    /// Where the one shard has no room after all (beside pins, or beside many who write to it), all may have.
    @inline(never)
    private func storeBesideOwn(_ version: inout UInt64, _ change: inout Change) throws(Failure) -> Status {
        let blob = try drawBlob(keepsOwn: true, &change)
        do throws(Failure) { return try store(blob, &version, &change) } catch {
            guard error.status == .full, !error.isFileLimit, !change.ownIsGone, ref.pointee.geometry.shards > 1,
                blob & PartKey.isInOneShard != 0
            else { throw error }
            return try store(try drawBlob(keepsOwn: true, isSpread: true, &change), &version, &change)
        }
    }

    @inline(never)
    private func write(
        to shard: Shard, _ change: inout Change, _ body: (borrowing ShardWriter) throws(Failure) -> Bool
    ) throws(Failure) -> Bool {
        try shard.write(&change, body)
    }

    private var isConditional: Bool {
        if case .always = options.condition { return false }
        return true
    }

    /// Beside the value that it replaces.
    private func store(_ blob: UInt64, _ version: inout UInt64, _ change: inout Change) throws(Failure) -> Status {
        let turn = try begin(blob)
        defer { turn.end() }
        var stored = 0, wasKept = true
        change.keepsOwn = true
        do throws(Failure) {
            for i in 0..<count {
                wasKept = turn.renew() && wasKept
                stored += try putPart(i, blob, &change)
            }
            // Stopped for so long that others took it for dead, or some had to make room: what went is there before
            // the manifest is.
            if !wasKept || !turn.renew() { try replaceMissing(turn, &change) }
            if try putManifest(blob, stored: stored, &version, &change) == .conflict {
                clearParts(blob)
                return .conflict
            }
        } catch {
            clearParts(blob)
            throw error
        }
        // Since then the cleaner may have met parts that seemed nobody's.
        do throws(Failure) { try replaceMissing(turn, isStored: true, &change) } catch {
            // Another holds a shard's lock for long: readers drop the value if it lacks a part.
            if error.status == .busy { return .ok }
            // It is stored, and goes again: evicted at once, but what is pinned may not be.
            _ = try? write(to: shard, &change) { shard in
                shard.evictOwner(PartKey(blob: blob, owner: entry.key.hash, part: 0), evenPinned: true)
                return true
            }
            if options.isPinned { throw error }
        }
        return .ok
    }

    /// Waits for a cell where live writers hold all that the blob may have. By the end of `patience`, each writer that was
    /// there at the start has renewed its cell, or has been given up.
    private func begin(_ blob: UInt64) throws(Failure) -> LargeWriters.Turn {
        let writers = Shard.largeWriters(ref, of: blob), end = shim_uptime_ms() &+ LargeWriters.patience
        var pause = 1
        while true {
            if let turn = writers.begin(blob) { return turn }
            if shim_uptime_ms() > end {
                throw Failure.because(.busy, "too many large values are being written at once; try again later")
            }
            shim_sleep_us(pause * 1000)
            pause = min(pause * 2, 16)
        }
    }

    private func putManifest(_ blob: UInt64, stored: Int, _ version: inout UInt64, _ change: inout Change)
        throws(Failure) -> PutOutcome
    {
        change.keepsOwn = false
        defer { change.keepsOwn = true }
        var body = Manifest(
            blob: blob, rawLength: value.count, storedLength: stored, partLength: partLength, partCount: count
        ).words
        return try withUnsafeBytes(of: &body) { bytes throws(Failure) in
            try engine.put(
                shard, entry, .manifest, .raw(bytes.start, Manifest.size), raw: value.count, options, &version,
                &change)
        }
    }

    // MARK: Parts

    private func withPart<R>(_ i: Int, _ blob: UInt64, _ body: (Shard, Key) throws(Failure) -> R) throws(Failure) -> R {
        try PartKey(blob: blob, owner: entry.key.hash, part: i).withKey(ref, body)
    }

    private var manifestLength: Int {
        entry.header(.manifest, options, .raw(value.start, Manifest.size), raw: value.count).length
    }

    private func part(_ key: Key) -> Engine.NewEntry {
        Engine.NewEntry(key: key, lifetime: .forever, created: entry.created)
    }

    private func bytes(ofPart i: Int) -> Bytes {
        Bytes(start: value.start + i * partLength, count: min(partLength, value.count - i * partLength))
    }

    private func putPart(_ i: Int, _ blob: UInt64, _ change: inout Change) throws(Failure) -> Int {
        let bytes = bytes(ofPart: i)
        var encoded = engine.encode(bytes.start, bytes.count, uncompressed: options.isUncompressed, scratch)
        return try withPart(i, blob) { shard, key throws(Failure) in
            let part = part(key)
            var version: UInt64 = 0
            // What is pinned is lost with any of its parts.
            var own = SetOptions()
            own.isPinned = options.isPinned
            while try engine.put(
                shard, part, .part, encoded, raw: bytes.count, own, &version, &change)
                == .dictionaryRetired
            { encoded = .raw(bytes.start, bytes.count) }
            return encoded.count
        }
    }

    private func clearParts(_ blob: UInt64) {
        Shard.clearParts(Change.Blob(blob: blob, owner: entry.key.hash, parts: count), ref)
    }

    /// Stores again what the cleaner, or who needed room, took for nobody's, or had to let go. An error where some of
    /// it always pushes out the rest. `isStored`: the manifest is, and may have been replaced since, and its parts
    /// cleared.
    private func replaceMissing(_ turn: LargeWriters.Turn, isStored: Bool = false, _ change: inout Change)
        throws(Failure)
    {
        for _ in 0..<3 {
            var wasKept = true
            turn.renew()
            for i in 0..<count where try !hasPart(i, turn.number, isStored ? .short : .ofCall) {
                if isStored, try !isCurrent(turn.number) { return }
                _ = try putPart(i, turn.number, &change)
                wasKept = turn.renew() && wasKept
            }
            if wasKept { return }
        }
        throw shard.log.filled()
    }

    private func isCurrent(_ blob: UInt64) throws(Failure) -> Bool {
        try look(shard, .short) { shard in
            shard.lookup(entry.key).flatMap { shard.manifest(at: $0.entry.location) }?.blob == blob
        }
    }

    private func hasPart(_ i: Int, _ blob: UInt64, _ patience: Patience) throws(Failure) -> Bool {
        try withPart(i, blob) { shard, key throws(Failure) in
            try look(shard, patience) { $0.lookup(key, isPart: true) != nil }
        }
    }

    /// Under the shard's lock; in doubt, yes. An error where it is not free in time.
    private func look(_ shard: Shard, _ patience: Patience = .ofCall, _ isSo: (ShardReader) -> Bool) throws(Failure)
        -> Bool
    {
        do throws(Failure) { return try shard.locked(waiting: patience) { isSo($0.reader) } } catch {
            if error.status == .busy { throw error }
            return true
        }
    }

    // MARK: Where the old value and the new one do not fit

    private var hasPins: Bool {
        for i in 0..<ref.pointee.geometry.shards where Shard(ref, i).header[ShardHeader.Field.pinnedBytes] > 0 {
            return true
        }
        return false
    }

    private func replacesUnpinned() throws(Failure) -> Bool {
        try look(shard) { $0.lookup(entry.key).map { !$0.entry.isPinned } ?? false }
    }

    /// A shard without room for what it gets of the value, even if nothing else were there but what is pinned.
    /// `isExact`: compresses all parts, to know their lengths. `isKept`: nor may the cleaner ever have to let go of some,
    /// `own`: nor of the value that it replaces.
    private func misfit(_ blob: UInt64, isExact: Bool, isKept: Bool, beside own: Bool) throws(Failure) -> Shard? {
        let shards = ref.pointee.geometry.shards
        return try withUnsafeTemporaryAllocation(of: ShardReader.Need.self, capacity: shards) { needs throws(Failure) in
            needs.initialize(repeating: ShardReader.Need())
            needs[shard.number].add(manifestLength)
            for i in 0..<count {
                let bytes = bytes(ofPart: i)
                let encoded =
                    isExact
                    ? engine.encode(bytes.start, bytes.count, uncompressed: options.isUncompressed, scratch)
                    : .raw(bytes.start, bytes.count)
                try withPart(i, blob) { shard, key throws(Failure) in
                    needs[shard.number].add(
                        part(key).header(.part, SetOptions(), encoded, raw: bytes.count).length)
                }
            }
            if own { try addOwn(to: needs) }
            for i in 0..<shards
            where !Shard(ref, i).reader.hasRoomBesidePins(needs[i], isKept: isKept, isPinned: options.isPinned) {
                return Shard(ref, i)
            }
            return nil
        }
    }

    /// What is to be kept of the value that the set replaces, beside what is pinned.
    private func addOwn(to needs: UnsafeMutableBufferPointer<ShardReader.Need>) throws(Failure) {
        func add(_ shard: Shard, _ key: Key, isPart: Bool) throws(Failure) -> Change.Blob {
            var own = Measure()
            _ = try look(shard) { shard in
                if let slot = shard.lookup(key, isPart: isPart) { own = shard.measure(slot.entry.location) }
                return true
            }
            needs[shard.number].kept += own.bytes
            return own.blob
        }
        let own = try add(shard, entry.key, isPart: false)
        for i in 0..<own.parts {
            try withPart(i, own.blob) { shard, key throws(Failure) in
                if shard.header[ShardHeader.Field.pinnedBytes] > 0 { _ = try add(shard, key, isPart: true) }
            }
        }
    }
}
