import CShalePlatform

extension Log {
    /// Whether the head's records reach exactly to the log's end.
    fileprivate var endsAtHead: Bool {
        if count == 0 { return true }
        let last = segmentSize - RecordHeader.size
        var offset = count == 1 ? tailOffset : SegmentHeader.size
        while offset < headOffset, offset <= last {
            guard let record = soundRecord(frame: headFrame, offset: offset) else { return false }
            offset = record.kind == .end ? segmentSize : record.end
        }
        return (offset == headOffset || headOffset == segmentSize && offset > last)
            && nextRecord(frame: headFrame, from: headOffset) == nil
    }
}

/// Two files that were closed in order and then copied: by `cp` or `tar`, into an image, by a CI cache. The index's sum
/// has shown that the index is as closed; the frames show whether the data file is.
extension Engine {
    /// Whether both files come from the same close. A copy made while a writer opened the cache may have its marks
    /// beside later writes: a missing segment, a newer one, or a record beyond the log's end.
    func isWholeCopy() throws(Failure) -> Bool {
        let files = ref.pointee.files
        guard try hasSegmentsOfIndex(),
            try ref.pointee.dictionaries.frames.areInFile(files, from: ref.pointee.geometry.dictionaries)
        else {
            return false
        }
        try provideData()
        for i in 0..<ref.pointee.geometry.shards where !Shard(ref, i).log.endsAtHead { return false }
        return true
    }

    private func hasSegmentsOfIndex() throws(Failure) -> Bool {
        let files = ref.pointee.files, geometry = ref.pointee.geometry
        guard let memory = shim_malloc(SegmentHeader.size) else { throw Failure.outOfMemory }
        defer { shim_free(memory) }
        for frame in 0..<geometry.framesPerShard {
            for i in 0..<geometry.shards {
                let log = Shard(ref, i).log
                // (All counted frames are inside the file.)
                guard try files.readData(log.offset(ofFrame: frame), into: memory, SegmentHeader.size) else {
                    return true
                }
                let number =
                    SegmentHeader(at: memory, shard: i, frame: frame, secret: ref.pointee.secret)?.number ?? 0
                let isInLog = log.state(ofFrame: frame) == .inLog
                guard isInLog ? number == log.numberWord(frame).u64(0) : number <= log.headNumber else { return false }
            }
        }
        return true
    }

    // MARK: Space

    /// Visits all runs of frames that the index counts, or does not count, within the file.
    private func forEachRun(
        counted: Bool, _ body: (_ offset: Int, _ count: Int) throws(Failure) -> Void
    ) throws(Failure) {
        let geometry = ref.pointee.geometry, size = try ref.pointee.files.dataSize()
        var from = geometry.segments, at = from
        for frame in 0..<geometry.framesPerShard {
            for i in 0..<geometry.shards {
                if at >= size { break }
                if (Shard(ref, i).log.state(ofFrame: frame) != .absent) != counted {
                    if at > from { try body(from, at - from) }
                    from = at + geometry.segmentSize
                }
                at += geometry.segmentSize
            }
        }
        if at > from { try body(from, at - from) }
    }

    /// Allocates and frees blocks: a copy has holes where there were zeros, and blocks where there were holes.
    private func provideData() throws(Failure) {
        let files = ref.pointee.files, geometry = ref.pointee.geometry
        try provideData(0, geometry.dictionaries)
        for i in 0..<geometry.dictionaryFrames {
            let at = geometry.dictionaries + i * geometry.dictionarySize
            if ref.pointee.head[IndexHead.dictionaryNumbers[i]] != 0 {
                try provideData(at, geometry.dictionarySize)
            } else {
                _ = files.releaseData(at, geometry.dictionarySize)
            }
        }
        try forEachRun(counted: true, provideData)
        if files.isReadOnly { return }
        if geometry.segments > geometry.head {
            _ = files.releaseData(geometry.head, geometry.segments - geometry.head)
        }
        try forEachRun(counted: false) { offset, count in _ = files.releaseData(offset, count) }
        releaseIndex()
    }

    /// Releases blocks behind each shard's table.
    private func releaseIndex() {
        let files = ref.pointee.files, geometry = ref.pointee.geometry
        guard let size = try? files.indexSize() else { return }
        for i in 0..<geometry.shards {
            let end = Shard(ref, i).header[ShardHeader.Field.tablePages] - geometry.region
            // (Chunks of several shards alternate.)
            let last = max(end, (size - geometry.chunks) / geometry.shards + Table.chunkBytes)
            geometry.forEachPiece(i, from: end, to: last) { offset, count in
                if offset < size { _ = files.releaseIndex(offset, min(count, size - offset)) }
            }
        }
    }

    /// Ensures that touching this part of the file finds space. A read-only handle cannot allocate, but reading a hole
    /// of a tmpfs through a mapping takes a page, and raises a signal if none is left: populating it first turns that
    /// into an error.
    func provideData(_ offset: Int, _ count: Int) throws(Failure) {
        let files = ref.pointee.files
        if !files.isReadOnly { return try files.allocateData(offset, count) }
        try fillHoles(files.data, ref.pointee.data, offset, count, CacheFiles.dataName)
    }

    /// Does the same for all parts of the index, before any is read.
    func provideIndex() throws(Failure) {
        let files = ref.pointee.files
        try IndexParts(files, ref.pointee.geometry)?.forEach { offset, count throws(Failure) in
            if !files.isReadOnly { return try files.allocateIndex(offset, count) }
            try fillHoles(files.index, ref.pointee.index, offset, count, CacheFiles.indexName)
        }
    }

    private func fillHoles(_ fd: Int32, _ base: Memory, _ offset: Int, _ count: Int, _ name: StaticString)
        throws(Failure)
    {
        let end = offset + count
        var at = offset
        while at < end {
            let hole = shim_sys_next_hole(fd, Int64(at))
            if hole < 0 || hole >= end { return }
            let data = shim_sys_next_data(fd, Int64(hole)), to = data < 0 ? end : min(data, end)
            let result = shim_sys_populate_read(base + hole, to - hole)
            if result == -SHIM_EFAULT {
                throw Failure.system(
                    "fill the holes of", ref.pointee.files.path, name, -SHIM_ENOSPC,
                    advice: "free space there, or copy the cache without leaving out zeros")
            }
            at = to
        }
    }

    // MARK: Numbers

    /// Makes a copy the sole writer's own, also after a reboot, because the whole disk may be a copy. Other copies may
    /// be in use, and no two may give the same number to different bytes.
    func adopt() throws(Failure) {
        let head = ref.pointee.head, lead = try Numbers.lead(ref.pointee.files)
        head.release(IndexHead.lsn, head[IndexHead.lsn] &+ lead)
        for i in 0..<ref.pointee.geometry.shards {
            try Shard(ref, i).unshared { shard throws(Failure) in
                shard.header.beginChange()
                shard.header[ShardHeader.Field.lastNumber] = shard.log.nextNumber &- 1 &+ lead
                shard.clearFences()
                shard.header.endChange()
            }
        }
        shim_fence()
        // Last: a kill before this leaves an index that is not trusted.
        head.name(ref.pointee.files)
    }
}
