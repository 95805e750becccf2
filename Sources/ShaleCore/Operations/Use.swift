import CShalePlatform

/// A hit is a use, and counts for the order of eviction.
extension ShardReader {
    /// A fresh stamp. It is stored only where the slot is as it was: a reader that was stopped writes none to another
    /// entry.
    @inline(__always)
    func use(_ slot: Slot, _ word1: SlotUse, _ key: Key) {
        if engine.pointee.isReadOnly { return }
        if isAdaptive {
            // (Where the word changes meanwhile, the use does not count.)
            if word1.hits < SlotUse.mostHits { _ = slot.replace(word1, with: word1.withOneHitMore) }
            return
        }
        if engine.pointee.geometry.shards > 1 {
            // Order need not be exact over the whole cache: the newest stay as they are, and their page clean.
            let age = header[Field.stamp] &- word1.stamp
            if age < header[Field.entriesHint] >> 5 { return }
        }
        let stamp = nextStamp()
        if stamp >= Sizes.rebaseStampsAt, stamp & 0xFFFF == 0 { shard.requestRebase() }
        if !slot.replace(word1, with: word1.used(stamp: stamp)) { useAgain(key, stamp) }
    }

    /// Another reader was there, or a writer, or the entry has moved. The use counts all the same, unless a later one
    /// does.
    @inline(never)
    private func useAgain(_ key: Key, _ stamp: UInt64) {
        while true {
            let moment = header.moment
            if moment.isOfRebuild { return } // all stamps are new after a rebuild
            var isDone = false, isThere = false
            table.probe(key.fraction) { slot, word0 in
                if word0.isPart { return false }
                let word1 = slot.acquiredUse
                let isKey = holds(key, word0.location)
                shim_fence_acquire()
                let isSame = slot.acquiredEntry.isSame(as: word0)
                if isSame, !isKey { return false }
                isThere = true
                if isSame {
                    // (A stamp above the counter's is from before they were rebased.)
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
