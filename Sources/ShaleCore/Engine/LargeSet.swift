import CShalePlatform

/// A set of a large value: first the parts, in the manifest's shard or each in that of its own hash (`drawBlob`), then
/// the manifest under the user's key.
///
/// The value that it replaces stays until then. If both do not fit and nothing else is missing, the old one is evicted
/// first. But a set with a condition fails, as its condition would not hold any more, and so does one that pins, as
/// that cannot be known beforehand.
struct LargeSet {
    let engine: Engine
    let shard: Shard
    let entry: Engine.NewEntry
    let value: Bytes
    let options: SetOptions
    let scratch: Scratch?
    let partLength: Int
    let count: Int

    private var ref: EngineRef { engine.ref }

    init(
        _ engine: Engine, _ shard: Shard, _ entry: Engine.NewEntry, _ value: Bytes, _ options: SetOptions,
        _ scratch: Scratch?
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
        // Before room is made for parts that need not be stored; the manifest's put checks again.
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

    /// Returns a blob number under which no shard gets more of the parts than it has room for. The parts of a value
    /// much smaller than its shard go there: then the shard's order covers all that it holds. (A value that is spread
    /// is evicted in the order of its manifest's shard alone, and the fullest shard evicts for all of them.) Other
    /// parts are spread by chance. Throws if no number is found, before any room is made. `keepsOwn`: beside the value
    /// that it replaces.
    private func drawBlob(keepsOwn: Bool, isSpread: Bool = false, _ change: inout Change) throws(Failure) -> UInt64 {
        // Pinned entries stay in any case, and only beside them the cleaner may have to evict.
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
            // Expired pinned entries are never evicted.
            _ = try write(to: full, &change) { full throws(Failure) in
                try full.unlinkAllDead()
                return true
            }
            if full.header[ShardHeader.Field.pinnedBytes] < pinned { continue }
            throw pinned > 0
                ? full.log.filled()
                : full.log.noSpace("the shards are too small for values of this size; use fewer, or raise the capacity")
        }
        return blob
    }

    /// If the one shard has no room after all (beside pins, or beside many writers), all shards together may have.
    @inline(never)
    private func storeBesideOwn(_ version: inout UInt64, _ change: inout Change) throws(Failure) -> Status {
        let blob = try drawBlob(keepsOwn: true, &change)
        do throws(Failure) { return try store(blob, &version, &change) } catch {
            guard error.status == .full, !error.isFileLimit, !change.ownIsDead, ref.pointee.geometry.shards > 1,
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

    /// Stores the value beside the one that it replaces.
    private func store(_ blob: UInt64, _ version: inout UInt64, _ change: inout Change) throws(Failure) -> Status {
        let writer = try begin(blob)
        defer { writer.end() }
        var stored = 0, wasKept = true
        change.keepsOwn = true
        do throws(Failure) {
            for i in 0..<count {
                wasKept = writer.renew() && wasKept
                stored += try putPart(i, blob, &change)
            }
            // If this writer was stopped for so long that others took it for dead, or had to make room, missing parts
            // are stored again before the manifest.
            if !wasKept || !writer.renew() { try replaceMissing(writer, &change) }
            if try putManifest(blob, stored: stored, &version, &change) == .conflict {
                clearParts(blob)
                return .conflict
            }
        } catch {
            clearParts(blob)
            throw error
        }
        // Since then the cleaner may have found parts that seemed to have no writer.
        do throws(Failure) { try replaceMissing(writer, isStored: true, &change) } catch {
            // Another caller holds a shard's lock for long: readers unlink the value if it lacks a part.
            if error.status == .busy { return .ok }
            // The value was stored and leaves again: as if evicted at once, which a pinned one may not be.
            _ = try? write(to: shard, &change) { shard in
                shard.evictOwner(PartKey(blob: blob, owner: entry.key.hash, part: 0), evenPinned: true)
                return true
            }
            if options.isPinned { throw error }
        }
        return .ok
    }

    /// Waits for a cell if live writers hold all that the blob may have. By the end of `patience`, each writer that was
    /// listed at the start has renewed its cell, or counts as dead.
    private func begin(_ blob: UInt64) throws(Failure) -> LargeWriters.Registration {
        let writers = Shard.largeWriters(ref, of: blob), end = shim_uptime_ms() &+ LargeWriters.patience
        var pause = 1
        while true {
            if let writer = writers.begin(blob) { return writer }
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
        var encoded = engine.encode(bytes.start, bytes.count, scratch)
        return try withPart(i, blob) { shard, key throws(Failure) in
            let part = part(key)
            var version: UInt64 = 0
            // A pinned value is lost with any of its parts.
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

    /// Stores parts again that the cleaner, or a caller that needed room, took for abandoned or had to evict. Throws if
    /// storing some always evicts others. `isStored`: the manifest is, and may have been replaced since, and its parts
    /// cleared.
    private func replaceMissing(_ writer: LargeWriters.Registration, isStored: Bool = false, _ change: inout Change)
        throws(Failure)
    {
        for _ in 0..<3 {
            var wasKept = true
            writer.renew()
            for i in 0..<count where try !hasPart(i, writer.number, isStored ? .short : .ofCall) {
                if isStored, try !isCurrent(writer.number) { return }
                _ = try putPart(i, writer.number, &change)
                wasKept = writer.renew() && wasKept
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

    /// Evaluates `isSo` under the shard's lock; true in doubt. Throws if the lock is not free in time.
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

    /// Returns a shard without room for its share of the value, even if it held only pinned entries. `isExact`:
    /// compresses all parts, to know their lengths. `isKept`: requires that the cleaner never has to evict any of them;
    /// `own`: nor the value that it replaces.
    private func misfit(_ blob: UInt64, isExact: Bool, isKept: Bool, beside own: Bool) throws(Failure) -> Shard? {
        let shards = ref.pointee.geometry.shards
        return try withUnsafeTemporaryAllocation(of: ShardReader.Need.self, capacity: shards) { needs throws(Failure) in
            needs.initialize(repeating: ShardReader.Need())
            needs[shard.number].add(manifestLength)
            for i in 0..<count {
                let bytes = bytes(ofPart: i)
                let encoded =
                    isExact
                    ? engine.encode(bytes.start, bytes.count, scratch)
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

    /// Adds the bytes to keep of the value that the set replaces, beside pinned entries.
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
