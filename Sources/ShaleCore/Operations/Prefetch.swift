import CShalePlatform

extension ShardReader {
    /// What a change of the key will look at is fetched while the value is hashed and compressed: its slot first,
    /// then the record that the slot points to. Hints: without the lock, and whatever they find.
    @inline(__always) func prefetchSlot(_ key: Key) { shim_prefetch(table.home(of: key.fraction)) }

    @inline(__always) func prefetchRecord(_ key: Key) {
        let line = table.home(of: key.fraction)
        for i in 0..<4 {
            let entry = Slot(line + i &* Slot.size).entry
            if entry.matches(UInt64(key.fraction & 0xFF_FFFF) << 32), log.isSound(entry.location) {
                shim_prefetch(log.address(entry.location))
            }
        }
    }

    /// And where its record will be.
    @inline(__always) func prefetchHead(_ length: Int) {
        let frame = log.headFrame, offset = log.headOffset
        guard UInt(bitPattern: frame) < UInt(bitPattern: geometry.framesPerShard),
            UInt(bitPattern: offset) < UInt(bitPattern: log.segmentSize)
        else { return }
        prefetchLines(engine.pointee.data + (log.offset(ofFrame: frame) &+ offset), to: length)
    }
}
