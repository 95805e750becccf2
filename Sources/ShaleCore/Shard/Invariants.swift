#if DEBUG && !hasFeature(Embedded)
import CShalePlatform

extension ShardWriter {
    func brokenInvariants() -> [String] { tableInvariants() + victimInvariants() + sumInvariants() + logInvariants() }

    /// Checks that every slot is where its hash bits say, within its home's maximum displacement.
    private func tableInvariants() -> [String] {
        var broken: [String] = []
        var locations = Set<UInt32>(), keys = Set<[UInt8]>(), stamps = Set<UInt64>()
        let shape = table.shape
        table.forEachSlot { slot, word0, position in
            let word1 = slot.use
            let home = position - word0.displacement
            let hashBits = table.hashBits(at: position, word0, shape)
            if shape.home(hashBits) != home {
                broken.append("bucket \(position): a slot's home is \(shape.home(hashBits)), not \(home)")
            }
            if home >= 0, table.maxDisplacement(ofHome: home) < word0.displacement {
                broken.append("bucket \(home) does not reach its entry in \(position)")
            }
            let location = word0.location
            if !locations.insert(location).inserted { broken.append("two slots point to \(location)") }
            if !word0.isPart, !stamps.insert(word1.stamp).inserted {
                broken.append("two slots have stamp \(word1.stamp)")
            }
            guard log.soundBytes(location) != nil, let view = log.record(location) else {
                broken.append("bucket \(position): the record at \(location) is not sound")
                return
            }
            if log.state(ofFrame: log.frame(of: location)) != .inLog {
                broken.append("location \(location) is in a frame outside the log")
            }
            let record = view.header, key = view.key
            if UInt32(truncatingIfNeeded: shim_hash(key, record.keyLength, secret)) != hashBits {
                broken.append("the key at \(location) has another hash than its slot")
            }
            if !word0.isPart,
                !keys.insert(Array(UnsafeRawBufferPointer(start: key, count: record.keyLength))).inserted
            {
                broken.append("two slots for one key")
            }
            if word0.isTouched != record.isKind(.touch) {
                broken.append("location \(location): the slot and the record disagree on being touched")
            }
            if word0.isPinned != record.isPinned {
                broken.append("location \(location): the slot and the record disagree on being pinned")
            }
        }
        return broken
    }

    /// Checks that each entry with a rank up to a heap's limit has an item there with no higher rank.
    private func victimInvariants() -> [String] {
        var broken: [String] = []
        let shape = table.shape, current = header[Field.heapCurrent], state = header[Field.sweepState]
        var lowest: [[UInt32: UInt64]] = [[:], [:]]
        for which in 0..<2 {
            for i in 0..<header[Field.heapCounts[which]] {
                let item = victims.item(which, i + 1).u64(0)
                let group = Victims.Item.lowestHashBits(item)
                lowest[which][group] = min(lowest[which][group] ?? UInt64.max, Victims.Item.rank(item))
            }
        }
        table.forEachSlot { slot, word0, position in
            let rank = Victims.rank(slot.use)
            if word0.isPart || word0.isPinned { return }
            let group = table.hashBits(at: position, word0, shape) & ~Victims.Item.groupMask
            let here = (lowest[current][group] ?? UInt64.max) <= rank,
                next = (lowest[1 - current][group] ?? UInt64.max) <= rank
            if rank <= header[Field.heapLimit], !here {
                broken.append("bucket \(position): stamp \(rank) will never leave")
            }
            let isSwept =
                state == ShardHeader.SweepState.complete
                || state == ShardHeader.SweepState.sweeping && position < header[Field.sweepAt]
            if isSwept, rank <= header[Field.sweepLimit], !here, !next {
                broken.append("bucket \(position): the sweep left out stamp \(rank)")
            }
        }
        return broken
    }

    private func sumInvariants() -> [String] {
        let fields = [
            (Field.entries, "entries"), (Field.used, "used"), (Field.live, "live"), (Field.raw, "raw"),
            (Field.stored, "stored"), (Field.pinned, "pinned"), (Field.pinnedBytes, "pinned bytes"),
        ]
        // The sums under audit are right once the audit has ended.
        if isAuditing { try? finishAudit() }
        let before = fields.map { header[$0.0] }
        doubtSums()
        try? finishAudit()
        return zip(fields, before).compactMap { field, value in
            header[field.0] == value ? nil : "\(field.1) is \(value), its sum \(header[field.0])"
        }
    }

    private func logInvariants() -> [String] {
        var broken: [String] = []
        let count = log.count
        var previous: UInt64 = 0
        for i in 0..<count {
            let frame = log.queued(i)
            let segment = log.numberWord(frame).u64(0)
            if log.state(ofFrame: frame) != .inLog { broken.append("frame \(frame) is queued and not in the log") }
            if segment <= previous { broken.append("segment numbers do not ascend at \(i)") }
            if SegmentHeader(
                at: engine.pointee.data + log.offset(ofFrame: frame), shard: number, frame: frame, secret: secret)?
                .number != segment
            {
                broken.append("segment \(segment) has another header")
            }
            previous = segment
        }
        if count > 0, log.queued(count - 1) != log.headFrame || previous != log.headNumber {
            broken.append("the head is not the last of the queue")
        }
        let states = (0..<geometry.framesPerShard).map { log.state(ofFrame: $0) }
        if states.filter({ $0 == .inLog }).count != count { broken.append("frames in the log and queue differ") }
        if states.filter({ $0 != .absent }).count != header[Field.allocated] {
            broken.append("allocated is \(header[Field.allocated]), frames \(states.filter { $0 != .absent }.count)")
        }
        if header[Field.allocated] * log.segmentSize + header[Field.tablePages] > geometry.shardBudget {
            broken.append("the budget is overdrawn")
        }
        if header[Field.diskFullCountdown] == 0, count > 0, log.availableFrames < Log.reserve {
            broken.append("\(log.availableFrames) frames are left for the cleaner")
        }
        return broken
    }
}
#endif
