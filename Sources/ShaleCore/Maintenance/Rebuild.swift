import CShalePlatform

/// A shard's index, made anew from its log: replayed in order, which is all
/// that it takes. Recency becomes the order of writing, and entries that had
/// been evicted may come back. Removed, replaced and invalidated ones do not:
/// what removed them comes later in the log.
extension Shard {
    /// What a killed writer was changing; the lock is held.
    func rebuild() throws(Failure) {
        if try beginRebuild(afterPowerLoss: false) { try replayParts(othersAreKnown: false) }
        finishRebuild()
    }

    /// All of a cache's shards, whose index is gone: no part is judged before all manifests are known, and nothing
    /// is cleaned before all parts are. `lead`: how far numbers go on above those that are found, as others were
    /// used and lost. A random one, since the numbers that one life used may be lost as well, and the next must not
    /// use them for other bytes.
    static func rebuildAll(_ engine: EngineRef, lead: UInt64) throws(Failure) {
        let shards = engine.pointee.geometry.shards
        for i in 0..<shards { Shard(engine, i).raiseEpoch(by: 1) }
        var hasParts = false
        for i in 0..<shards where try Shard(engine, i).beginRebuild(afterPowerLoss: true, lead: lead) {
            hasParts = true
        }
        if hasParts { for i in 0..<shards { try Shard(engine, i).replayParts(othersAreKnown: true) } }
        for i in 0..<shards { Shard(engine, i).finishRebuild() }
    }

    /// Everything but the parts of large values; whether there are such. `afterPowerLoss`: memory is gone, so pages
    /// may be missing and states unknown.
    private func beginRebuild(afterPowerLoss: Bool, lead: UInt64 = 0) throws(Failure) -> Bool {
        // Before anything is changed: the program may have closed the descriptor.
        let fileSize = try engine.pointee.files.dataSize()
        #if SHALE_FAULTS
        shim_tell(SHIM_REPLAYED, header.at)
        #endif
        header.at.release(Field.epoch, header.at.u64(Field.epoch) | 1)
        header.at.set(Field.state, ShardHeader.State.rebuilding)
        shim_fence()
        // What a killed writer was changing is in the log, or is not.
        for field in [Field.transaction, Field.copiedSlot, Field.relocation, Field.moveCount, Field.pending] {
            header.at.set(field, 0)
        }
        if header[Field.tablePages] == 0 {
            header[Field.tablePages] = geometry.shardIndexBytes(buckets: Table.leastBuckets)
        }
        resetIndex()
        var change = Change.withoutTime
        let lost = try readSegments(fileSize, afterPowerLoss: afterPowerLoss, lead: lead)
        header[Field.corrupt] += lost
        presizeTable()
        var hasParts = false
        try replay(afterPowerLoss: afterPowerLoss, lead: lead, &hasParts, &change)
        return hasParts
    }

    private func finishRebuild() {
        var change = Change.withoutTime
        enforceLimits(&change)
        reclaimDeadTail(&change)
        header[Field.rebuilds] += 1
        shim_fence()
        header.at.release(Field.epoch, header.at.u64(Field.epoch) &+ 1)
        header.endChange()
    }

    // MARK: The chain of segments

    /// Finds the log's segments and sets the ring. Returns how many are missing.
    private func readSegments(_ fileSize: Int, afterPowerLoss: Bool, lead: UInt64) throws(Failure) -> Int {
        guard let memory = shim_malloc(geometry.rows * MemoryLayout<SegmentHeader>.stride + SegmentHeader.size) else {
            throw Failure.outOfMemory
        }
        defer { shim_free(memory) }
        let found = UnsafeMutableBufferPointer(
            start: (memory + SegmentHeader.size).bindMemory(to: SegmentHeader.self, capacity: geometry.rows),
            count: geometry.rows)
        header[Field.queueFirst] = 0
        header[Field.queueCount] = 0
        header[Field.freeCount] = 0
        let count = try collectSegments(fileSize, afterPowerLoss: afterPowerLoss, page: memory, found)
        var all = UnsafeMutableBufferPointer(rebasing: found[..<count])
        all.sort { $0.number < $1.number }
        let newest = all.last?.number ?? 0
        // (A synced tail may name a number that was about to be given, and nothing below it would count.)
        let last = max(
            newest, afterPowerLoss ? 0 : header.at.u64(Field.lastNumber),
            SyncedPosition.tail(engine, shard: number).number)
        header.at.set(Field.lastNumber, last + lead)
        header.at.set(Field.headNumber, newest)
        header[Field.headOffset] = log.segmentSize

        beginLog(all, afterPowerLoss: afterPowerLoss)
        let tail = log.tail
        var missing = 0, previous: UInt64 = 0
        for segment in all {
            log.numberWord(segment.place).release(0, segment.number)
            guard segment.number >= tail.number else {
                addLastFree(segment.place)
                continue
            }
            // (The tail may have moved on since anything named it, and its place may be gone.)
            if header[Field.queueCount] == 0
                ? segment.number != tail.number && !afterPowerLoss : segment.previous != previous
            {
                missing += 1
            }
            previous = segment.number
            log.setQueued(header[Field.queueCount], segment.place)
            header[Field.queueCount] += 1
            log.setState(ofPlace: segment.place, .inLog)
            header[Field.headPlace] = segment.place
        }
        if header[Field.queueCount] == 0 {
            setTail(LogPosition(number: log.nextNumber))
        } else if log.numberWord(log.queued(0)).u64(0) != tail.number {
            setTail(LogPosition(number: log.numberWord(log.queued(0)).u64(0)))
        }
        return missing
    }

    /// Before the ring holds any of the log.
    private func addLastFree(_ place: Int) {
        log.setQueued(0, place)
        header[Field.queueFirst] = (header[Field.queueFirst] + 1) % geometry.rows
        header[Field.freeCount] += 1
        log.setState(ofPlace: place, .free)
    }

    /// Notes the sound headers of all places, and puts the places without one in front of the ring: they hold nothing.
    private func collectSegments(
        _ fileSize: Int, afterPowerLoss: Bool, page: Memory, _ found: UnsafeMutableBufferPointer<SegmentHeader>
    ) throws(Failure) -> Int {
        var count = 0, allocated = 0
        for place in 0..<geometry.rows {
            let known = log.state(ofPlace: place)
            if !afterPowerLoss, known == .absent { continue }
            if log.offset(ofPlace: place) >= fileSize {
                log.numberWord(place).release(0, 0)
                log.setState(ofPlace: place, .absent)
                continue
            }
            var sound: SegmentHeader?
            // The whole segment must be inside the file before the mapping is used.
            if log.offset(ofPlace: place) + log.segmentSize <= fileSize,
                try engine.pointee.files.readData(log.offset(ofPlace: place), into: page, SegmentHeader.size)
            {
                sound = SegmentHeader(at: page, shard: number, place: place, secret: secret)
            }
            if let sound {
                found[count] = sound
                count += 1
                log.setState(ofPlace: place, .free)
                allocated += 1
            } else if afterPowerLoss {
                // Allocated or not, nobody knows: give it back, so that the sum is right, or count it.
                let released = engine.pointee.files.releaseData(log.offset(ofPlace: place), log.segmentSize)
                log.numberWord(place).release(0, 0)
                log.setState(ofPlace: place, released ? .absent : .preparing)
                if !released { allocated += 1 }
            } else {
                log.numberWord(place).release(0, 0)
                if known != .preparing { addLastFree(place) }
                allocated += 1
            }
        }
        header[Field.allocated] = allocated
        return count
    }

    /// Where the log begins: at the furthest tail that anything proves. What is older is dead, and some of it may be
    /// gone.
    private func beginLog(_ all: UnsafeMutableBufferPointer<SegmentHeader>, afterPowerLoss: Bool) {
        var proven = SyncedPosition.tail(engine, shard: number)
        for segment in all where proven.isBefore(segment.tail) { proven = segment.tail }
        let isKnown = !afterPowerLoss && proven.isBefore(log.tail)
        if !isKnown { setTail(proven) }
        header.at.set(Field.provenTail, proven.number)
        // A later rebuild may begin earlier than this one, and finds what this one does not see.
        header.at.set(Field.ghost, isKnown ? log.tail.number : 0)
    }

    /// In three steps, so that a kill in between leaves no tail that is too far on.
    private func setTail(_ position: LogPosition) {
        header[Field.tailOffset] = SegmentHeader.size
        header.at.set(Field.tailNumber, position.number)
        header[Field.tailOffset] = isOffset(position.offset) ? position.offset : SegmentHeader.size
    }

    /// As large as a segment from the middle lets expect, and a little more, so that it need not grow on the way.
    private func presizeTable() {
        let count = header[Field.queueCount]
        guard count > 1 else { return }
        var offset = SegmentHeader.size, records = 0
        let base = engine.pointee.data + log.offset(ofPlace: log.queued(count / 2))
        while offset <= log.segmentSize - RecordHeader.size {
            let record = RecordHeader(at: base + offset)
            guard record.isPlausible(room: log.segmentSize - offset), !record.isKind(.end) else { break }
            records += 1
            offset += record.length
        }
        let wanted = records * count / 4 * 64 / (Load.grow - 3)
        var buckets = Table.leastBuckets
        while buckets < wanted { buckets = Table.Shape.grown(buckets) }
        if buckets > Table.leastBuckets { _ = growTable(to: buckets) }
    }

    // MARK: Replay

    /// A record that was verified and waits for its slot's cache line.
    private struct Ready {
        var kind = RecordHeader.Kind.end
        var record = RecordHeader(kind: .end, keyLength: 0)
        var offset = 0
        var keyHash: UInt64 = 0
    }

    private func replay(afterPowerLoss: Bool, lead: UInt64, _ hasParts: inout Bool, _ change: inout Change)
        throws(Failure)
    {
        var synced = SyncedPosition.read(engine, shard: number)
        // Within one boot no page is lost: a position that does not verify was cut off by a kill.
        if !afterPowerLoss, synced.number == .max { synced = SyncedPosition(number: 0, offset: 0) }
        let count = header[Field.queueCount]
        var highestLSN: UInt64 = 0
        var previous: UInt64 = 0
        for i in 0..<count {
            let place = log.queued(i)
            let segment = log.numberWord(place).u64(0)
            if i == 0 { fetchSegment(place) }
            if i + 1 < count { fetchSegment(log.queued(i + 1)) }
            if i > 0 { try closeHole(before: place, previous, isSynced: synced.number > previous) }
            previous = segment
            highestLSN = max(highestLSN, lsnAtBegin(ofPlace: place))
            let (offset, ended) = try replay(
                place, segment, from: i == 0 ? header[Field.tailOffset] : SegmentHeader.size, isHead: i == count - 1,
                synced, &highestLSN,
                &hasParts, &change)
            guard i == count - 1 else { continue }
            // Nothing that verifies is behind this offset: writing goes on here.
            header[Field.headOffset] = ended ? log.segmentSize : offset
            if !ended, synced.covers(segment, offset) { abandonLog(synced) }
        }
        // The newest segment that was synced is not there at all.
        if synced.number != .max, synced.number > header.at.u64(Field.headNumber) { abandonLog(synced) }
        raiseLSN(above: highestLSN, by: lead)
    }

    /// What may have to come from the disk, and would come page by page.
    private func fetchSegment(_ place: Int) {
        if engine.pointee.geometry.hasSmallPages {
            shim_sys_will_need(engine.pointee.data + log.offset(ofPlace: place), log.segmentSize)
        }
    }

    private func lsnAtBegin(ofPlace place: Int) -> UInt64 {
        SegmentHeader(
            at: engine.pointee.data + log.offset(ofPlace: place), shard: number, place: place, secret: secret)?.lsn ?? 0
    }

    /// Replays one segment; returns where its records end, and whether that is marked.
    private func replay(
        _ place: Int, _ segment: UInt64, from start: Int, isHead: Bool, _ synced: SyncedPosition,
        _ highestLSN: inout UInt64, _ hasParts: inout Bool,
        _ change: inout Change
    ) throws(Failure) -> (Int, Bool) {
        let base = log.offset(ofPlace: place)
        var offset = start
        // Sixteen records ahead, so that the waits for their slots overlap.
        let mask = 15
        return try withUnsafeTemporaryAllocation(of: Ready.self, capacity: mask + 1) { ring throws(Failure) in
            ring.initialize(repeating: Ready())
            var head = 0, tail = 0
            func drain(to left: Int) throws(Failure) {
                while head - tail > left {
                    let next = ring[tail & mask]
                    tail += 1
                    let p = engine.pointee.data + base + next.offset
                    try apply(
                        next.kind,
                        RecordView(
                            location: log.location(place: place, offset: next.offset), at: p, header: next.record),
                        next.keyHash, &change)
                }
            }
            while offset <= log.segmentSize - RecordHeader.size {
                let p = engine.pointee.data + base + offset
                let record = RecordHeader(at: p)
                if record.isPlausible(room: log.room(from: offset)), record.lsn < SegmentHeader.beyond,
                    let kind = record.kind
                {
                    let keyHash = record.keyLength == 0 ? 0 : shim_hash(p + record.keyOffset, record.keyLength, secret)
                    if record.verifiesHead(
                        at: p, keyHash: keyHash, place: Place(number: segment, offset: UInt64(base + offset)),
                        secret: secret)
                    {
                        highestLSN = max(highestLSN, record.lsn)
                        if record.codec == RecordHeader.Codec.dictionary {
                            engine.pointee.dictionaries.places.reserve(record.dictionary)
                        }
                        if kind == .end {
                            try drain(to: 0)
                            return (offset, true)
                        }
                        if kind == .part {
                            hasParts = true
                        } else if kind != .gap {
                            shim_prefetch(table.home(of: UInt32(truncatingIfNeeded: keyHash)))
                            ring[head & mask] = Ready(kind: kind, record: record, offset: offset, keyHash: keyHash)
                            head += 1
                            try drain(to: mask)
                        }
                        offset += record.length
                        continue
                    }
                }
                let next = log.nextRecord(place: place, from: offset + 8)
                if next == nil, isHead { break }
                try drain(to: 0)
                header[Field.corrupt] += 1
                // No record was ever in less than a header. (A power cut may leave an older record in front of a newer
                // one, which is a little further than it reaches; no gap record fits there.)
                let mayBeLoss = next.map { $0 - offset >= RecordHeader.size } ?? true
                if mayBeLoss, synced.covers(segment, offset) {
                    forgetOlder()
                } else {
                    // A later sync will cover this place, and must not make it look like a loss of what was synced.
                    fill(place, offset, next ?? log.segmentSize, segment, next == nil ? .end : .gap)
                }
                guard let next else { return (offset, true) }
                offset = next
            }
            try drain(to: 0)
            return (offset, false)
        }
    }

    /// The parts of values that are current. Those of values that were replaced since are in the log as well, and
    /// would take the table's room, and with it entries, until the cleaner comes by.
    private func replayParts(othersAreKnown: Bool) throws(Failure) {
        var change = Change.withoutTime
        let count = header[Field.queueCount]
        for i in 0..<count {
            let place = log.queued(i), base = log.offset(ofPlace: place)
            let end = i == count - 1 ? header[Field.headOffset] : log.segmentSize
            var offset = i == 0 ? header[Field.tailOffset] : SegmentHeader.size
            while offset <= end - RecordHeader.size, let at = log.nextRecord(place: place, from: offset) {
                let p = engine.pointee.data + base + at
                let record = RecordHeader(at: p)
                if record.isKind(.end) { break }
                let view = RecordView(location: log.location(place: place, offset: at), at: p, header: record)
                if let key = view.partKey, isOwned(key, othersAreKnown: othersAreKnown) {
                    try apply(.part, view, shim_hash(view.key, PartKey.size, secret), &change)
                }
                offset = at + record.length
            }
        }
    }

    /// Covers bytes that nothing can be read from with a record that says so.
    private func fill(_ place: Int, _ from: Int, _ to: Int, _ segment: UInt64, _ kind: RecordHeader.Kind) {
        guard !engine.pointee.isReadOnly, to - from >= RecordHeader.size else { return }
        let length = kind == .end ? 0 : to - from - RecordHeader.size
        var record = RecordHeader(kind: kind, keyLength: 0, storedLength: length, rawLength: length)
        let p = log.address(log.location(place: place, offset: from))
        record.writeUnsealed(to: p)
        let here = Place(number: segment, offset: UInt64(log.offset(ofPlace: place) + from))
        record.setHeadCheck(record.computeHeadCheck(at: p, keyHash: 0, place: here, secret: secret))
        record.seal(at: p)
    }

    /// A segment is missing before this one. What it held may have superseded anything older, if it was synced.
    private func closeHole(before place: Int, _ previous: UInt64, isSynced: Bool) throws(Failure) {
        let p = engine.pointee.data + log.offset(ofPlace: place)
        guard let found = SegmentHeader(at: p, shard: number, place: place, secret: secret), found.previous != previous
        else { return }
        if isSynced {
            forgetOlder()
        } else if !engine.pointee.isReadOnly {
            try SegmentHeader(
                shard: number, place: place, number: found.number, previous: previous, tail: found.tail, lsn: found.lsn
            )
            .replace(at: log.offset(ofPlace: place), engine.pointee.files, secret: secret)
        }
    }

    private func raiseLSN(above highest: UInt64, by step: UInt64) {
        let word = engine.pointee.index + IndexHead.lsn
        while true {
            let now = word.u64(0)
            if now >= highest &+ step { return }
            if shim_cas64(word, now, highest &+ step) { return }
        }
    }

    /// The end of what was synced cannot be read, and may have superseded all that is left. The log begins
    /// anew: were it continued, the next rebuild would drop what is written from here on as well.
    private func abandonLog(_ synced: SyncedPosition) {
        header[Field.corrupt] += 1
        forgetOlder()
        if synced.number != .max {
            header.at.set(Field.lastNumber, max(header.at.u64(Field.lastNumber), synced.number))
        }
        while header[Field.queueCount] > 0 { log.releaseTail() }
        setTail(LogPosition(number: log.nextNumber))
        header[Field.headOffset] = log.segmentSize
    }

    /// What was unreadable may have superseded anything older.
    private func forgetOlder() {
        let table = self.table
        for position in table.positions { table.bucket(position).zero(Table.bucketSize) }
        recount()
        header.at.set(Field.ghost, header.at.u64(Field.headNumber))
    }

    @inline(never)
    private func apply(_ kind: RecordHeader.Kind, _ view: RecordView, _ keyHash: UInt64, _ change: inout Change)
        throws(Failure)
    {
        let record = view.header, key = Key(bytes: UnsafeRawPointer(view.key), length: record.keyLength, hash: keyHash)
        switch kind {
        case .value, .manifest, .part:
            try applyValue(view, key, &change)
        case .touch:
            applyTouch(view, key, &change)
        case .tombstone:
            if let slot = lookup(key) { drop(slot, &change) }
        case .invalidate:
            guard record.keyLength == 8 else { return }
            let tag = view.key.loadUnaligned(as: UInt64.self)
            if tags.isFull, tags.invalidation(of: tag) == 0 { sweepTags(&change) }
            tags.add(tag, lsn: record.lsn)
        case .loss:
            if record.keyLength == Loss.size { apply(Loss(at: view.key), &change) }
        case .end, .gap: break
        }
    }

    @inline(never)
    private func applyValue(_ view: RecordView, _ key: Key, _ change: inout Change) throws(Failure) {
        let record = view.header, isPart = record.isKind(.part)
        if isPart, view.partKey == nil { return }
        let slot = lookup(key, isPart: isPart)
        if record.codec == RecordHeader.Codec.dictionary, !engine.pointee.dictionaries.places.has(record.dictionary) {
            // Evicted before its dictionary made room for another.
            if let slot { drop(slot, &change) }
            return
        }
        guard log.isBodySound(view) else {
            // It still supersedes what is older, unless that is what it was copied from.
            header[Field.corrupt] += 1
            if let slot, lsn(of: slot) != record.lsn { drop(slot, &change) }
            return
        }
        let flags =
            (record.isPinned ? Slot.pinnedBit : 0)
            | (isPart ? Slot.Kind.part : record.tagCount > 0 ? Slot.Kind.tagged : Slot.Kind.plain)
        let expiry = SlotExpiry.of(gone: record.gone(at: view.at), base: engine.pointee.block.expiryBase)
        let new = record.isKind(.value) ? Measure(record) : measure(view.location)
        if let slot {
            let old = slot.u64(0)
            exchange(measure(Slot.location(old)), old, for: new, flags)
            slot.set(8, Slot.word1(stamp: nextStamp(), expiry: expiry))
            slot.release(0, Slot.with(old, location: view.location) & ~Slot.keptFlags | flags)
        } else if let free = freeSlot(for: key, &change) {
            // (A stamp that a sweep, for those that were evicted above, has not passed.)
            free.set(8, Slot.word1(stamp: nextStamp(), expiry: expiry))
            free.release(0, table.word0(free, key.fraction, location: view.location, flags: flags))
            account(new, sign: 1)
            count(flags, sign: 1)
        }
    }

    /// Nil where not even evicting helps: the key is known to the log alone.
    private func freeSlot(for key: Key, _ change: inout Change) -> Memory? {
        if !maintainTable(&change, mayShrink: false) { _ = evict(&change) }
        var tries = 0
        while true {
            if let free = table.reserve(key.fraction) { return free }
            tries += 1
            table.advance(Int.max) { drop($0, &change) }
            if !maintainTable(&change, mayShrink: false) || tries > 4, !evict(&change) || tries > 1000 {
                header.at.set(Field.ghost, header.at.u64(Field.headNumber))
                return nil
            }
        }
    }

    @inline(never)
    private func applyTouch(_ view: RecordView, _ key: Key, _ change: inout Change) {
        guard let target = view.touchTarget, let slot = lookup(key) else { return }
        guard log.isBodySound(view) else {
            // It still supersedes the age that the value had before.
            header[Field.corrupt] += 1
            drop(slot, &change)
            return
        }
        let old = Slot.location(slot.u64(0))
        // (A copy by a cleaner who was killed before the slot pointed to it may lie behind the one that was touched.)
        guard let current = log.record(old).flatMap({ log.value(of: $0) }), current.header.lsn == target.lsn else {
            return
        }
        guard current.location == target.location || isInLog(target) else {
            // The copy that was touched is damaged. Its original has an age that may be over.
            drop(slot, &change)
            return
        }
        account(measure(old), sign: -1)
        let word1 = slot.u64(8),
            expiry = SlotExpiry.of(gone: view.header.gone(at: view.at), base: engine.pointee.block.expiryBase)
        slot.set(8, Slot.word1(stamp: Slot.stamp(word1), expiry: expiry))
        slot.release(0, Slot.with(slot.u64(0), location: view.location) & ~Slot.Kind.mask | Slot.Kind.touched)
        account(measure(view.location), sign: 1)
    }

    /// Whether the value that was touched is still where it was then, and whole.
    private func isInLog(_ target: TouchTarget) -> Bool {
        guard let value = log.record(target.location), log.segment(of: target.location) == target.number,
            log.state(ofPlace: log.place(of: target.location)) == .inLog
        else { return false }
        return value.header.lsn == target.lsn && log.isHeadSound(value) && log.isBodySound(value)
    }

    /// The log begins again where it did when its head was begun. What had been cleaned since is dead,
    /// and goes at once, so that the cleaner finds the room that it had.
    private func reclaimDeadTail(_ change: inout Change) {
        if engine.pointee.isReadOnly { return }
        // Once round at most: with pinned entries over the limit it would never end.
        var left = header[Field.queueCount] * log.segmentSize
        while left > 0, log.availablePlaces < log.wantedFree, let cleaned = try? Cleaner(self).cleanRecord(&change),
            cleaned > 0
        {
            left -= cleaned
        }
    }

    /// What a smaller capacity, or evicted entries that came back, put over the limits.
    func enforceLimits(_ change: inout Change) {
        let limit = geometry.entriesPerShard
        while limit > 0, header[Field.entries] > limit, evict(&change) { header[Field.evictions] -= 1 }
        while header[Field.live] > log.liveLimit, evict(&change) { header[Field.evictions] -= 1 }
    }
}
