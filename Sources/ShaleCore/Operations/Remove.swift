import CShalePlatform

extension ShardWriter {
    /// The tombstone keeps a rebuild from bringing older records back.
    func remove(_ key: Key, version: UInt64) throws(Failure) -> Status {
        var existing = reader.entry(key, now: change.now)
        if version != 0, let existing, !existing.isDead, existing.value.header.lsn != version { return .conflict }
        let answer: Status = existing.map { $0.isDead ? .miss : .ok } ?? .miss
        noteRemoval(of: key)
        var slot = reader.lookup(key)
        if slot == nil ? !mayHaveResidualRecords && !reader.hasUnreadable(key) : version != 0 && answer == .miss {
            return .miss
        }
        var draft = Draft(RecordHeader(kind: .tombstone, keyLength: key.length), keyHash: key.hash, key: key.bytes)
        try makeRoom(draft.record.length, live: false)
        slot = reader.lookup(key)
        existing = nil
        appendTombstone(&draft, slot, counting: answer == .ok ? Field.removes : nil, isNoted: true)
        return answer
    }

    private func appendTombstone(
        _ draft: inout Draft, _ slot: Slot?, counting field: ShardHeader.Count? = nil, isNoted: Bool = false
    ) {
        guard let slot else {
            log.append(&draft, lsn: reader.drawLSN())
            return
        }
        header.begin()
        if let field { header[field] += 1 }
        log.append(&draft, lsn: reader.drawLSN())
        commitUnlink(slot, isNoted: isNoted)
    }

    /// Whether a rebuild could find residual records: it begins at the tail that the file proves, not at the current
    /// one.
    var mayHaveResidualRecords: Bool {
        let residual = header[Field.residual]
        return residual != 0 && residual >= log.provenTail
    }

    /// Unlinks an entry that a reader found damaged or incomplete, if it is still in the index. Returns whether to look
    /// again: it is unlinked, or was complete meanwhile.
    @inline(never) @discardableResult
    func unlinkUnreadable(_ key: Key, location: UInt32, isDamaged: Bool) throws(Failure) -> Bool {
        // (In a later hold, making room may have moved it.)
        if !change.progress.isUnreadable {
            guard let found = table.find(key.hashBits, location: location), !found.entry.isPart else { return true }
            if !isDamaged {
                guard let manifest = reader.manifest(at: location), !reader.isBeingWritten(manifest.blob) else {
                    return false
                }
                if try isWhole(location, key) { return true }
            }
            change.progress.isUnreadable = true
            change.progress.unreadableSegment = log.segment(of: location)
            change.progress.unreadableVersion = reader.lsn(of: found)
            // (A damaged record does not tell when it was set; and it may be evicted to make the room.)
            if isDamaged { noteDamage(of: found) }
        }
        let segment = change.progress.unreadableSegment, version = change.progress.unreadableVersion
        var draft = Draft(RecordHeader(kind: .tombstone, keyLength: key.length), keyHash: key.hash, key: key.bytes)
        var hasRoom = true
        do throws(Failure) { try makeRoom(max(Damage.length, draft.record.length), live: false) } catch {
            if error.isPause || change.makesRoomElsewhere { throw error }
            hasRoom = false
        }
        // Cleaning may have moved or evicted it, and its location may be reused. (Looking again would never end on a
        // full disk, where making room moves it each time.)
        var current: Slot?
        table.probe(key.hashBits) { slot, word0 in
            let at = word0.location
            guard !word0.isPart,
                at == location && log.segment(of: at) == segment || version != 0 && reader.lsn(of: slot) == version
            else { return false }
            current = slot
            return true
        }
        guard let slot = current else { return true }
        if !hasRoom {
            // The key misses from now on, but a rebuild may find the entry again.
            if isDamaged, reader.soundMeasure(slot.entry.location) == nil { doubtSums() }
            unlink(slot)
        } else if isDamaged {
            try unlinkDamaged(slot)
        } else {
            appendTombstone(&draft, slot)
        }
        return true
    }
}
