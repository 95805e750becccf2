import CShalePlatform

/// Keys that are removed for good, and entries that cannot be read.
extension ShardWriter {
    /// Removes a key for good: a tombstone keeps older records from coming back in a rebuild.
    func remove(_ key: Key, version: UInt64) throws(Failure) -> Status {
        var existing = reader.entry(key, now: change.now)
        if version != 0, let existing, !existing.isGone, existing.value.header.lsn != version { return .conflict }
        let answer: Status = existing.map { $0.isGone ? .miss : .ok } ?? .miss
        noteRemoval(of: key)
        var slot = reader.lookup(key)
        if slot == nil ? !mayHaveGhosts && !reader.hasUnreadable(key) : version != 0 && answer == .miss { return .miss }
        var draft = Draft(RecordHeader(kind: .tombstone, keyLength: key.length), keyHash: key.hash, key: key.bytes)
        try makeRoom(draft.record.length, live: false)
        slot = reader.lookup(key)
        existing = nil
        bury(&draft, slot, counting: answer == .ok ? Field.removes : nil, isNoted: true)
        return answer
    }

    /// Appends a tombstone, and with it takes the key's entry out.
    private func bury(
        _ draft: inout Draft, _ slot: Slot?, counting field: ShardHeader.Count? = nil, isNoted: Bool = false
    ) {
        guard let slot else {
            log.append(&draft, lsn: reader.drawLSN())
            return
        }
        header.begin()
        if let field { header[field] += 1 }
        log.append(&draft, lsn: reader.drawLSN())
        takeOut(slot, isNoted: isNoted)
    }

    /// Whether a rebuild could find records that the index does not know: it begins at the tail that the file proves,
    /// not at the one of the moment.
    var mayHaveGhosts: Bool {
        let ghost = header[Field.ghost]
        return ghost != 0 && ghost >= log.provenTail
    }

    /// Drops an entry that a reader found damaged or incomplete, if it is still the current one.
    /// Whether it is worth looking again: it is gone, or it was whole meanwhile.
    @inline(never) @discardableResult
    func dropUnreadable(_ key: Key, location: UInt32, isDamaged: Bool) throws(Failure) -> Bool {
        // (In a later hold, what makes the room may have moved it.)
        if !change.progress.isUnreadable {
            guard let found = table.find(key.fraction, location: location), !found.entry.isPart else { return true }
            if !isDamaged {
                guard let manifest = reader.manifest(at: location), !reader.isBeingWritten(manifest.blob) else {
                    return false
                }
                if try isWhole(location, key) { return true }
            }
            change.progress.isUnreadable = true
            change.progress.unreadableSegment = log.segment(of: location)
            change.progress.unreadableVersion = reader.lsn(of: found)
            // (When it was set, a damaged record does not say; and it may leave to make the room.)
            if isDamaged { noteLoss(of: found) }
        }
        let segment = change.progress.unreadableSegment, version = change.progress.unreadableVersion
        var draft = Draft(RecordHeader(kind: .tombstone, keyLength: key.length), keyHash: key.hash, key: key.bytes)
        var hasRoom = true
        do throws(Failure) { try makeRoom(max(Loss.length, draft.record.length), live: false) } catch {
            if error.isPause || change.makesRoomElsewhere { throw error }
            hasRoom = false
        }
        // Cleaning may have moved it, or let it go; something else may be where it was. (To look again instead would
        // have no end on a full disk, where all that makes room moves it again.)
        var current: Slot?
        table.probe(key.fraction) { slot, word0 in
            let at = word0.location
            guard !word0.isPart,
                at == location && log.segment(of: at) == segment || version != 0 && reader.lsn(of: slot) == version
            else { return false }
            current = slot
            return true
        }
        guard let slot = current else { return true }
        if !hasRoom {
            // Then it is a miss from now on, if not for those who make the index anew.
            if isDamaged, reader.soundMeasure(slot.entry.location) == nil { doubtSums() }
            drop(slot)
        } else if isDamaged {
            try lose(slot)
        } else {
            bury(&draft, slot)
        }
        return true
    }
}
