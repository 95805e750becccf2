import CShalePlatform

extension ShardWriter {
    /// `expires`: what carries the tag becomes stale.
    func invalidate(_ tag: UInt64, expires: Bool) throws(Failure) {
        var word = tag
        try withUnsafeBytes(of: &word) { key throws(Failure) in
            let record =
                expires
                ? RecordHeader(kind: .expire, keyLength: 8, expires: change.now)
                : RecordHeader(kind: .invalidate, keyLength: 8)
            var draft = Draft(record, keyHash: shim_hash(key.start, 8, secret), key: key.start)
            // A log that has not begun holds nothing that carries the tag, and needs no frame for that.
            let isNoted = log.count > 0 || mayHaveGhosts
            if isNoted { try makeRoom(draft.record.length, live: false) }
            // (Last: what makes room may forget all tags.)
            try makeTagRoom(for: tag)
            let lsn = reader.drawLSN()
            noteChange(ofTag: tag, lsn)
            header.begin()
            if isNoted { log.append(&draft, lsn: lsn) }
            guard let cell = tags.prepare(tag, expires ? .expiry(change.now) : .invalidation, lsn: lsn) else {
                header.end()
                return
            }
            if expires { header.replaceSecond(cell.pair, change.now) }
            header.commit(cell.word, cell.value)
        }
    }
}
