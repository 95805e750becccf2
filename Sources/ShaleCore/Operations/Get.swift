import CShalePlatform

extension ShardReader {
    /// Reads without a lock: checks the bytes, then whether they were recycled meanwhile.
    @inline(__always)
    func get(_ key: Key, _ options: ReadOptions, _ buffer: inout ValueBuffer, _ found: inout Found) throws(Failure)
        -> Answer
    {
        var unreadable: UInt32 = 0, attempts = 0
        while true {
            let moment = header.moment
            if moment.isOfRebuild {
                try shard.waitForRebuild()
                continue
            }
            var outcome = Outcome.absent
            var location: UInt32 = 0
            let table = self.table
            let home = table.shape.home(key.hashBits)
            #if DEBUG && !hasFeature(Embedded)
            ReadHook.runBeforeProbe()
            #endif
            table.probe(key.hashBits, home: home) { slot, word0 in
                if word0.isPart { return false }
                location = word0.location
                outcome = read(slot, word0, key, options, moment.epoch, &buffer, &found)
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
                if header.isStill(moment) {
                    return unreadable == ShardReader.discarded
                        ? .miss(.damaged, &found) : Answer(.miss, IndexHead.misses)
                }
            case .moved:
                continue
            case .noMemory, .busy:
                throw ShardReader.failure(outcome)
            case .unavailable:
                try waitForRebuilds()
            case .damaged, .incomplete, .replaced:
                attempts += 1
                if attempts == ShardReader.mostAttempts { throw ShardReader.replacedTooOften }
                if outcome == .replaced { continue }
                // Look twice, then unlink the entry. (That takes the lock: a value that keeps being replaced must not
                // lead here.) The key's entry may be behind one whose key is damaged.
                if unreadable == location {
                    guard try discard(key, location, isDamaged: outcome == .damaged) else {
                        return .miss(outcome == .damaged ? .damaged : .absent, &found)
                    }
                    // (A value that lacks a part lost it to callers that needed room.)
                    unreadable = outcome == .damaged ? ShardReader.discarded : 0
                } else {
                    unreadable = location
                }
            }
        }
    }

    @inline(never)
    private static func failure(_ outcome: Outcome) -> Failure {
        outcome == .noMemory ? Failure.outOfMemory : Failure.lockIsTaken
    }

    /// Not a location: a damaged entry was unlinked, and no other was found since.
    private static var discarded: UInt32 { .max }

    /// A large value may be replaced before its last part is read. (Replacing another value takes longer than reading
    /// it, so the probability of endless attempts is zero.)
    static var mostAttempts: Int { 64 }

    private static var replacedTooOften: Failure {
        Failure.because(
            .busy, "the value was replaced 64 times while it was being read; try again when it is set less often")
    }

    @inline(never)
    private func waitForRebuilds() throws(Failure) {
        for i in 0..<geometry.shards where Shard(engine, i).header.isBeingRebuilt {
            try Shard(engine, i).waitForRebuild()
        }
    }

    /// Unlinks an unreadable entry. Returns whether to look again; throws if the lock is not free in time.
    @inline(never)
    private func discard(_ key: Key, _ location: UInt32, isDamaged: Bool) throws(Failure) -> Bool {
        do throws(Failure) {
            var change = try Change(engine)
            return try shard.write(&change) { shard throws(Failure) in
                try shard.unlinkUnreadable(key, location: location, isDamaged: isDamaged)
            }
        } catch {
            if error.status == .busy { throw error }
            return false
        }
    }

    @inline(never) // a miss needs none of it
    private func read(
        _ slot: Slot, _ word0: SlotEntry, _ key: Key, _ options: ReadOptions, _ epoch: UInt64,
        _ buffer: inout ValueBuffer, _ found: inout Found
    ) -> Outcome {
        do throws(Outcome) {
            let sighting = try locate(slot, word0)
            let record = try match(sighting, key)
            let value = try followTouch(record, sighting, key)
            var isStale = try evaluateAge(record, sighting, epoch, options)
            found.expires = Time48.publicPoint(record.header.expires)
            if value.header.tagCount > 0, header.hasTags,
                let expires = try evaluateTags(record, value, sighting, epoch, options)
            {
                isStale = true
                found.expires = Time48.publicPoint(expires)
            }
            found.metaSize = value.header.metaLength
            found.size = value.header.rawLength
            found.storedSize = UInt64(truncatingIfNeeded: value.header.storedLength)
            if value.header.isKind(.manifest) {
                // Validate before reading the parts, which takes long; they are what their keys say even if the
                // manifest changes.
                shim_fence_acquire()
                guard sighting.spot.isUnchanged, header.acquire(Field.epoch) == epoch else { throw .moved }
                try takeParts(value, sighting, key, options, &buffer, &found)
            } else {
                if options.contains(.info) {
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
            }

            found.created = Time48.publicPoint(value.header.created)
            found.version = value.header.lsn
            found.isStale = isStale
            found.isPinned = value.header.isPinned
            #if !hasFeature(Embedded)
            found.bookmark = bookmark(sighting, expires: record.header.expires, key, epoch)
            #endif
            if !options.contains(.peek) { use(slot, sighting.word1, key) }
            return isStale ? .stale : .hit
        } catch { return error }
    }

    // MARK: Steps of a read of a whole value

    /// Returns the record that holds the value: this one, or a touch record's target in another segment.
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

    /// Returns whether the value is stale. Throws if it may not be served.
    @inline(__always)
    private func evaluateAge(_ record: SpottedRecord, _ sighting: Sighting, _ epoch: UInt64, _ options: ReadOptions)
        throws(Outcome) -> Bool
    {
        let expires = record.header.expires
        if expires == Time48.neverPoint || engine.pointee.clock.isWellBefore(expires) { return false }
        let deadline = record.header.deadline(at: record.spot.at), now = engine.pointee.clock.now48,
            isStale = now >= expires
        // (Its replacement may be fresh.)
        if isStale, !isCurrent(sighting, epoch) { throw .moved }
        if now >= deadline || isStale && !options.contains(.stale) { throw .expired }
        return isStale
    }

    /// Returns when the value's age ended, if one of its tags was expired since; nil if they are unchanged. Throws if
    /// it may not be served.
    @inline(__always)
    private func evaluateTags(
        _ record: SpottedRecord, _ value: SpottedRecord, _ sighting: Sighting, _ epoch: UInt64, _ options: ReadOptions
    ) throws(Outcome) -> UInt64? {
        let freshness = freshness(record.view, value.view)
        if !freshness.isInvalidated, !freshness.isExpired { return nil }
        if !isCurrent(sighting, epoch) || !value.spot.isUnchanged { throw .moved }
        if freshness.isInvalidated { throw .invalidated }
        if !options.contains(.stale) || freshness.isDead(at: engine.pointee.clock.now48) { throw .expired }
        return freshness.lifetime.expires
    }

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
        case .noMemory, .busy, .unavailable: throw outcome
        case let lost: throw lost == .moved || unreadable(sighting, spot) == .moved ? .replaced : lost
        }
    }

    /// Whether an entry found stale or dead was still the key's entry then.
    @inline(__always)
    private func isCurrent(_ sighting: Sighting, _ epoch: UInt64) -> Bool {
        sighting.isUnchanged && header.acquire(Field.epoch) == epoch
    }
}
