import CShalePlatform

extension ShardWriter {
    /// `expires`: entries with the tag become stale.
    func invalidate(_ tag: UInt64, expires: Bool) throws(Failure) {
        var word = tag
        try withUnsafeBytes(of: &word) { key throws(Failure) in
            let record =
                expires
                ? RecordHeader(kind: .expire, keyLength: 8, expires: change.now)
                : RecordHeader(kind: .invalidate, keyLength: 8)
            var draft = Draft(record, keyHash: shim_hash(key.start, 8, secret), key: key.start)
            // An empty log holds no entry with the tag, and needs no frame.
            let isNoted = log.count > 0 || mayHaveResidualRecords
            if isNoted { try makeRoom(draft.record.length, live: false) }
            // (Last: `makeRoom` may discard all tags.)
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
