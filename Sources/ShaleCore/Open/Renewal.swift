import CShalePlatform

extension Numbers {
    /// 2^40 to 2^41, at random. The last life, or another copy of the cache, may have used numbers that are lost, some of
    /// them as tokens: they must not pass for this life's, nor may those that two lives in a row have lost.
    static func lead(_ files: CacheFiles) throws(Failure) -> UInt64 { try 1 << 40 + randomWord(files.path) >> 24 }
}

/// A cache whose numbers come near their end begins anew.
extension Engine {
    var isNearLastNumber: Bool {
        if ref.pointee.head[IndexHead.lsn] >= Numbers.renewal { return true }
        for i in 0..<ref.pointee.geometry.shards where Shard(ref, i).log.nextNumber >= Numbers.renewal { return true }
        return false
    }
}

extension Superblock {
    /// Begins the cache anew: with another secret, under which nothing that is there verifies.
    mutating func renew(_ files: CacheFiles, _ geometry: Geometry) throws(Failure) {
        secret = try randomWord(files.path)
        renewals &+= 1
        try writeOther(files)
        try finishRenewal(files, geometry)
    }

    /// Once the first copy with the new secret is durable. The second one, which says that all is done, comes last.
    mutating func finishRenewal(_ files: CacheFiles, _ geometry: Geometry) throws(Failure) {
        try files.syncData()
        // (A synced position of the other secret would promise more than there is.)
        try files.emptyData(from: geometry.syncTable, allocated: geometry.dictionaries)
        try files.syncData()
        try write(files)
        isRenewed = true
    }
}
