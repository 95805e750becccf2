import CShalePlatform

public struct Report: Sendable {
    public var records: UInt64 = 0
    public var bytes: UInt64 = 0
    /// Found damaged by this call, and unlinked.
    public var corruptRecords: UInt64 = 0
}

extension Engine {
    /// Reads every current record, checks it, and unlinks damaged entries. Holds one shard's lock at a time, for a few
    /// records.
    public func verify() throws(Failure) -> Report {
        try checkCurrent()
        var report = Report()
        for i in 0..<ref.pointee.geometry.shards {
            let shard = Shard(ref, i)
            var hashBits: UInt64 = 0
            while hashBits < Table.allHashBits {
                if ref.pointee.isReadOnly {
                    if shard.header.isBeingRebuilt { try shard.waitForRebuild() }
                    // (Without a lock: `check` looks again at each slot.)
                    let (stretch, found) = try shard.reader.checkNext(from: hashBits) { _ throws(Failure) in
                        report.corruptRecords += 1
                        report.records += 1
                    }
                    report.add(found)
                    hashBits = stretch.next
                } else {
                    try check(shard, &hashBits, &report)
                }
            }
        }
        try checkCurrent()
        return report
    }

    /// Checks as many entries as one hold of the lock allows.
    private func check(_ shard: Shard, _ hashBits: inout UInt64, _ report: inout Report) throws(Failure) {
        var change = try Change(ref)
        try shard.write(&change) { shard throws(Failure) in
            // Includes damaged entries that cleaning finds on the way.
            let corrupt = ShardHeader.Field.corrupt, before = shard.header[corrupt]
            defer { report.corruptRecords += UInt64(shard.header[corrupt] - before) }
            repeat {
                let (stretch, found) = try shard.reader.checkNext(from: hashBits) { slot throws(Failure) in
                    shard.spend(0, bytes: shard.log.record(slot.entry.location)?.length ?? 0)
                    if Damage.length > shard.log.headRoom {
                        try shard.makeRoom(Damage.length, live: false)
                        // (Making room may have unlinked the entry.)
                        guard shard.reader.check(slot) == .damaged else { return }
                    }
                    try shard.unlinkDamaged(slot)
                    report.records += 1
                }
                report.add(found)
                shard.spend(stretch.looks + Int(found.records) * Share.lookup, bytes: Int(found.bytes))
                hashBits = stretch.next
            } while hashBits < Table.allHashBits && shard.change.left > 0
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
    /// Checks the next entry of a home, or all with its hash bits. Returns the sound ones; `unlink` gets the others.
    fileprivate func checkNext(from hashBits: UInt64, _ unlink: (Slot) throws(Failure) -> Void) throws(Failure) -> (
        Table.Stretch, Report
    ) {
        var report = Report()
        // (Records may be long: a step reads one.)
        let stretch = table.stretch(from: hashBits, byOne: true)
        try table.visit(stretch) { slot throws(Failure) in
            switch check(slot) {
            case .free: break
            case .damaged: try unlink(slot)
            case .sound(let bytes):
                report.records += 1
                report.bytes += UInt64(bytes)
            }
        }
        return (stretch, report)
    }

    /// Checks a slot's record. Without the lock it may be recycled meanwhile, and is checked again.
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
