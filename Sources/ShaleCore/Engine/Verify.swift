import CShalePlatform

public struct Report: Sendable {
    public var records: UInt64 = 0
    public var bytes: UInt64 = 0
    /// Found damaged by this call, and dropped.
    public var corruptRecords: UInt64 = 0
}

extension Engine {
    /// Reads every current record, checks it, and drops what is damaged. Holds one shard's lock at a time, for a few
    /// records.
    public func verify() throws(Failure) -> Report {
        try checkCurrent()
        var report = Report()
        for i in 0..<ref.pointee.geometry.shards {
            let shard = Shard(ref, i)
            var fraction: UInt64 = 0
            while fraction < Table.allFractions {
                if ref.pointee.isReadOnly {
                    if shard.header.isBeingRebuilt { try shard.waitForRebuild() }
                    // (Without a lock: each slot is looked at again.)
                    let (stretch, found) = try shard.reader.checkNext(from: fraction) { _ throws(Failure) in
                        report.corruptRecords += 1
                        report.records += 1
                    }
                    report.add(found)
                    fraction = stretch.next
                } else {
                    try check(shard, &fraction, &report)
                }
            }
        }
        try checkCurrent()
        return report
    }

    /// As many entries as a hold has a share for.
    private func check(_ shard: Shard, _ fraction: inout UInt64, _ report: inout Report) throws(Failure) {
        var change = try Change(ref)
        try shard.write(&change) { shard throws(Failure) in
            // Those that cleaning meets on the way are among them.
            let corrupt = ShardHeader.Field.corrupt, before = shard.header[corrupt]
            defer { report.corruptRecords += UInt64(shard.header[corrupt] - before) }
            repeat {
                let (stretch, found) = try shard.reader.checkNext(from: fraction) { slot throws(Failure) in
                    shard.spend(0, bytes: shard.log.record(slot.entry.location)?.length ?? 0)
                    if Loss.length > shard.log.headRoom {
                        try shard.makeRoom(Loss.length, live: false)
                        // (The entry may have left for that.)
                        guard shard.reader.check(slot) == .damaged else { return }
                    }
                    try shard.lose(slot)
                    report.records += 1
                }
                report.add(found)
                shard.spend(stretch.looks + Int(found.records) * Share.lookup, bytes: Int(found.bytes))
                fraction = stretch.next
            } while fraction < Table.allFractions && shard.change.left > 0
        }
    }
}

extension Report {
    fileprivate mutating func add(_ other: Report) {
        records += other.records
        bytes += other.bytes
    }
}

private enum Checked: Equatable { case free, sound(Int), damaged }

extension ShardReader {
    /// Checks the next entry of a home, or all that have its fraction: what is sound there. `drop` gets the others.
    fileprivate func checkNext(from fraction: UInt64, _ drop: (Slot) throws(Failure) -> Void) throws(Failure) -> (
        Table.Stretch, Report
    ) {
        var report = Report()
        // (Their records may be long: a step reads one.)
        let stretch = table.stretch(from: fraction, byOne: true)
        try table.visit(stretch) { slot throws(Failure) in
            switch check(slot) {
            case .free: break
            case .damaged: try drop(slot)
            case .sound(let bytes):
                report.records += 1
                report.bytes += UInt64(bytes)
            }
        }
        return (stretch, report)
    }

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
