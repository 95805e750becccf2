import CShalePlatform

extension ShardReader {
    /// Prefetches a key's slot, then the record that it points to, while the value is hashed and compressed. Hints:
    /// without the lock, from bytes that may be inconsistent.
    @inline(__always) func prefetchSlot(_ key: Key) { shim_prefetch(table.home(of: key.hashBits)) }

    /// Reads the ends of the head and key of the record that a change will replace, from the disk if need be.
    @inline(never) func fetchRecord(_ key: Key) {
        table.probe(key.hashBits) { _, word0 in
            let location = word0.location
            guard log.isSound(location) else { return false }
            touch(location, key.length)
            if word0.isTouched, let target = touchTarget(location), log.isSound(target) { touch(target, key.length) }
            return false
        }
    }
    @inline(__always) private func touch(_ location: UInt32, _ keyLength: Int) {
        let p = log.address(location)
        _ = shim_load8(p)
        // (A key's end is inside the segment, if this is the key's record.)
        let end = RecordHeader.size &+ keyLength
        if log.offsetInSegment(location) &+ end <= log.segmentSize { _ = shim_load8(p + (end &- 1)) }
    }

    @inline(__always) func prefetchHead(_ length: Int) {
        let frame = log.headFrame, offset = log.headOffset
        guard UInt(bitPattern: frame) < UInt(bitPattern: geometry.framesPerShard),
            UInt(bitPattern: offset) < UInt(bitPattern: log.segmentSize)
        else { return }
        prefetchLines(engine.pointee.data + (log.offset(ofFrame: frame) &+ offset), to: length)
    }
}
