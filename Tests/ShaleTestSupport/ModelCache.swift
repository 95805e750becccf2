import CShale

/// The promises of shale.h in the plainest form: a dictionary that never runs out of space. The model cannot know which
/// entries the engine evicts for space; it keeps the order of use, so that a test can tell whether they were the right
/// ones.
///
/// Readings of the header that this model fixes:
/// - fresh while now < created + max age, then kept while now < that + stale;
/// - a stale entry is absent for IF_ABSENT, IF_PRESENT and increment, and present for IF_VERSION, remove and touch;
/// - touch gives max age from now and leaves the stale period's length;
/// - set, increment and get (not peek, not touch) make an entry the newest.
public struct ModelCache {
    public typealias Key = [UInt8]

    public struct Entry {
        public var value: [UInt8]
        public var meta: [UInt8]
        public var tags: [[UInt8]]
        public var pinned: Bool
        public var version: UInt64
        /// Of the last set: touch and increment leave it.
        public var created: Int64
        public var expires: Int64
        public var staleFor: Int64
        /// Position in the order of use: larger is newer.
        public var use: UInt64

        public var keptUntil: Int64 { expires.addingSaturating(staleFor) }
    }

    public enum State { case fresh, stale, dead }

    public var now: Int64
    public let defaultMaxAge: Int64
    public let defaultStale: Int64
    public private(set) var entries: [Key: Entry] = [:]
    /// Evicted entries with their last content: a rebuild may bring them back.
    public private(set) var recallable: [Key: Entry] = [:]
    /// The largest version that any entry has had.
    public private(set) var lastVersion: UInt64 = 0
    /// Whether any entry has died of age since the start or the last clear.
    public private(set) var hasExpired = false
    /// Entries that died by age or tag since this was last read: the engine may still count them.
    public private(set) var expired = 0
    public private(set) var invalidated = 0

    private var uses: UInt64 = 0
    /// Uses in order; an item counts only while it is its key's last use.
    private var order: [(use: UInt64, key: Key)] = []
    private var orderStart = 0

    public init(now: Int64, defaultMaxAge: Int64 = 0, defaultStale: Int64 = 0) {
        self.now = now
        self.defaultMaxAge = defaultMaxAge == 0 ? never : defaultMaxAge
        self.defaultStale = max(0, defaultStale)
    }

    public var pinnedCount: Int { entries.values.count { $0.pinned } }

    public func state(_ key: Key) -> State {
        guard let entry = entries[key] else { return .dead }
        return state(entry)
    }

    public func state(_ entry: Entry) -> State {
        if entry.expires == never || now < entry.expires { return .fresh }
        let kept = entry.keptUntil
        return kept == never || now < kept ? .stale : .dead
    }

    // MARK: Operations

    /// The right answer of a get. The version and all else is in the entry.
    public mutating func get(_ key: Key, stale: Bool, peek: Bool) -> (Status, Entry?) {
        let state = state(key)
        guard state == .fresh || (state == .stale && stale) else { return (.miss, nil) }
        if !peek { use(key) }
        return (state == .fresh ? .ok : .stale, entries[key])
    }

    /// The right answer of a set; on OK the caller gives the version to `setVersion`.
    public mutating func set(_ key: Key, _ value: [UInt8], _ options: SetOptions) -> Status {
        let state = state(key)
        if options.flags & SHALE_SET_IF_ABSENT != 0, state == .fresh { return .conflict }
        if options.flags & SHALE_SET_IF_PRESENT != 0, state != .fresh { return .conflict }
        if options.flags & SHALE_SET_IF_VERSION != 0, state == .dead || entries[key]!.version != options.version {
            return .conflict
        }
        replace(
            key,
            Entry(
                value: value, meta: options.meta, tags: options.tags,
                pinned: options.flags & SHALE_SET_PINNED != 0, version: 0, created: now,
                expires: expiry(options.maxAge), staleFor: staleFor(options.stale), use: 0))
        return .ok
    }

    public mutating func increment(_ key: Key, by delta: Int64, from initial: Int64) -> (Status, Int64) {
        guard state(key) == .fresh, var entry = entries[key] else {
            let (sum, overflow) = initial.addingReportingOverflow(delta)
            if overflow { return (.invalid, 0) }
            _ = set(key, sum.littleEndianBytes, SetOptions())
            return (.ok, sum)
        }
        guard let old = integer(entry.value) else { return (.invalid, 0) }
        let (sum, overflow) = old.addingReportingOverflow(delta)
        if overflow { return (.invalid, 0) }
        entry.value = sum.littleEndianBytes
        replace(key, entry)
        return (.ok, sum)
    }

    /// Notes the version of a set or an increment. False if it is not a new one.
    public mutating func setVersion(_ key: Key, _ version: UInt64) -> Bool {
        let isNew = version > lastVersion
        lastVersion = max(lastVersion, version)
        entries[key]?.version = version
        return isNew
    }

    public mutating func remove(_ key: Key, version: UInt64) -> Status {
        guard state(key) != .dead, let entry = entries[key] else {
            // A removed value is never seen again, also if it had been evicted and only its record was left.
            if version == 0 { recallable[key] = nil }
            return .miss
        }
        if version != 0, version != entry.version { return .conflict }
        entries[key] = nil
        recallable[key] = nil
        return .ok
    }

    public mutating func touch(_ key: Key, _ maxAge: Int64) -> Status {
        guard state(key) != .dead else { return .miss }
        entries[key]!.expires = expiry(maxAge)
        collect(key)
        return .ok
    }

    public mutating func invalidate(_ tag: [UInt8]) {
        let before = entries.count
        entries = entries.filter { !$1.tags.contains(tag) }
        invalidated += before - entries.count
        recallable = recallable.filter { !$1.tags.contains(tag) }
    }

    public mutating func clear() {
        entries = [:]
        recallable = [:]
        order = []
        orderStart = 0
        hasExpired = false
    }

    /// Moves the clock and removes entries past their stale period.
    public mutating func advance(to time: Int64) {
        precondition(time >= now)
        now = time
        for (key, entry) in entries where state(entry) == .dead {
            entries[key] = nil
            expired += 1
            hasExpired = true
        }
        for (key, entry) in recallable where state(entry) == .dead { recallable[key] = nil }
    }

    public mutating func takeDead() -> (expired: Int, invalidated: Int) {
        defer { (expired, invalidated) = (0, 0) }
        return (expired, invalidated)
    }

    // MARK: Space

    /// Notes that the engine has evicted an entry.
    public mutating func evict(_ key: Key) {
        guard let entry = entries.removeValue(forKey: key) else { return }
        recallable[key] = entry
    }

    /// An evicted entry that a rebuild brought back.
    public mutating func recall(_ key: Key) {
        guard let entry = recallable.removeValue(forKey: key) else { return }
        entries[key] = entry
        use(key)
    }

    /// Entries that are not pinned, the least recently used first, until the body answers false.
    public mutating func fromOldest(_ body: (Key, Entry) -> Bool) {
        while orderStart < order.count, !isCurrent(order[orderStart]) { orderStart += 1 }
        if orderStart > 4096, orderStart > order.count / 2 {
            order.removeFirst(orderStart)
            orderStart = 0
        }
        var position = orderStart
        while position < order.count {
            let item = order[position]
            position += 1
            guard isCurrent(item), let entry = entries[item.key] else { continue }
            if !body(item.key, entry) { return }
        }
    }

    /// The next victim.
    public mutating func oldest() -> Key? {
        var oldest: Key?
        fromOldest { key, _ in
            oldest = key
            return false
        }
        return oldest
    }

    // MARK: Parts

    private func isCurrent(_ item: (use: UInt64, key: Key)) -> Bool {
        guard let entry = entries[item.key] else { return false }
        return entry.use == item.use && !entry.pinned
    }

    private mutating func use(_ key: Key) {
        uses += 1
        entries[key]?.use = uses
        order.append((uses, key))
    }

    private mutating func replace(_ key: Key, _ entry: Entry) {
        entries[key] = entry
        recallable[key] = nil
        use(key)
        collect(key)
    }

    /// An age of none without a stale period makes an entry that is never visible.
    private mutating func collect(_ key: Key) {
        guard let entry = entries[key], state(entry) == .dead else { return }
        entries[key] = nil
        expired += 1
        hasExpired = true
    }

    private func expiry(_ maxAge: Int64) -> Int64 {
        switch maxAge {
        case 0: defaultMaxAge == never ? never : max(now, now.addingSaturating(max(0, defaultMaxAge)))
        case none: now
        default: now.addingSaturating(maxAge)
        }
    }

    private func staleFor(_ stale: Int64) -> Int64 {
        switch stale {
        case 0: defaultStale
        case none: 0
        default: stale
        }
    }
}

extension Int64 {
    /// A sum past the end is SHALE_NEVER, as an age without end is.
    public func addingSaturating(_ other: Int64) -> Int64 {
        let (sum, overflow) = addingReportingOverflow(other)
        return overflow ? never : sum
    }
}
