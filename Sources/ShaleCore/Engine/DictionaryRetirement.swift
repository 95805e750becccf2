import CShalePlatform

/// Makes room for a new dictionary: the frame of one that no shard's records need any more.
struct DictionaryRetirement {
    let engine: EngineRef

    private var frames: DictionaryFrames { engine.pointee.dictionaries.frames }

    /// Stores a dictionary in a frame that no current record needs. Returns false if there is none, if another caller
    /// is storing one, or if a shard's lock stays taken: a call that brings a sample does not depend on it.
    func store(_ candidate: DictionaryCache.Candidate) -> Bool {
        let head = frames.head, before = candidate.present
        let lock = head.address(IndexHead.dictionaryLock), owner = engine.pointee.owner
        guard
            shim_lock_try(lock, owner, SHIM_OTHER_LOCK) == 0
                || owner.takesOver(lock, SHIM_OTHER_LOCK, shim_lock_word(lock))
        else { return false }
        defer { shim_lock_release(lock, owner, SHIM_OTHER_LOCK) }
        guard head.acquire(IndexHead.dictionaryCurrent) == before else { return false }
        // A log that was not replayed yet may name any dictionary.
        if Shard.areSomeBeingRebuilt(engine) { return false }
        let last = head[IndexHead.dictionaryLast]
        for next in (last + 1)...(last + UInt64(frames.count)) where next <= 65_535 {
            let number = UInt16(next)
            let word = frames.numberWord(number)
            let victim = word.acquire(0)
            if victim != 0 {
                if victim == before || isNeeded(number) { continue }
                // No new put will use it; wait for in-flight writers.
                head.release(IndexHead.dictionaryRetiring, victim)
                shim_fence()
                guard let isNeeded = isNeededByWriters(number) else { return false }
                if isNeeded { continue }
            }
            let p = frames.frame(number)
            guard (try? engine.pointee.files.allocateData(p - engine.pointee.data, frames.size)) != nil else {
                return false
            }
            word.release(0, 0)
            // A shard that was rebuilt since its check may have found old records that name the number, before it was
            // cleared.
            if victim != 0, isNeededByWriters(number) ?? true {
                word.release(0, victim)
                continue
            }
            // First, because the number may be the next one to be made, and a kill from here on would leave it retired
            // for good.
            head.release(IndexHead.dictionaryRetiring, 0)
            shim_fence()
            p.set(16, 0)
            p.set(0, next)
            p.set(8, UInt64(candidate.size))
            shim_copy(p + DictionaryFrames.headerSize, candidate.bytes, candidate.size)
            p.release(16, frames.check(p, size: candidate.size))
            word.release(0, next)
            head.release(IndexHead.dictionaryLast, next)
            head.release(IndexHead.dictionaryCurrent, next)
            return true
        }
        return false
    }

    /// Whether a current record names it.
    private func isNeeded(_ number: UInt16) -> Bool {
        for i in 0..<engine.pointee.geometry.shards where isNamed(number, Shard(engine, i).reader) { return true }
        return false
    }

    /// The same, including sets under way. Nil if that cannot be determined soon.
    private func isNeededByWriters(_ number: UInt16) -> Bool? {
        for i in 0..<engine.pointee.geometry.shards {
            guard let isNamed = try? Shard(engine, i).locked(waiting: .short, { isNamed(number, $0.reader) }) else {
                return nil
            }
            if isNamed { return true }
        }
        return false
    }

    private func isNamed(_ number: UInt16, _ shard: ShardReader) -> Bool {
        shard.header[shard.dictionaryField(number)] != 0
    }
}
