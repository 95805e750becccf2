import CShalePlatform

public struct Report: Sendable {
    public var records: UInt64 = 0
    public var bytes: UInt64 = 0
    /// Found damaged by this call, and dropped.
    public var corruptRecords: UInt64 = 0
}

extension Engine {
    /// Reads every current record, checks it, and drops what is damaged. Holds one shard's lock at a time,
    /// for a few hundred entries each.
    public func verify() throws(Failure) -> Report {
        var report = Report()
        for i in 0..<ref.pointee.geometry.shards {
            let shard = Shard(ref, i)
            var position = 0
            while true {
                let start = position
                let (next, found) = try check(shard, from: start)
                report.records += found.records
                report.bytes += found.bytes
                report.corruptRecords += found.corruptRecords
                guard let next else { break }
                position = next
            }
        }
        return report
    }

    private func check(_ shard: Shard, from start: Int) throws(Failure) -> (next: Int?, Report) {
        var report = Report(), corrupt = 0, next: Int?
        if ref.pointee.isReadOnly {
            if shard.header.isBeingRebuilt { try shard.waitForRebuild() }
            next = try walk(shard.reader, start, &report) { _ throws(Failure) in corrupt += 1 }
        } else {
            var change = try Change(ref)
            next = try shard.write(&change) { shard throws(Failure) in
                report = Report()
                // Those that cleaning meets on the way are among them.
                let before = shard.header[ShardHeader.Field.corrupt]
                defer {
                    corrupt += shard.header[ShardHeader.Field.corrupt] - before
                    if corrupt > 0 { shard.recount() }
                }
                return try walk(shard.reader, start, &report) { slot throws(Failure) in
                    if Loss.length > shard.log.headRoom { try shard.makeRoom(Loss.length, live: false) }
                    if shard.reader.check(slot) == .damaged { try shard.lose(slot) }
                }
            }
        }
        report.corruptRecords = UInt64(corrupt)
        return (next, report)
    }

    private func walk(
        _ shard: ShardReader, _ start: Int, _ report: inout Report, _ drop: (Slot) throws(Failure) -> Void
    )
        throws(Failure) -> Int?
    {
        let end = shard.table.positions.upperBound
        let stop = min(end, start + 128)
        // (A read-only handle has no lock: each slot is looked at again.)
        try shard.table.forEachSlot(at: start..<max(start, stop)) { slot, _, _ throws(Failure) in
            let checked = shard.check(slot)
            if checked == .free { return }
            report.records += 1
            if case .sound(let bytes) = checked { report.bytes += UInt64(bytes) } else { try drop(slot) }
        }
        return stop < end ? stop : nil
    }
}

private enum Checked: Equatable { case free, sound(Int), damaged }

extension ShardReader {
    /// What a slot points to. Without the lock it may be recycled meanwhile, and is looked at again.
    fileprivate func check(_ slot: Slot) -> Checked {
        while true {
            let word0 = slot.acquiredEntry
            if word0.isFree { return .free }
            let location = word0.location
            guard log.isSound(location) else { return .damaged }
            let segment = log.numberWord(log.frame(of: location)).acquire(0)
            if let bytes = log.soundBytes(location) { return .sound(bytes) }
            shim_fence_acquire()
            if slot.acquiredEntry.isSame(as: word0),
                log.numberWord(log.frame(of: location)).acquire(0) == segment
            {
                return .damaged
            }
        }
    }
}
