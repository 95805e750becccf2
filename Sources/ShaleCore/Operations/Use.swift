import CShalePlatform

/// A hit is a use, and counts for the order of eviction.
extension ShardReader {
    @inline(__always)
    func use(_ slot: Slot, _ word1: SlotUse, _ key: Key) {
        if engine.pointee.isReadOnly { return }
        if let stamp = missedUse(slot, word1) { useAgain(key, stamp) }
    }

    /// Draws a stamp and stores it only if the slot is unchanged: a reader that was stopped writes none to another
    /// entry. Returns the stamp if it could not be stored.
    @inline(__always)
    func missedUse(_ slot: Slot, _ word1: SlotUse) -> UInt64? {
        if isClock {
            // (If the word changes meanwhile, the use does not count.)
            if word1.hits < SlotUse.mostHits { _ = slot.replace(word1, with: word1.withOneHitMore) }
            return nil
        }
        if engine.pointee.geometry.shards > 1 {
            // Order need not be exact over the whole cache: the newest entries keep their stamps, and their pages stay
            // clean.
            let age = header[Field.stamp] &- word1.stamp
            if age < header[Field.entriesHint] >> 5 { return nil }
        }
        let stamp = nextStamp()
        if stamp >= Sizes.renumberStampsAt, stamp & 0xFFFF == 0 { shard.requestRenumber() }
        return slot.replace(word1, with: word1.used(stamp: stamp)) ? nil : stamp
    }

    /// Counts a use after the slot was changed by another reader or a writer, or moved; unless a later use counts.
    @inline(never)
    private func useAgain(_ key: Key, _ stamp: UInt64) {
        while true {
            let moment = header.moment
            if moment.isOfRebuild { return } // all stamps are new after a rebuild
            var isDone = false, isThere = false
            table.probe(key.hashBits) { slot, word0 in
                if word0.isPart { return false }
                let word1 = slot.acquiredUse
                let isKey = holds(key, word0.location)
                shim_fence_acquire()
                let isSame = slot.acquiredEntry.isSame(as: word0)
                if isSame, !isKey { return false }
                isThere = true
                if isSame {
                    // (A stamp above the counter's was drawn before a renumbering.)
                    let its = word1.stamp
                    isDone =
                        its > stamp && its <= header[Field.stamp]
                        || slot.replace(word1, with: word1.used(stamp: nextStamp()))
                }
                return true
            }
            if isDone { return }
            if !isThere, header.isStill(moment) { return }
        }
    }
}
