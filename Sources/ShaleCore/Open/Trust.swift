import CShalePlatform

/// Whether an index can be trusted.
enum Trust: Equatable {
    case absent, unusable
    /// Of another version of Shale. Not usable either, but its users can be named.
    case otherVersion(UInt64)
    /// From another boot, and not closed in order.
    case stale
    /// From another boot, closed in order, and the files have not changed since.
    case clean
    /// Closed in order, but for other files, or these before they changed. `isWholeCopy` tells whether they are
    /// complete copies.
    case copied
    case live

    static func inIndex(_ files: CacheFiles, _ attachment: Attachment) throws(Failure) -> Trust {
        guard let page = shim_calloc(pageSize) else { throw Failure.outOfMemory }
        defer { shim_free(page) }
        guard shim_sys_pread(files.index, page, pageSize, 0) == pageSize else { return .unusable }
        guard try files.indexSize() >= leastIndexSize(attachment.geometry) else { return .unusable }
        let head = IndexHead(at: page)
        guard head[IndexHead.magic] == IndexHead.magicValue else { return .unusable }
        let version = head[IndexHead.version]
        if version != IndexHead.versionValue { return .otherVersion(version) }
        guard head[IndexHead.secretCheck] == check(ofSecret: attachment.block.secret),
            head[IndexHead.geometryCheck] == check(of: attachment.geometry),
            head[IndexHead.retired] == 0,
            IndexHead.isOfGeneration(
                head[IndexHead.generation], attachment.data.acquire(Superblock.generation))
        else { return .unusable }
        let recorded = (head[IndexHead.boot[0]], head[IndexHead.boot[1]])
        // Without /proc the boot is unknown. An index that writers have open is of this one: locks do not outlast it.
        let isOfBoot =
            recorded == (0, 0) || files.boot == (0, 0) ? attachment.isBesideWriters(files) : recorded == files.boot
        let isNamed = head.names(files), mark = attachment.data.u64(Superblock.cleanMark)
        if mark != 0 {
            // (A close writes the data file's mark last.)
            guard head[IndexHead.cleanMark] == mark else { return .unusable }
            let changed = try files.look(files.data, CacheFiles.dataName).changed
            if !isNamed || head[IndexHead.dataChanged] != changed {
                return try IndexParts(files, attachment.geometry)?.sum() == head[IndexHead.sum] ? .copied : .unusable
            }
        }
        if !isNamed { return .unusable }
        return isOfBoot ? .live : mark != 0 ? .clean : .stale
    }

    private static func leastIndexSize(_ g: Geometry) -> Int {
        g.indexEnd(g.shards - 1, buckets: Table.leastBuckets)
    }

    static func check(ofSecret secret: UInt64) -> UInt64 {
        var secret = secret
        return withUnsafeBytes(of: &secret) { shim_hash($0.start, 8, IndexHead.magicValue) }
    }

    static func check(of g: Geometry) -> UInt64 {
        var words = (
            UInt64(g.shards), UInt64(g.segmentSize), UInt64(g.framesPerShard), UInt64(g.region)
        )
        return withUnsafeBytes(of: &words) { shim_hash($0.start, 32, IndexHead.magicValue) }
    }
}

extension IndexHead {
    func name(_ files: CacheFiles) {
        self[IndexHead.ownDevice] = files.indexIdentity.device
        self[IndexHead.ownInode] = files.indexIdentity.inode
        self[IndexHead.ownBirth] = files.indexBirth
        self[IndexHead.dataDevice] = files.dataIdentity.device
        self[IndexHead.dataInode] = files.dataIdentity.inode
        self[IndexHead.dataBirth] = files.dataBirth
    }

    fileprivate func names(_ files: CacheFiles) -> Bool {
        self[IndexHead.ownDevice] == files.indexIdentity.device
            && self[IndexHead.ownInode] == files.indexIdentity.inode
            && self[IndexHead.ownBirth] == files.indexBirth
            && self[IndexHead.dataDevice] == files.dataIdentity.device
            && self[IndexHead.dataInode] == files.dataIdentity.inode
            && self[IndexHead.dataBirth] == files.dataBirth
    }
}

extension Engine {

    /// Whether the index is possible, and agrees with the files.
    func isConsistent() throws(Failure) -> Bool {
        let files = ref.pointee.files
        let dataSize = try files.dataSize()
        let indexSize = try files.indexSize()
        let mark = ref.pointee.data.u64(Superblock.cleanMark)
        let isClean = mark != 0 && ref.pointee.head[IndexHead.cleanMark] == mark
        guard ref.pointee.head[IndexHead.lsn] < Numbers.end else { return false }
        let dictionaries = ref.pointee.geometry.dictionaries
        guard ref.pointee.dictionaries.frames.isConsistent(from: dictionaries, dataSize: dataSize) else { return false }
        for i in 0..<ref.pointee.geometry.shards {
            let shard = Shard(ref, i)
            if !shard.reader.isConsistent(dataSize: dataSize, indexSize: indexSize, isClean: isClean) { return false }
        }
        return true
    }
}
