import CShalePlatform

/// A cache that is being opened: its data file is mapped, its index is not yet.
///
/// The sole writer re-initialises the locks in the index (the bytes of a lock in a file are never trusted), decides
/// whether the index can be trusted, and may change the capacity.
struct Attachment {
    let configuration: Configuration
    let block: Superblock
    let geometry: Geometry
    let data: Memory
    /// No other writer is attached, and none can be before the setup lock is released.
    let isSoleWriter: Bool
    let isNew: Bool

    func isBesideWriters(_ files: CacheFiles) -> Bool {
        configuration.isReadOnly ? FileLock.writers.isHeld(files.data) : !isSoleWriter
    }

    /// Returns the handle once `prepare` succeeds; else unmaps the index.
    func finish(
        _ files: CacheFiles, index: Memory, _ prepare: (Engine) throws(Failure) -> Void
    ) throws(Failure) -> Engine {
        do throws(Failure) {
            let engine = Engine(try makeState(files, index))
            do throws(Failure) { try prepare(engine) } catch {
                engine.freeState()
                throw error
            }
            return engine
        } catch {
            shim_sys_unmap(index, geometry.indexSize)
            throw error
        }
    }

    private func makeState(_ files: CacheFiles, _ index: Memory) throws(Failure) -> EngineRef {
        // The longest value stored whole, compressed, which no part exceeds; or an increment's meta and tags.
        let part = Int(shim_lz4_bound(Int32(geometry.longestWhole)))
        let isDense = configuration.compression == .dense
        let extras = Limits.metaLength + 1 + Limits.tagCount * 8
        guard let scratch = ScratchPool(bufferSize: max(part, extras), isDense: isDense) else {
            throw Failure.outOfMemory
        }
        let frames = DictionaryFrames(
            count: geometry.dictionaryFrames, size: geometry.dictionarySize, secret: block.secret,
            region: data + geometry.dictionaries, head: IndexHead(at: index))
        guard let dictionaries = DictionaryCache(frames, isDense: isDense) else {
            scratch.free()
            throw Failure.outOfMemory
        }
        let size = roundUp(MemoryLayout<EngineState>.stride, to: 64), ahead = (1 + geometry.shards) * Log.Ahead.size
        guard let memory = shim_aligned(64, size + ahead) else {
            scratch.free()
            dictionaries.free()
            throw Failure.outOfMemory
        }
        (memory + size).zero(ahead)
        let owner: Owner
        do throws(Failure) { owner = try makeOwner(files, index) } catch {
            scratch.free()
            dictionaries.free()
            shim_free(memory)
            throw error
        }
        let ref = memory.bindMemory(to: EngineState.self, capacity: 1)
        ref.initialize(
            to: EngineState(
                presence: Presence(isMemory: files.isMemory), block: block, geometry: geometry, secret: block.secret,
                data: data, index: index,
                regions: index + geometry.region(0), buckets: index + geometry.chunks + Table.chunkHead, files: files,
                owner: owner,
                isReadOnly: configuration.isReadOnly, syncsAtClose: configuration.syncsAtClose,
                compression: configuration.compression,
                maxAge: configuration.maxAge == 0 ? block.maxAge : configuration.maxAge,
                stale: configuration.stale == 0 ? block.stale : configuration.stale,
                clock: Clock(configuration), privateGeneration: 0, waits: configuration.waits,
                ahead: memory + (size + Log.Ahead.size),
                scratch: scratch, dictionaries: dictionaries))
        return ref
    }

    private func makeOwner(_ files: CacheFiles, _ index: Memory) throws(Failure) -> Owner {
        guard let memory = shim_calloc(MemoryLayout<shim_owner>.size) else { throw Failure.outOfMemory }
        let owner = memory.bindMemory(to: shim_owner.self, capacity: 1)
        let head = IndexHead(at: index)
        owner.pointee.file = files.isMemory ? files.owners : files.index
        owner.pointee.directory = files.isMemory ? -1 : files.directory
        owner.pointee.name = CacheFiles.indexName.cString
        let identity = files.isMemory ? files.ownersIdentity : files.indexIdentity
        owner.pointee.device = identity.device
        owner.pointee.inode = identity.inode
        owner.pointee.counter = head.address(IndexHead.owners).assumingMemoryBound(to: UInt32.self)
        owner.pointee.rows = head.address(IndexHead.ownerRows).assumingMemoryBound(to: UInt64.self)
        owner.pointee.first_lock = (index + geometry.region(0) + ShardHeader.Field.lock)
            .assumingMemoryBound(to: CChar.self)
        owner.pointee.stride = geometry.region
        owner.pointee.count = geometry.shards
        owner.pointee.other_lock = head.address(IndexHead.dictionaryLock).assumingMemoryBound(to: CChar.self)
        owner.pointee.pid_namespace = UInt32(truncatingIfNeeded: files.pidNamespace)
        if configuration.isReadOnly {
            // (It takes no lock that others see.)
            shim_owner_begin_private(owner)
            return owner
        }
        let result = shim_owner_begin(owner)
        if result < 0 {
            shim_free(memory)
            throw files.cannotAttach(result)
        }
        return owner
    }
}

extension Engine {
    /// Unmaps the index, so that another can replace it; the data file stays mapped.
    func detachIndex() {
        shim_owner_end(ref.pointee.owner)
        shim_sys_unmap(ref.pointee.index, ref.pointee.geometry.indexSize)
        freeState()
    }

    /// Frees the handle's memory; its mappings and files are the caller's.
    func freeState() {
        shim_owner_end(ref.pointee.owner)
        shim_free(ref.pointee.owner)
        ref.pointee.scratch.free()
        ref.pointee.dictionaries.free()
        ref.deinitialize(count: 1)
        shim_free(ref)
    }
}
