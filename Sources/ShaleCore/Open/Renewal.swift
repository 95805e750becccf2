import CShalePlatform

extension Numbers {
    /// Returns a random number from 2^40 to 2^41. The last life of the cache, or a copy of it, may have used numbers
    /// that were lost, some as tokens: they must not pass for this life's, nor may those that two lives in a row have
    /// lost.
    static func lead(_ files: CacheFiles) throws(Failure) -> UInt64 { try 1 << 40 + randomWord(files.path) >> 24 }
}

/// A cache whose numbers come near their end starts over.
extension Engine {
    var isNearLastNumber: Bool {
        if ref.pointee.head[IndexHead.lsn] >= Numbers.renewal { return true }
        for i in 0..<ref.pointee.geometry.shards where Shard(ref, i).log.nextNumber >= Numbers.renewal { return true }
        return false
    }
}

extension Superblock {
    /// Starts the cache over with another secret, under which no existing record verifies.
    mutating func renew(_ files: CacheFiles, _ geometry: Geometry) throws(Failure) {
        secret = try randomWord(files.path)
        renewals &+= 1
        try writeOther(files)
        try finishRenewal(files, geometry)
    }

    /// Finishes a renewal once the first superblock copy has the new secret. The second one, which marks it as done,
    /// comes last.
    mutating func finishRenewal(_ files: CacheFiles, _ geometry: Geometry) throws(Failure) {
        try files.syncData()
        // (A synced position of the old secret would promise more than exists.)
        try files.emptyData(from: geometry.syncTable, allocated: geometry.dictionaries)
        try files.syncData()
        try write(files)
        isRenewed = true
    }
}
