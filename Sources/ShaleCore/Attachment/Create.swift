import CShalePlatform

extension Attachment {
    static func createInMemory(_ configuration: Configuration) throws(Failure) -> Engine {
        guard configuration.mayCreate else {
            throw Failure.because(
                .invalid, "a cache in memory is new: it cannot be read-only, and cannot exist before")
        }
        let block = try configuration.newSuperblock(secret: try randomWord(nil), now: Clock(configuration).now)
        let geometry = Geometry(block)
        var files = CacheFiles()
        let data = try files.map(-1, geometry.dataSize, writable: true, "memory")
        files.dataBase = data
        shim_sys_huge_pages(data, geometry.dataSize)
        do throws(Failure) {
            let attachment = Attachment(
                configuration: configuration, block: block, geometry: geometry, data: data, isSoleWriter: true,
                isNew: true)
            let index = try files.map(-1, geometry.indexSize, writable: true, "memory")
            files.indexBase = index
            return try attachment.finish(files, index: index) { engine throws(Failure) in
                engine.initialiseIndex()
                try engine.initialiseLocks()
            }
        } catch {
            shim_sys_unmap(data, geometry.dataSize)
            throw error
        }
    }
}

extension CacheFiles {
    func createData(_ block: Superblock, _ geometry: Geometry, _ data: Memory) throws(Failure) {
        try allocateData(0, geometry.dictionaries)
        data.zero(geometry.dictionaries)
        // The name is durable only once the directory is; some file systems cannot sync one. Before the superblock:
        // where it fails, the file stays empty, and the next to open it tries again.
        let synced = shim_sys_fsync(directory)
        if synced < 0, synced != -SHIM_EINVAL { throw Failure.system("sync the directory", path, "", synced) }
        var block = block
        try block.write(self)
        // Before anything else is in its page: half a page would be taken for somebody else's file.
        try syncData()
    }

    func allocateIndex(_ geometry: Geometry) throws(Failure) {
        try allocateIndex(0, geometry.chunks)
        let table = Table.bytes(of: Table.leastBuckets)
        for i in 0..<geometry.shards {
            try geometry.forEachPiece(i, from: 0, to: table) { offset, count throws(Failure) in
                try allocateIndex(offset, count)
            }
        }
    }
}

extension Engine {
    /// An empty index in zeroed memory, that names its owner.
    func initialiseIndex() {
        let head = ref.pointee.head
        let geometry = ref.pointee.geometry
        let files = ref.pointee.files
        let least = Table.Shape(buckets: Table.leastBuckets, frontier: 0, mode: Table.Shape.Mode.steady)
        for i in 0..<geometry.shards {
            let shard = Shard(ref, i), header = shard.header
            header[ShardHeader.Field.shape] = least.word
            header[ShardHeader.Field.tablePages] = geometry.shardIndexBytes(buckets: Table.leastBuckets)
            shard.log.headOffset = geometry.segmentSize
            shard.log.tailOffset = SegmentHeader.size
        }
        head[IndexHead.version] = IndexHead.versionValue
        head[IndexHead.secretCheck] = Trust.check(ofSecret: ref.pointee.secret)
        head[IndexHead.geometryCheck] = Trust.check(of: geometry)
        head[IndexHead.ownDevice] = files.indexIdentity.device
        head[IndexHead.ownInode] = files.indexIdentity.inode
        head[IndexHead.dataDevice] = files.dataIdentity.device
        head[IndexHead.dataInode] = files.dataIdentity.inode
        head[IndexHead.generation] = ref.pointee.data.u64(Superblock.generation)
        head.release(IndexHead.magic, IndexHead.magicValue)
    }

    /// Only where nobody else is attached.
    func initialiseLocks() throws(Failure) {
        let head = ref.pointee.head
        let files = ref.pointee.files
        var result = shim_mutex_init(head.address(IndexHead.dictionaryLock))
        for i in 0..<ref.pointee.geometry.shards where result == 0 {
            let shard = Shard(ref, i)
            result = shim_mutex_init(shard.header.at + ShardHeader.Field.mutex)
            shard.header[ShardHeader.Field.unsure] = 1
            // Of processes that are gone.
            shard.leases.removeAll()
        }
        if result != 0 {
            throw Failure.system(
                "make the locks of", files.path, files.isMemory ? "the cache in memory" : "", -Int(result))
        }
        head[IndexHead.boot[0]] = files.boot.0
        head[IndexHead.boot[1]] = files.boot.1
        head[IndexHead.pidNamespace] = files.pidNamespace
        head[IndexHead.libc] = shim_libc_identity()
    }
}
