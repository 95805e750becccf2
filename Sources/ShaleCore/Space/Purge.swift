import CShalePlatform

/// Entries that are gone by their age or their tags leave with sweeps and purges, without timers.
extension ShardWriter {
    /// Removes all entries that are gone, and returns how many of them had expired. Forgets the tags if they make no entry
    /// stale.
    @inline(never)
    func purge() -> Int {
        let before = header[Field.expirations], hasTags = header.hasTags
        var needsTags = false
        reader.forEachSlot { slot, _ in
            if !dropIfGone(slot), hasTags, dropIfGoneByTags(slot) == .stale {
                needsTags = true
            }
        }
        if hasTags, !needsTags {
            // As in resetIndex.
            raiseEpoch(by: 2)
            tags.removeAll()
        }
        return header[Field.expirations] - before
    }

    private enum ByTags { case untouched, stale, gone }

    /// What an entry's tags have made of it, which its slot does not say. Removes one that is gone.
    private func dropIfGoneByTags(_ slot: Slot) -> ByTags {
        guard slot.entry.mayBeTagged, let found = reader.entry(slot, now: change.now) else { return .untouched }
        if found.standing.isInvalidated {
            drop(slot)
        } else if found.standing.isExpired, found.isGone {
            drop(slot, counting: Field.expirations)
        } else {
            return found.standing.isExpired ? .stale : .untouched
        }
        return .gone
    }
}

extension ShardWriter {
    /// Expired data leaves with the sweeps, without timers.
    @discardableResult
    func dropIfGone(_ slot: Slot) -> Bool {
        let word0 = slot.entry
        guard !word0.isPart,
            SlotExpiry.mayBeGone(slot.use.expiry, now: change.now, base: engine.pointee.block.expiryBase)
        else { return false }
        // (A damaged age ends nothing: whoever reads the entry notes its loss.)
        guard let record = log.record(word0.location), log.isHeadSound(record),
            record.header.lifetime(at: record.at).isOver(at: change.now)
        else { return false }
        drop(slot, counting: Field.expirations)
        return true
    }
}
