/// What pinned entries need of the log, so that it can be cleaned whatever else happens.
///
/// A segment that the cleaner fills has less than one pinned record's length free at its end, since only a record
/// that did not fit begins the next one; and two neighbours hold more than one segment has room for. So pinned bytes
/// that took `n` full segments take up to `n + loss` once they are copied. With `loss` places free a whole round of
/// the log can be copied, if the rest is evicted, and leaves `places(for:)` of them for anything else.
extension Shard {
    /// What a segment can hold, and what it holds at least where the cleaner filled it with records of up to `most` bytes.
    private func fill(_ most: Int) -> (room: Int, least: Int) {
        (segmentRoom, segmentRoom - min(most & ~1, segmentRoom / 2))
    }

    /// How many more places pinned entries may take once they are copied.
    func loss(_ bytes: Int, most: Int) -> Int {
        if bytes == 0 { return 0 }
        let fill = fill(most), whole = fill.room * fill.least
        // (What damage makes of the sums overflows nothing.)
        return (min(bytes, geometry.rows * segmentSize) * (fill.room - fill.least) + whole - 1) / whole
    }
    var loss: Int { loss(header[Field.pinnedBytes], most: header[Field.pinnedMost]) }

    /// Places that are left to the cleaner: two, which it needs to empty one, or what it needs for pinned entries, and one.
    private func reserve(_ loss: Int) -> Int { max(Log.reserve, loss + 1) }
    var reserve: Int { reserve(loss) }

    /// Whether so many pinned bytes can be kept in so many places: once they are copied, the cleaner has its reserve, and a
    /// place is free. An eighth of what may be live is left to other entries.
    func pinsFit(_ bytes: Int, most: Int, in places: Int) -> Bool {
        if bytes == 0 { return true }
        let loss = loss(bytes, most: most)
        return self.places(for: bytes, most: most) <= places && bytes <= liveLimit(of: places, loss) / 8 * 7
    }
    func pinsFit(in places: Int) -> Bool { pinsFit(header[Field.pinnedBytes], most: header[Field.pinnedMost], in: places) }

    private func places(for bytes: Int, most: Int) -> Int {
        let least = fill(most).least
        return (bytes + least - 1) / least + reserve(loss(bytes, most: most)) + 1
    }

    /// Whether the cleaner may copy what it may as well evict: the last places are for what is pinned.
    func spares(_ length: Int) -> Bool {
        if header[Field.pinnedBytes] == 0 { return true }
        let loss = loss
        return availablePlaces > loss && (length <= headRoom || freePlaces > loss || (try? provide(loss + 1)) != nil)
    }

    /// Before a record pins: that it can be kept, and that the places for it are on disk, as a full one gives no more.
    /// Where not, nothing has changed. `own`: pinned bytes of the entry that it replaces.
    @inline(never)
    func admitPin(_ length: Int, most longest: Int, replacing own: Int, now: UInt64, _ after: inout Aftermath) throws(Failure) -> Int {
        func fits() -> Bool {
            pinsFit(header[Field.pinnedBytes] - own + length, most: max(header[Field.pinnedMost], longest), in: budgetedPlaces)
        }
        if !fits() {
            // What is gone does not count, nor what damage has added.
            if header[Field.tagCount] != 0 { sweepTags(&after) }
            _ = purge(now: now, &after)
            _ = dropOrphans(&after)
            if header[Field.unsure] != 0 || header[Field.pinnedMost] & 1 != 0 {
                header[Field.unsure] = 0
                recount()
            }
            guard fits() else {
                throw noSpace(header[Field.pinnedBytes] > own
                    ? "beside what is pinned already, this entry is more than can be kept pinned; unpin or remove some, or raise the capacity"
                    : "this entry is more than can be kept pinned; raise the capacity")
            }
        }
        let bytes = header[Field.pinnedBytes] - own + length, most = max(header[Field.pinnedMost], longest)
        try provide(places(for: bytes, most: most) - header[Field.queueCount])
        return reserve(loss(bytes, most: most))
    }
}
