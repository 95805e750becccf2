import CShalePlatform

extension ShardReader {
    /// Prefetches a key's slot, then the record that it points to, while the value is hashed and compressed. Hints:
    /// without the lock, from bytes that may be inconsistent.
    @inline(__always) func prefetchSlot(_ key: Key) { shim_prefetch(table.home(of: key.hashBits)) }

    @inline(__always) func prefetchRecord(_ key: Key) {
        let line = table.home(of: key.hashBits)
        for i in 0..<4 {
            let entry = Slot(line + i &* Slot.size).entry
            if entry.matches(UInt64(key.hashBits & 0xFF_FFFF) << 32), log.isSound(entry.location) {
                shim_prefetch(log.address(entry.location))
            }
        }
    }

    @inline(__always) func prefetchHead(_ length: Int) {
        let frame = log.headFrame, offset = log.headOffset
        guard UInt(bitPattern: frame) < UInt(bitPattern: geometry.framesPerShard),
            UInt(bitPattern: offset) < UInt(bitPattern: log.segmentSize)
        else { return }
        prefetchLines(engine.pointee.data + (log.offset(ofFrame: frame) &+ offset), to: length)
    }
}
