import CShalePlatform

/// Finds victims in exact least-recently-used order without a list.
///
/// A sweep collects every slot whose rank is at most a limit chosen from a sample. The collected ones form a min-heap
/// in the index, ordered by rank; evicting pops it and skips entries used since. While one heap is consumed, the sweep
/// fills the other, a few hundred slots for each victim, so that no call pays for all.
///
/// An item is 8 bytes: stamp (38) · the upper 25 of the entry's hash bits, its group · bound (1). So it finds the slot
/// wherever the entry moved. Readers continue meanwhile: one that was stopped between drawing a stamp and storing it
/// may store one below a limit. But stamps only grow, so an item is a lower bound. When an item is popped whose entry
/// was used since, its group gets an item that bounds all above.
///
/// Invariants
/// - every unpinned entry that is no part and whose rank is at most the current heap's limit (`heapLimit`) has in that
///   heap an item of its own, or a bound of its group, no higher than its rank;
/// - entries that the sweep has passed, up to its own limit, have one in either heap;
/// - a heap is consumed only after its sweep has visited the whole table, and until it is empty;
/// - an entry that moves down past the sweep restarts it.
struct Victims {
    enum Item {
        private static let shift = UInt32(Sizes.hashBitsBeyondVictim)
        static let groupMask: UInt32 = 1 << shift - 1
        @inline(__always) static func make(_ rank: UInt64, _ hashBits: UInt32, isBound: Bool = false) -> UInt64 {
            rank << 26 | UInt64(hashBits >> shift) << 1 | (isBound ? 1 : 0)
        }
        @inline(__always) static func rank(_ item: UInt64) -> UInt64 { item >> 26 }
        @inline(__always) static func lowestHashBits(_ item: UInt64) -> UInt32 {
            UInt32(truncatingIfNeeded: item >> 1 & 0x1FF_FFFF) << shift
        }
        @inline(__always) static func isBound(_ item: UInt64) -> Bool { item & 1 != 0 }
    }

    let table: Table

    private typealias Field = ShardHeader.Field
    private var header: ShardHeader { table.header }

    static func capacity(buckets: Int) -> Int { max(Sizes.heap, buckets / 8) }
    /// How many entries a sweep aims to collect: one for 64 slots.
    private static func aim(buckets: Int) -> Int { max(Sizes.aim, buckets / 16) }

    /// The order of eviction: least recently used first. Another function of the slot gives another policy.
    @inline(__always) static func rank(_ word1: SlotUse) -> UInt64 { word1.stamp }

    // MARK: Heaps

    private var current: Int { header[Field.heapCurrent] }
    /// A page of each chunk holds the heaps' items, one heap in either half. Items are numbered from 1, so that two
    /// with the same parent are adjacent.
    private static let share = pageSize / 16
    private static let shareShift = share.trailingZeroBitCount
    @inline(__always) func item(_ which: Int, _ i: Int) -> Memory {
        table.buckets
            + ((i &>> Victims.shareShift) &* table.chunkStride &+ (which &* Victims.share &+ i & (Victims.share &- 1))
                &* 8 &- pageSize)
    }
    private func count(_ which: Int) -> Int { header[Field.heapCounts[which]] }
    private func setCount(_ which: Int, _ count: Int) { header[Field.heapCounts[which]] = count }

    private func push(_ which: Int, _ value: UInt64) {
        setCount(which, count(which) + 1)
        rise(which, from: count(which), value)
    }

    /// Places a value at a leaf, or above it.
    private func rise(_ which: Int, from leaf: Int, _ value: UInt64) {
        var child = leaf
        var p = item(which, child)
        while child > 1 {
            let parent = item(which, child / 2), its = parent.u64(0)
            if its <= value { break }
            p.set(0, its)
            p = parent
            child /= 2
        }
        p.set(0, value)
    }

    private func pop(_ which: Int) -> UInt64? {
        let count = count(which)
        if count == 0 { return nil }
        let top = item(which, 1).u64(0), last = item(which, count).u64(0)
        setCount(which, count - 1)
        if count > 1 { sift(which, 1, last, count - 1) }
        return top
    }

    /// Places a value at a position whose children are heaps, or below it.
    private func sift(_ which: Int, _ root: Int, _ value: UInt64, _ count: Int) {
        var parent = item(which, root), child = root * 2
        while child <= count {
            var p = item(which, child)
            if child < count, p.u64(8) < p.u64(0) {
                p += 8
                child += 1
            }
            let its = p.u64(0)
            if value <= its { break }
            parent.set(0, its)
            parent = p
            child *= 2
        }
        parent.set(0, value)
    }

    func reset() {
        setCount(0, 0)
        setCount(1, 0)
        header[Field.heapCurrent] = 0
        header[Field.heapLimit] = 0
        header[Field.sweepState] = ShardHeader.SweepState.idle
        header[Field.sweepAt] = 0
    }

    /// No entry that may be evicted ranks below it.
    var lowest: UInt64 {
        let limit = header[Field.heapLimit]
        return count(current) == 0 ? limit : min(limit, Item.rank(item(current, 1).u64(0)))
    }

    // MARK: Choosing

    /// A search for a victim, which may pause and continue.
    struct Search {
        /// Slots to visit until it pauses.
        var left: Int
        /// Consecutive heaps without a victim.
        var barren: Int
    }

    /// Returns the least recently used entry's slot, or nil if all are pinned. Throws `.pause` when `search` is used
    /// up. `expired`: as of `sweep`.
    func next(_ search: inout Search, expired: (Slot, inout Int) -> Bool) throws(Failure) -> Slot? {
        while header[Field.entries] > header[Field.pinned], search.barren < 4 {
            while count(current) > 0 {
                // (Items above the limit are left from a sweep that had to lower it.)
                guard let item = pop(current), Item.rank(item) <= header[Field.heapLimit] else {
                    setCount(current, 0)
                    break
                }
                // Keep the other heap's sweep ahead of the consumption of this one.
                let unswept = max(0, table.positions.upperBound - header[Field.sweepAt])
                let buckets = max(16, unswept / (count(current) + 1) + 1)
                search.left -= sweep(looks: min(buckets * Table.bucketSlots, Victims.looksAtOnce), expired: expired)
                search.left -= Victims.looksForVictim
                if let slot = entry(of: item) {
                    search.barren = 0
                    return slot
                }
                if search.left <= 0 { throw .pause }
            }
            while header[Field.sweepState] != ShardHeader.SweepState.complete {
                search.left -= sweep(looks: Victims.looksAtOnce, expired: expired)
                if search.left <= 0 { throw .pause }
            }
            header[Field.heapCurrent] = 1 - current
            header[Field.heapLimit] = header[Field.sweepLimit]
            header[Field.sweepState] = ShardHeader.SweepState.idle
            header[Field.sweepAt] = 0
            if count(current) == 0 {
                header[Field.heapLimit] = 0
                search.barren += 1
                // A whole sweep of its own found no victim: damage to the counter has set it below the slots' stamps.
                // From here on new stamps are the newest again, and the next change renumbers all.
                if search.barren == 2 { header[Field.stamp] = max(header[Field.stamp], Sizes.renumberStampsAt) }
            }
        }
        return nil
    }

    /// Keeps an entry that `next` chose, with its rank. (There is room: its item was popped.)
    func putBack(_ slot: Slot) {
        let word0 = slot.entry, rank = Victims.rank(slot.use)
        if word0.isFree || rank > header[Field.heapLimit] { return }
        push(current, Item.make(rank, table.hashBits(at: table.position(of: slot), word0, table.shape)))
    }

    /// Returns the slot of a popped item; nil if its entry has left or was used since. In that case, adds a bound of
    /// its group's other entries to each heap: the lowest rank that it has to know.
    private func entry(of item: UInt64) -> Slot? {
        let low = Item.lowestHashBits(item), rank = Item.rank(item)
        let shape = table.shape
        let limit = header[Field.heapLimit]
        let swept = header[Field.sweepState] == ShardHeader.SweepState.complete ? Int.max : header[Field.sweepAt]
        var slot: Slot?
        var above = UInt64.max, aboveLimit = UInt64.max
        for home in shape.home(low)...max(shape.home(low), shape.home(low | Item.groupMask)) {
            let isItsOwn = table.hasSlot(ofHome: home, fingerprint: low, ignoring: Item.groupMask) { p, position in
                let word0 = p.entry, its = Victims.rank(p.use)
                if word0.isPart || word0.isPinned { return false }
                if its == rank {
                    slot = p
                    return !Item.isBound(item)
                }
                if its > rank, its <= limit { above = min(above, its) }
                if its > limit, position < swept { aboveLimit = min(aboveLimit, its) }
                return false
            }
            if isItsOwn { return slot }
        }
        if above != UInt64.max { push(current, Item.make(above, low, isBound: true)) }
        if aboveLimit <= header[Field.sweepLimit] { collect(Item.make(aboveLimit, low, isBound: true)) }
        return slot
    }

    // MARK: Sweeping

    private static let looksForItem = 16, looksForVictim = 64, looksAtOnce = 256

    /// Continues the sweep that fills the heap not in use, or begins one. Returns how many slots it has visited,
    /// slightly more than `most`. `expired` gets slots whose entry may have expired, returns whether it has unlinked
    /// the entry, and counts the slots that it visits.
    @discardableResult
    func sweep(looks most: Int, expired: (Slot, inout Int) -> Bool) -> Int {
        let shape = table.shape
        let end = shape.positions.upperBound
        if header[Field.sweepState] == ShardHeader.SweepState.complete { return 0 }
        var looks = 0
        if header[Field.sweepState] != ShardHeader.SweepState.sweeping {
            looks = begin(shape)
        }
        var limit = header[Field.sweepLimit]
        // The heap being consumed has all entries up to this rank.
        let known = header[Field.heapLimit]
        let first = header[Field.sweepAt]
        var position = first, stop = min(end, first + max(0, most - looks) / Table.bucketSlots + 1)
        // Work beyond one visit ends the sweep earlier.
        func spend(_ more: Int) {
            looks += more
            stop -= more / Table.bucketSlots
        }
        var p = table.bucket(position)
        while position < stop {
            for i in stride(from: 0, to: Table.bucketSize, by: Slot.size) {
                let slot = Slot(p + i), word0 = slot.entry
                if word0.isFree || word0.isPart { continue }
                if slot.use.expiry != 0 {
                    var more = 0
                    let isDead = expired(slot, &more)
                    if more > 0 { spend(more) }
                    if isDead { continue }
                }
                let word1 = slot.use
                if word0.isPinned || Victims.rank(word1) > limit || Victims.rank(word1) <= known { continue }
                let hashBits = table.hashBits(at: position, word0, shape)
                guard table.isProbed(slot, hashBits, position, shape) else {
                    // Damaged: neither a key nor a victim item leads to it.
                    table.clear(slot)
                    continue
                }
                limit = collect(Item.make(Victims.rank(word1), hashBits))
                spend(Victims.looksForItem)
            }
            position += 1
            p = table.next(p, position)
        }
        header[Field.sweepAt] = position
        if header[Field.sweepState] == ShardHeader.SweepState.sweeping, position >= end {
            header[Field.sweepState] = ShardHeader.SweepState.complete
        }
        return looks + (position - first) * Table.bucketSlots
    }

    /// Adds an item to the heap that the sweep fills; returns the sweep's limit.
    @discardableResult
    private func collect(_ item: UInt64) -> UInt64 {
        let target = 1 - current
        var limit = header[Field.sweepLimit]
        if Item.rank(item) > limit { return limit }
        if count(target) < Victims.capacity(buckets: table.shape.buckets) {
            push(target, item)
            return limit
        }
        // The sample misled: the heap is full. The item replaces the highest of some leaves, or is left out; the limit
        // falls below everything that is not in the heap.
        let leaf = highestLeaf(target), highest = self.item(target, leaf).u64(0)
        if highest > item { rise(target, from: leaf, item) }
        limit = min(limit, max(1, Item.rank(max(highest, item))) - 1)
        header[Field.sweepLimit] = limit
        return limit
    }

    /// Returns the position of the highest of a few leaves, different ones each time. (Enough for the removed item to
    /// be one of the highest, and few enough that a set does not wait.)
    private func highestLeaf(_ which: Int) -> Int {
        let count = count(which), first = count / 2 + 1, leaves = count - count / 2
        var best = first, highest: UInt64 = 0
        for i in 0..<min(leaves, Victims.leavesLookedAt) {
            let at = first + (header[Field.sweepAt] &* Victims.leavesLookedAt &+ i) % leaves
            let its = item(which, at).u64(0)
            if its > highest { (best, highest) = (at, its) }
        }
        return best
    }
    private static let leavesLookedAt = 16

    /// Returns how many slots it has examined.
    private func begin(_ shape: TableShape) -> Int {
        setCount(1 - current, 0)
        header[Field.sweepAt] = 0
        header[Field.sweepState] = ShardHeader.SweepState.sweeping
        // At most the newest stamp: entries that are inserted or used from here on rank above the limit.
        let newest = header[Field.stamp]
        // (A sample of so few would not be used.)
        let samples = header[Field.entries] > Sizes.sample
        header[Field.sweepLimit] = samples ? min(newest, sampleRanks(shape)) : newest
        return samples ? min(Victims.sampled, shape.positions.upperBound * Table.bucketSlots) : 0
    }

    private static let sampled = 512

    /// Estimates the rank below which the heap in use and about `aim` more entries lie, from 512 slots spread over the
    /// table.
    private func sampleRanks(_ shape: TableShape) -> UInt64 {
        let end = shape.positions.upperBound
        return withUnsafeTemporaryAllocation(of: UInt64.self, capacity: Victims.sampled) { ranks in
            var found = 0, seen = 0
            let step = max(1, end / (Victims.sampled / Table.bucketSlots))
            let sample = stride(from: Int(header[Field.stamp] % UInt64(step)), to: end, by: step)
            // Prefetches all at once: one wait after the other would be a set's longest.
            for position in sample { shim_prefetch(table.inlinedBucket(position)) }
            for position in sample {
                if found > Victims.sampled - Table.bucketSlots { break }
                let p = table.inlinedBucket(position)
                for i in stride(from: 0, to: Table.bucketSize, by: Slot.size) {
                    seen += 1
                    let slot = Slot(p + i), word0 = slot.entry
                    if word0.isFree || word0.isPart || word0.isPinned { continue }
                    ranks[found] = Victims.rank(slot.use)
                    found += 1
                }
            }
            let all = SlotUse.stampMask
            guard found > Sizes.sample else { return all }
            let aim = Victims.aim(buckets: shape.buckets) + count(current)
            let expected = max(1, found * aim / max(1, end * 4 * found / max(1, seen)))
            if expected >= found { return all }
            // The lowest `expected` and one more, sorted in front: most of the others are above them all.
            for i in 1..<found {
                let value = ranks[i]
                if i > expected, value >= ranks[expected] { continue }
                var j = min(i, expected)
                while j > 0, ranks[j - 1] > value { ranks[j] = ranks[j - 1]; j -= 1 }
                ranks[j] = value
            }
            return ranks[expected]
        }
    }
}
