import CShalePlatform

extension ShardReader {
    /// Prefetches a key's slot, then the record that it points to, while the value is hashed and compressed. Hints:
    /// without the lock, from bytes that may be inconsistent.
    @inline(__always) func prefetchSlot(_ key: Key) { shim_prefetch(table.home(of: key.hashBits)) }

    /// Reads the ends of the head and key of the record that a change will replace, from the disk if need be.
    @inline(never) func fetchRecord(_ key: Key) {
        table.probe(key.hashBits) { _, word0 in
            let location = word0.location
            if touch(location, key.length), word0.isTouched, let target = touchTarget(location) {
                touch(target, key.length)
            }
            return true
        }
    }
    /// Returns whether it could.
    @inline(__always) @discardableResult
    fileprivate func touch(_ location: UInt32, _ keyLength: Int) -> Bool {
        guard let p = log.readableAddress(location) else { return false }
        _ = shim_load8(p)
        // (A key's end is inside the segment, if this is the key's record.)
        let end = RecordHeader.size &+ keyLength
        if log.offsetInSegment(location) &+ end <= log.segmentSize { _ = shim_load8(p + (end &- 1)) }
        return true
    }

    @inline(__always) func prefetchHead(_ length: Int) {
        let frame = log.headFrame, offset = log.headOffset
        guard UInt(bitPattern: frame) < UInt(bitPattern: geometry.framesPerShard),
            UInt(bitPattern: offset) < UInt(bitPattern: log.segmentSize)
        else { return }
        prefetchLines(engine.pointee.data + (log.offset(ofFrame: frame) &+ offset), to: length)
    }
}

extension ShardReader {
    /// Reads the head of the record that a set will evict if there is no room, from the disk if need be.
    @inline(__always) func fetchVictim() {
        let heap = header[Field.heapCurrent] & 1
        if header[Field.heapCounts[heap]] > 0, !engine.pointee.files.isMemory { fetchVictim(heap) }
    }

    @inline(never) private func fetchVictim(_ heap: Int) {
        let item = victims.item(heap, 1).u64(0), low = Victims.Item.lowestHashBits(item), shape = table.shape
        for home in shape.home(low)...max(shape.home(low), shape.home(low | Victims.Item.groupMask)) {
            let isThere = table.hasSlot(ofHome: home, fingerprint: low, ignoring: Victims.Item.groupMask) { slot, _ in
                guard Victims.rank(slot.use) == Victims.Item.rank(item) else { return false }
                touch(slot.entry.location, 1)
                return true
            }
            if isThere { return }
        }
    }
}
