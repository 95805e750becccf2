import CShalePlatform

/// Fenced sets: a value that was loaded is stored only if nothing has happened to its key since a token was drawn, before
/// the load.
///
/// A token is a number of the sequence that all changes are numbered by, drawn under the shard's lock. So a change in
/// this shard has a lower number if it was complete when the token was drawn, and a higher one if it came later.
/// Where the shard does not know what happened since, it says that something has.
extension Shard {
    /// Before a key's entry is removed or expired, also where it has none.
    func noteRemoval(of key: Key) { fences.note(key.hash, drawLSN()) }

    /// Before an entry that was set under this number leaves the index, whyever.
    @inline(__always)
    func noteLeaving(_ lsn: UInt64) {
        // (What damage has made of the number is no later than now.)
        if lsn > header[Field.evictedFloor] { header.release(Field.evictedFloor, min(lsn, highestLSN)) }
    }

    /// Before the index forgets what happened to keys, or to tags.
    func raiseFloor(_ field: ShardHeader.Word) { header.release(field, drawLSN()) }

    private var highestLSN: UInt64 { engine.pointee.head.acquire(IndexHead.lsn) }

    /// Whether the key was not set, removed or expired, and none of the tags invalidated or expired, since the token was
    /// drawn.
    @inline(never)
    func isUntouched(_ key: Key, since token: UInt64, _ tagged: UnsafePointer<UInt64>?, _ tagCount: Int) -> Bool {
        let now = highestLSN
        // (A token from the future is one of an index that is gone.)
        guard token > header[Field.keyFloor], token <= now, fences.lastRemoval(of: key.hash, now: now) < token else {
            return false
        }
        for i in 0..<tagCount {
            guard token > header[Field.tagFloor], let tagged, tags.lastChange(of: tagged[i]) < token else {
                return false
            }
        }
        if let slot = lookup(key) { return entry(slot, now: 0).map { $0.value.header.lsn < token } ?? false }
        return header[Field.evictedFloor] < token && !hasUnreadable(key)
    }

    /// The same, where the tags of what would be set are not known: none at all was invalidated or expired.
    func isUntouched(_ key: Key, since token: UInt64) -> Bool {
        token > header[Field.tagFloor] && tags.lastChange < token && isUntouched(key, since: token, nil, 0)
    }
}
