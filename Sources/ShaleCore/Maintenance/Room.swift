import CShalePlatform

/// Room for what is to be appended: evict down to the live limit, clean at a
/// steady pace, and roll to a new segment while enough are left for the cleaner.
extension ShardReader {
    /// Whether a smaller capacity can hold what is pinned, beside the smallest table for it.
    var canHoldPins: Bool {
        let slots = header[Field.pinned] * 64 / Table.Load.shrunk
        let index = geometry.shardIndexBytes(buckets: max(Table.leastBuckets, slots / 4))
        return log.pinsFit(in: log.budgetedFrames(beside: index))
    }

    func cannotShrink() -> Failure {
        log.noSpace(
            """
            the cache cannot shrink that far, as pinned entries or its index need more; unpin or remove some, or \
            choose a larger capacity
            """
        )
    }
}

extension ShardWriter {
    /// Bytes cleaned for each byte appended, while fewer segments than wanted are free.
    private static let cleanedForEach = 16

    /// As if the disk had room again; if it has not, the next attempt says why.
    private func limitAnew() -> Int {
        header[Field.noSpace] = 0
        return log.mostLive(of: log.usableFrames, log.loss)
    }

    /// Makes room for a record of `length` bytes at the head; `live` where it will be current, `pins`: what may not be
    /// evicted then.
    @inline(never)
    func makeRoom(_ length: Int, live: Bool, pins: Int = 0) throws(Failure) {
        let needed = pins > 0 ? try admitPin(length, most: pins) : 0
        change.pinning = pins > 0 ? length - change.replaced : 0
        let usable = log.usableFrames
        var loss = log.loss, own = change.replaced, ownBytes = 0
        // (An entry that replaces a pinned one of its length needs nothing.)
        if live, own == 0 || length > own {
            var hasSwept = false
            var limit = log.mostLive(of: usable, loss) + own
            if length > limit {
                limit = limitAnew() + own
                if length > limit { throw tooLarge(length) }
            }
            while header[Field.live] - ownBytes + length > limit {
                if header[Field.pinnedMost] & 1 != 0, lookForLongestPin() {
                    loss = log.loss
                    limit = log.mostLive(of: usable, loss) + own
                    continue
                }
                let canEvict = header[Field.pinnedBytes] + length <= limit
                // A manifest's parts are in other shards mostly: evicting more here would empty this one in vain.
                if change.blobCount == 0, canEvict && evict() || dropOrphans() { continue }
                // What is pinned and gone is nobody's victim.
                if !canEvict, !hasSwept {
                    hasSwept = true
                    try dropAllGone()
                    (loss, own) = (log.loss, change.replaced)
                    limit = log.mostLive(of: usable, loss) + own
                    continue
                }
                if header[Field.noSpace] > 0 || shrinkTable() {
                    limit = limitAnew() + own
                    continue
                }
                if canEvict { change.crowdedBy = crowdingPart() }
                if change.crowdedBy == nil, change.blobCount == 0, canEvict, ownBytes == 0 {
                    ownBytes = bytesOfOwn()
                    if ownBytes > 0 { continue }
                }
                throw log.filled()
            }
            if !isAdaptive, header[Field.live] + length > limit - limit / 16 {
                victims.sweep(buckets: 64) { dropIfGone($0) }
            }
        }
        let wanted = max(log.wantedFree(of: usable, loss), change.keepsOwn ? reserve + 1 : 0)
        if usable - log.count < wanted {
            // (Here the adaptive policy evicts: the next call has the frames.)
            if isAdaptive, header[Field.pinnedMost] & 1 != 0 { _ = lookForLongestPin() }
            var left = length * ShardWriter.cleanedForEach + log.segmentSize / 256
            while left > 0 {
                let cleaned = try clean(isAhead: true)
                if cleaned == 0 { break }
                left -= cleaned
            }
            if change.keepsOwn { try regainReserve() }
        }
        if length > log.headRoom || log.freeFrames < needed {
            try makeHeadRoom(length, live: live, needed: needed)
        }
    }

    /// Frames that are left to the cleaner: more for a call whose own entry must not make room.
    @inline(never) private var reserve: Int {
        change.keepsOwn ? log.ampleReserve : log.reserve
    }

    /// Where much that is current lies in a row, cleaning gains nothing, and each append takes some of the head that the
    /// cleaner has begun. It would come to evict what it should copy, also the call's own entry, so it goes on until its
    /// frames are free again; twice round the log at most for a call.
    @inline(never)
    private func regainReserve() throws(Failure) {
        while log.availableFrames < reserve, change.regained < 2 * log.count {
            change.regained += 1
            let tail = log.queued(0)
            while log.count > 1, log.queued(0) == tail {
                if try clean(isAhead: true) == 0 { return }
            }
        }
    }

    /// A head that has room for `length` bytes, and `needed` free frames.
    private func makeHeadRoom(_ length: Int, live: Bool, needed: Int) throws(Failure) {
        var rounds = 0, idle = 0
        while length > log.headRoom || log.freeFrames < needed {
            let reserve = max(self.reserve, needed)
            if log.availableFrames > reserve {
                do throws(Failure) {
                    try provideHead(length, reserve)
                    break
                } catch {
                    // On a full disk, what there is has to do; for a process that may not make the file larger, too.
                    guard error.status == .full, header[Field.noSpace] > 0 || error.isFileLimit else { throw error }
                }
            }
            // Rare: a run of segments with nothing to gain. Clean whole ones, and evict where that is not enough.
            rounds += 1
            idle += 1
            if rounds > 2 {
                let aim = max(0, header[Field.live] - log.segmentSize / 4)
                while header[Field.live] > aim, evict() { idle = 0 }
            }
            let tail = log.queued(0)
            var cleaned = 0
            while log.count > 1, log.queued(0) == tail {
                cleaned += try clean()
            }
            // With nothing left to evict, a round of the log gains all that can be gained.
            if cleaned == 0 || idle > 2 * log.count + 2 {
                // The disk may have room again; if not, the attempt says why.
                header[Field.noSpace] = 0
                // More is pinned than may be: a power cut has brought it back. What makes it less is not refused.
                let reserve = max(log.reserve, needed)
                guard log.availableFrames > reserve else {
                    guard needed == 0, !live || change.replaced > 0 else {
                        if isAdaptive, header[Field.pinnedBytes] + length <= log.liveLimit {
                            change.crowdedBy = crowdingPart()
                        }
                        throw log.filled()
                    }
                    if length > log.headRoom { try log.roll(overdraws: true) }
                    break
                }
                try provideHead(length, reserve)
                break
            }
        }
    }

    /// Begins a segment where the head has no room for `length` bytes. What may not be evicted has to be moved,
    /// on a full disk too: where entries are pinned, the cleaner's reserve is there before the log grows.
    private func provideHead(_ length: Int, _ reserve: Int) throws(Failure) {
        let rolls = length > log.headRoom
        if reserve > Log.reserve || header[Field.pinnedBytes] > 0 { try log.provide(rolls ? reserve + 1 : reserve) }
        if rolls { try log.roll() }
    }

    private func tooLarge(_ length: Int) -> Failure {
        Message().adding("the entry takes ").adding(length).adding(" bytes, more than a shard of ").adding(
            engine.pointee.files.path
        )
        .adding(" can hold; raise the capacity").failure(.tooLarge)
    }

    /// Evicts the entry that the cache's policy names, or finds that expired ones have made room. False where all that is
    /// left is pinned.
    func evict() -> Bool {
        let before = header[Field.entries]
        var victim = nextVictim()
        if victim == nil, header[Field.unsure] != 0 {
            header[Field.unsure] = 0
            recount()
            victim = nextVictim()
        }
        // Pinned entries that were invalidated or have expired are nobody's victims, and gone all the same.
        if victim == nil, header[Field.pinned] > 0 { _ = purge() }
        guard let slot = victim else { return header[Field.entries] < before }
        evict(slot)
        return true
    }

    /// The policy's choice among the entries that are not the call's own, which keeps its place in the order. Nil where
    /// none is left.
    private func nextVictim() -> Memory? {
        // (The hand passes by what is damaged.)
        if isAdaptive { return SecondChance(self).next(self) ?? leastUsed() }
        var own: Memory?
        defer { if let own { victims.putBack(own) } }
        // (A sweep that finds nobody else finds it again.)
        for _ in 0..<3 {
            guard let slot = victims.next(expired: { dropIfGone($0) }) else { break }
            guard isOwn(slot) else { return slot }
            own = slot
            if header[Field.entries] - header[Field.pinned] < 2 { return nil }
        }
        return leastUsed()
    }

    /// The same, where readers use the few that are left faster than sweeps can choose from them.
    @inline(never)
    private func leastUsed() -> Memory? {
        var least: Memory?, lowest = UInt64.max
        guard header[Field.entries] > header[Field.pinned] else { return nil }
        reader.forEachSlot { slot, word0 in
            let rank = Victims.rank(slot.u64(8))
            if Slot.isPart(word0) || Slot.isPinned(word0) || rank >= lowest || isOwn(slot) { return }
            (least, lowest) = (slot, rank)
        }
        return least
    }

    /// What the entry that the call replaces takes of this shard, if it may make room for the call. 0 where it may not.
    @inline(never)
    private func bytesOfOwn() -> Int {
        guard !change.keepsOwn, let key = change.key, let slot = reader.lookup(key), !Slot.isPinned(slot.u64(0)) else {
            return 0
        }
        let own = reader.measure(Slot.location(slot.u64(0)))
        var bytes = own.bytes
        for i in 0..<own.blob.parts {
            // (Those in other shards are not found.)
            bytes += PartKey(blob: own.blob.blob, owner: own.blob.owner, part: i).withKey(engine) {
                reader.lookup($1, isPart: true).map { reader.measure(Slot.location($0.u64(0))).bytes } ?? 0
            }
        }
        return bytes
    }

    /// Cleans a record. Where not even the cleaner has room, what is at the tail goes without being copied.
    /// `isAhead`: there is room yet, and who may not make the file larger leaves it to others.
    func clean(isAhead: Bool = false, mustEvict: Bool = false) throws(Failure) -> Int {
        let cleaner = Cleaner(self, isAhead: isAhead, mustEvict: mustEvict)
        do throws(Failure) { return try cleaner.cleanRecord(self) } catch {
            if isAhead, error.isFileLimit { return 0 }
            guard error.status == .full, evictTail() else { throw error }
            return try cleaner.cleanRecord(self)
        }
    }

    /// Evicts what is left in the tail's segment. False where nothing is, or where some of it has to stay.
    private func evictTail() -> Bool {
        let low = log.location(frame: log.queued(0), offset: log.tailOffset),
            high = log.location(frame: log.queued(0), offset: log.segmentSize - 8)
        var found = 0, kept = 0
        reader.forEachSlot { slot, word0 in
            guard reader.needs(word0, from: low, through: high) else { return }
            found += 1
            if Slot.isPinned(word0) || keeps(slot) { kept += 1 }
        }
        if found == 0 || kept > 0 { return false }
        reader.forEachSlot { slot, word0 in
            // (A value goes with all its parts.)
            if reader.needs(word0, from: low, through: high) { evictWhole(slot) }
        }
        return true
    }

    /// Expired data leaves with the sweeps, without timers.
    @discardableResult
    func dropIfGone(_ slot: Memory) -> Bool {
        let word0 = slot.u64(0)
        guard !Slot.isPart(word0),
            SlotExpiry.mayBeGone(Slot.expiry(slot.u64(8)), now: change.now, base: engine.pointee.block.expiryBase)
        else { return false }
        // (A damaged age ends nothing: whoever reads the entry notes its loss.)
        guard let record = log.record(Slot.location(word0)), log.isHeadSound(record),
            change.now >= record.header.deadline(at: record.at)
        else { return false }
        drop(slot, counting: Field.expirations)
        return true
    }

    /// Parts of large values whose writer was killed, or that went without them. False where there are none.
    @inline(never)
    func dropOrphans() -> Bool {
        let live = header[Field.live]
        reader.forEachSlot { slot, word0 in
            if Slot.isPart(word0), let key = reader.partKey(of: word0), !reader.isOwned(key) { drop(slot) }
        }
        return header[Field.live] < live
    }

    /// A part whose owner lives elsewhere, found near a point that moves on from call to call.
    func crowdingPart() -> PartKey? {
        let table = self.table, end = table.positions.upperBound
        let start = Int(reader.nextStamp() &* 0x9E37_79B9 % UInt64(end))
        for i in 0..<end {
            let p = table.bucket((start + i) % end)
            for j in stride(from: 0, to: Table.bucketSize, by: Slot.size) {
                let word0 = p.u64(j)
                guard !Slot.isFree(word0), Slot.isPart(word0), !Slot.isPinned(word0), let key = reader.partKey(of: word0)
                else { continue }
                if key.owner != change.key?.hash, reader.isOwned(key), !reader.isBeingWritten(key.blob) { return key }
            }
        }
        return nil
    }

    // MARK: The table's size

    /// Grows or shrinks the table by a few buckets; called with every insertion.
    /// False where it is full and cannot grow.
    func maintainTable(mayShrink: Bool = true) -> Bool {
        let table = self.table
        let shape = table.shape
        if shape.mode != Table.Shape.Mode.steady {
            table.advance(Table.Load.pace) { evict($0) }
            table.prefetchFrontier(Table.Load.pace)
            // No slower than the pass: of a table that was a quarter smaller, the older generation is empty then.
            if tags.generations.hasOlder { sweepTags(steps: 2 * Table.Load.pace) }
            return true
        }
        let used = header[Field.used]
        let slots = shape.buckets * 4
        if used * 64 > slots * Table.Load.grow {
            if growTable(shape) { return true }
            return used * 64 < slots * Table.Load.full
        }
        if !mayShrink { return true }
        if shape.buckets > Table.leastBuckets, used * 64 < slots * Table.Load.shrink {
            table.begin(Table.Shape.Mode.shrinking)
            return true
        }
        if header[Field.sets] & (Sizes.givesPagesBackEvery - 1) == 0,
            header[Field.tablePages] > geometry.shardIndexBytes(buckets: shape.buckets),
            fitTags(to: shape.buckets, steps: Sizes.givesPagesBackEvery)
        {
            shrinkPages(shape.buckets)
        }
        return true
    }

    func growTable(_ shape: Table.Shape) -> Bool {
        let next = Table.Shape.grown(shape.buckets)
        // (With every insertion on a full disk, the attempt would cost more than the insertion.)
        guard header[Field.noSpace] == 0, allocateTable(next, pinning: change.pinning) else { return false }
        table.begin(Table.Shape.Mode.growing)
        return true
    }

    /// Where nothing is left to evict: cleans, once round at most, until a larger table fits beside the log. False
    /// where it never will.
    @inline(never)
    func growTableByCleaning() -> Bool {
        let wanted = geometry.shardIndexBytes(buckets: Table.Shape.grown(table.shape.buckets))
        let least = (header[Field.live] + log.segmentRoom - 1) / log.segmentRoom + 1 + log.reserve
        guard table.shape.mode == Table.Shape.Mode.steady, least * log.segmentSize + wanted <= geometry.shardBudget
        else { return false }
        for _ in 0..<log.count where log.count > 1 {
            let tail = log.queued(0)
            while log.count > 1, log.queued(0) == tail {
                guard let cleaned = try? clean(), cleaned > 0 else { return false }
            }
            if growTable(table.shape) { return true }
        }
        return false
    }

    /// A larger table at once, while it is empty and the lock is held.
    func growTable(to buckets: Int) -> Bool {
        header[Field.noSpace] = 0
        guard header[Field.used] == 0, allocateTable(buckets) else {
            // Less may fit.
            header[Field.noSpace] = 0
            return false
        }
        header.release(Field.shape, Table.Shape(buckets: buckets, frontier: 0, mode: Table.Shape.Mode.steady).word)
        return true
    }

    /// Pages for a table of so many buckets, and its heaps. What the table takes, the segments give.
    @inline(never)
    private func allocateTable(_ buckets: Int, pinning: Int = 0) -> Bool {
        guard buckets <= geometry.maxBuckets - Table.spill else { return false }
        let wanted = geometry.shardIndexBytes(buckets: buckets)
        // Another process's table may grow. Asked of the kernel, so last: where the budget forbids it, each insertion
        // comes by.
        var mayReach: Bool { engine.pointee.files.mayIndexReach(geometry.indexEnd(number, buckets: buckets)) }
        if wanted > header[Field.tablePages] {
            func fits(beside segments: Int) -> Bool { segments * log.segmentSize + wanted <= geometry.shardBudget }
            // What is pinned needs its frames.
            guard
                log.pinsFit(adding: pinning, in: log.budgetedFrames(beside: wanted))
            else { return false }
            if !fits(beside: header[Field.allocated]) {
                // No segment goes for a table that does not fit beside those that `trim` leaves at least.
                guard log.availableFrames > log.reserve, fits(beside: log.count + log.reserve) else {
                    return false
                }
                guard mayReach else { return false }
                // (What writers were preparing that were killed is in the way as well.)
                try? log.takeOverAll()
                log.trim(extra: wanted - header[Field.tablePages])
                guard fits(beside: header[Field.allocated]) else { return false }
            }
            guard mayReach else { return false }
            // Counted first, so that a kill in between never lets the directory outgrow its capacity.
            header[Field.tablePages] = wanted
        }
        // What is counted need not be there: giving it back may have failed halfway.
        do throws(Failure) {
            try chunks.allocate(from: Table.chunksEnd(header), to: Table.bytes(of: buckets))
            return true
        } catch {
            if error.isDiskFull { header[Field.noSpace] = Log.patience }
            shrinkPages(table.shape.buckets)
            return false
        }
    }

    /// A smaller capacity or entry limit: evicts until it holds, or until parts of what has gone have to be cleared in
    /// other shards first. Whether it holds.
    @inline(never)
    func evictToBudget() throws(Failure) -> Bool {
        header[Field.noSpace] = 0
        let limit = geometry.entriesPerShard
        while limit > 0, header[Field.entries] > limit, change.blobCount < Change.mostBlobs, evict() {}
        while header[Field.live] > log.liveLimit, change.blobCount < Change.mostBlobs {
            // (What a table takes that is larger than its entries need would cost some of them.)
            if shrinkTable(downTo: geometry.shardBudget / 8) || evict() || dropOrphans() {
                continue
            }
            guard let part = crowdingPart() else { break }
            change.crowdedBy = part
            throw log.filled()
        }
        return change.blobCount == 0
    }

    /// And cleans and gives space back until it holds. `budget`: what may be on the disk meanwhile.
    @inline(never)
    func applyBudget(from budget: Int) throws(Failure) {
        // The table first: what it gives back, the segments need not.
        _ = shrinkTable(downTo: geometry.shardBudget / 8)
        shrinkTableForPins()
        var rounds = 0
        var isOver: Bool { header[Field.allocated] * log.segmentSize + header[Field.tablePages] > geometry.shardBudget }
        // (The log may fill all that is left, and the cleaner needs its reserve.)
        log.trim()
        while isOver || log.availableFrames < log.reserve {
            if (header[Field.allocated] + 1) * log.segmentSize + header[Field.tablePages] <= budget {
                do throws(Failure) { try log.provide(min(Log.reserve, log.freeFrames + 1)) } catch {
                    // On a full disk, what there is has to do: the tail's segment goes.
                    guard error.isDiskFull || error.isFileLimit else { throw error }
                }
            }
            rounds += 1
            let aim = rounds > 2 * geometry.rows ? max(0, header[Field.live] - log.segmentSize) : header[Field.live]
            while header[Field.live] > min(aim, log.liveLimit), evict() {}
            let tail = log.count > 0 ? log.queued(0) : 0
            var cleaned = 0
            while log.count > 1, log.queued(0) == tail {
                let step = try clean()
                if step == 0 { break }
                cleaned += step
            }
            if cleaned == 0 || rounds > 8 * geometry.rows {
                if isOver { throw reader.cannotShrink() }
                break
            }
            log.trim()
        }
    }

    /// Makes the table as small as its entries allow, but no smaller than so many bytes. False where it is already.
    /// `fullest`: sixty-fourths of the slots that may be in use then.
    func shrinkTable(downTo least: Int = 0, fullest: Int = Table.Load.shrunk * 5 / 4) -> Bool {
        let before = header[Field.tablePages]
        while table.shape.mode != Table.Shape.Mode.steady { table.advance(Int.max) { evict($0) } }
        if before > geometry.shardIndexBytes(buckets: table.shape.buckets) {
            fitTags(to: table.shape.buckets)
            shrinkPages(table.shape.buckets)
        }
        while header[Field.tablePages] > least, table.shape.buckets > Table.leastBuckets,
            header[Field.used] * 64 < Table.Shape.shrunk(table.shape.buckets) * 4 * fullest
        {
            table.begin(Table.Shape.Mode.shrinking)
            table.advance(Int.max) { evict($0) }
            fitTags(to: table.shape.buckets)
            shrinkPages(table.shape.buckets)
        }
        return header[Field.tablePages] < before
    }

    /// What is pinned was admitted beside a table that was as full as it may be. Where a larger one leaves hardly any room
    /// to other entries, it is made smaller, and what is not pinned leaves for that.
    @inline(never) func shrinkTableForPins() {
        if !log.pinsFit(in: log.budgetedFrames) { _ = shrinkTable() }
        var isCrowded: Bool { header[Field.pinnedBytes] > log.liveLimit(of: log.budgetedFrames, log.loss) / 16 * 15 }
        while isCrowded, !shrinkTable(fullest: Table.Load.full + 1) {
            let aim = header[Field.used] - max(1, table.shape.buckets / 8)
            while header[Field.used] > aim, evict() {}
            if header[Field.used] > aim { break }
        }
    }

    /// Gives back the pages beyond the table's size, and beyond what generations of tags take (`fitTags`).
    @inline(never)
    func shrinkPages(_ buckets: Int) {
        let kept = geometry.region + max(Table.bytes(of: buckets), Table.tagsEnd(header))
        victims.reset()
        if chunks.release(from: kept - geometry.region, to: header[Field.tablePages] - geometry.region) {
            header[Field.tablePages] = kept
        }
    }
}
