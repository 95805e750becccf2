#if !hasFeature(Embedded)
import CShalePlatform
import Synchronization

/// A persistent cache of bytes, shared by any number of threads and processes.
///
/// ```swift
/// let store = try Store(at: "/var/cache/app")
/// try store.set("value", for: "key", maxAge: .seconds(60), tags: ["news"])
/// let bytes = try store.value(for: "key")
/// ```
///
/// Every method may be called from any thread. A completed `set` survives
/// `kill -9`; a power cut may take what was written after the last `sync()` or
/// orderly close, and what a full store has moved or evicted since: see `sync()`.
/// A store may drop any entry to make room: keep the truth elsewhere. The
/// store closes when its last reference goes, or by `close()`.
public final class Store: Sendable {
    /// Where the store is; nil: in memory.
    public let directory: String?
    let engine: Engine
    private let clock: ClockBox?
    private let buffers = BufferPool()
    let evictionObservers = EvictionObservers()
    private let gate = CallGate()

    /// How a store is opened. Every default is stated here.
    public struct Options: Sendable {
        /// Bytes on disk, all files together, at least 1 MiB. Nil: 1 GiB for a new store, unchanged for an existing
        /// one.
        public var capacity: Int?
        /// Nil: as many as fit.
        public var maxEntries: Int?
        /// Default age of an entry. Nil: what was set at creation, or for ever.
        public var maxAge: Lifetime?
        /// How long an entry is kept past its age. Nil: what was set at creation, or not at all.
        public var stale: Lifetime?
        /// Nil: chosen from the capacity; one up to 128 MiB or 65,536 entries.
        public var shards: Int?
        /// Bytes, a power of two from 128 KiB to 16 MiB. Nil: chosen from the capacity.
        public var segmentSize: Int?
        /// Of new files.
        public var permissions: UInt32 = 0o600
        public var compression: Compression = .dictionary
        /// Which entries leave first where there is no room. Chosen when the store is made; another one than the store
        /// has is an error. Nil: least recently used for a new store, unchanged for an existing one.
        public var eviction: Eviction?
        public var isReadOnly = false
        /// Fail instead of creating.
        public var mustExist = false
        /// Whether the last close makes everything durable.
        public var syncsAtClose = true
        /// Milliseconds since 1970. Nil: the system's wall clock. Judges every entry that this store meets.
        public var now: (@Sendable () -> Int64)?

        public init(capacity: Int? = nil, maxEntries: Int? = nil, maxAge: Lifetime? = nil, stale: Lifetime? = nil) {
            self.capacity = capacity
            self.maxEntries = maxEntries
            self.maxAge = maxAge
            self.stale = stale
        }
    }

    /// An age: a duration in whole milliseconds, for ever, or none at all.
    public enum Lifetime: Sendable, Equatable {
        case of(Duration)
        case forever
        /// As a max age: stale at once. As a stale period: not kept past its age.
        case zero

        public static func seconds(_ seconds: Int) -> Lifetime { .of(.seconds(seconds)) }
        public static func milliseconds(_ milliseconds: Int) -> Lifetime { .of(.milliseconds(milliseconds)) }

        /// A duration below a millisecond counts as one; below zero it is an error.
        var milliseconds: Int64 {
            switch self {
            case .forever: return Age.never
            case .zero: return Age.none
            case .of(let duration):
                let parts = duration.components
                if parts.seconds < 0 || parts.attoseconds < 0 { return -2 }
                if parts.seconds > Int64.max / 2000 { return Age.never }
                let ms = parts.seconds * 1000 + parts.attoseconds / 1_000_000_000_000_000
                return ms == 0 ? (duration == .zero ? Age.none : 1) : ms
            }
        }
    }

    /// What is known of an entry beside its value.
    public struct Entry: Sendable {
        /// Bytes of the value.
        public let size: Int
        /// The caller's own bytes that were stored beside the value.
        public let meta: [UInt8]
        /// Milliseconds since 1970.
        public let createdAt: Int64
        /// Milliseconds since 1970; nil: never.
        public let expiresAt: Int64?
        /// Changes with every set.
        public let version: UInt64
        /// Bytes of the value after compression.
        public let storedSize: Int
        public let isStale: Bool
        public let isPinned: Bool

        init(_ found: Found, meta: [UInt8]) {
            size = found.size
            self.meta = meta
            createdAt = found.created
            expiresAt = found.expires == Age.never ? nil : found.expires
            version = found.version
            storedSize = Int(found.storedSize)
            isStale = found.isStale
            isPinned = found.isPinned
        }
    }

    /// Opens the store in a directory, creating it and missing parents; nil: a new one in memory.
    public init(at directory: String?, options: Options = Options()) throws(ShaleError) {
        self.directory = directory
        var configuration = Configuration()
        configuration.capacity = UInt64(max(0, options.capacity ?? 0))
        configuration.maxEntries = UInt64(max(0, options.maxEntries ?? 0))
        configuration.maxAge = options.maxAge?.milliseconds ?? 0
        configuration.stale = options.stale?.milliseconds ?? 0
        configuration.shards = UInt32(clamping: options.shards ?? 0)
        configuration.segmentSize = UInt32(clamping: options.segmentSize ?? 0)
        configuration.mode = options.permissions
        configuration.compression = options.compression
        configuration.eviction = options.eviction
        configuration.isReadOnly = options.isReadOnly
        configuration.mustExist = options.mustExist
        configuration.syncsAtClose = options.syncsAtClose
        clock = options.now.map(ClockBox.init)
        if let clock {
            configuration.clock = { Unmanaged<ClockBox>.fromOpaque($0.unsafelyUnwrapped).takeUnretainedValue().now() }
            configuration.clockContext = Unmanaged.passUnretained(clock).toOpaque()
        }
        let settled = configuration
        engine =
            if let directory {
                try directory.withPath { path throws(ShaleError) in
                    try throwing(in: directory) { () throws(Failure) in try Engine.open(path, settled) }
                }
            } else {
                try throwing(in: directory) { () throws(Failure) in try Engine.open(nil, settled) }
            }
        engine.ref.pointee.evictionListener = evictionObservers.listener
    }

    /// Opens the store in a directory with the limits that it has. Where there is none, makes one with those of the options.
    package static func withOwnLimits(at directory: String, options: Options) throws(ShaleError) -> Store {
        var existing = options
        existing.capacity = nil
        existing.maxEntries = nil
        existing.mustExist = true
        do throws(ShaleError) { return try Store(at: directory, options: existing) } catch {
            if error.errno != SHIM_ENOENT { throw error }
            return try Store(at: directory, options: options)
        }
    }

    deinit { try? close() }

    /// Closes the store: calls that are under way end first, and later ones are errors of the code `closed`. The last process
    /// to close syncs. Not to be called from the store's clock.
    public func close() throws(ShaleError) {
        guard gate.close() else { return }
        buffers.free()
        try throwing(in: directory) { () throws(Failure) in try engine.close() }
    }

    /// Every call of the engine, which is there until it has returned.
    @inline(__always)
    func call<R>(_ body: () throws(Failure) -> R) throws(ShaleError) -> R {
        guard gate.enter() else { throw closed() }
        defer { gate.leave() }
        return try throwing(in: directory, body)
    }

    @inline(never)
    private func closed() -> ShaleError {
        ShaleError(code: .closed, message: "\(directory ?? "memory"): the store is closed; open another one")
    }

    // MARK: Reading

    /// The value's bytes, or nil where there is none or it has expired.
    @inlinable
    public func value(for key: some StoreBytes, includingStale: Bool = false) throws(ShaleError) -> [UInt8]? {
        try withValue(for: key, includingStale: includingStale) { _, bytes in Array(bytes) }
    }

    /// Lends the value's bytes to `body` without another copy. They are valid within it only.
    /// `peeking` leaves recency and counters alone.
    @inlinable
    public func withValue<R>(
        for key: some StoreBytes, includingStale: Bool = false, peeking: Bool = false,
        _ body: (Entry, UnsafeRawBufferPointer) -> R
    ) throws(ShaleError) -> R? {
        var result: R?
        try key.withStoreBytes { bytes throws(ShaleError) in
            try read(bytes, includingStale: includingStale, peeking: peeking) { result = body($0, $1) }
        }
        return result
    }

    /// The callers' generic code is theirs to specialise; this is what they share. Calls `body` if there is an entry.
    @usableFromInline
    func read(
        _ key: UnsafeRawBufferPointer, includingStale: Bool, peeking: Bool,
        _ body: (Entry, UnsafeRawBufferPointer) -> Void
    ) throws(ShaleError) {
        var buffer = buffers.take()
        defer { buffers.give(buffer) }
        var found = Found()
        var options: ReadOptions = []
        if includingStale { options.insert(.stale) }
        if peeking { options.insert(.peek) }
        let status = try call { () throws(Failure) in try engine.get(key, options, &buffer, &found) }
        guard status == .ok || status == .stale else { return }
        let whole = UnsafeRawBufferPointer(start: buffer.data, count: found.size + found.metaSize)
        body(Entry(found, meta: Array(whole[found.size...])), UnsafeRawBufferPointer(rebasing: whole[..<found.size]))
    }

    /// The value's bytes as a span, where the caller prefers one.
    public func withSpan<R>(for key: some StoreBytes, includingStale: Bool = false, _ body: (RawSpan) -> R)
        throws(ShaleError) -> R?
    {
        try withValue(for: key, includingStale: includingStale) { _, bytes in body(bytes.bytes) }
    }

    /// All but the value. Without `peeking` it is a read like any other: it counts, and makes the entry the most
    /// recently used.
    @inlinable
    public func entry(for key: some StoreBytes, includingStale: Bool = false, peeking: Bool = true) throws(ShaleError)
        -> Entry?
    {
        try key.withStoreBytes { bytes throws(ShaleError) in
            try info(bytes, includingStale: includingStale, peeking: peeking)
        }
    }

    @usableFromInline
    func info(_ key: UnsafeRawBufferPointer, includingStale: Bool, peeking: Bool) throws(ShaleError) -> Entry? {
        var buffer = buffers.take()
        defer { buffers.give(buffer) }
        var found = Found()
        var options: ReadOptions = .info
        if includingStale { options.insert(.stale) }
        if peeking { options.insert(.peek) }
        let status = try call { () throws(Failure) in try engine.get(key, options, &buffer, &found) }
        guard status == .ok || status == .stale else { return nil }
        return Entry(found, meta: Array(UnsafeRawBufferPointer(start: buffer.data, count: found.metaSize)))
    }

    /// The version of a fresh entry, by a read that counts as a use.
    @usableFromInline
    package func readVersion(of key: [UInt8]) throws(ShaleError) -> UInt64? {
        var buffer = buffers.take()
        defer { buffers.give(buffer) }
        var found = Found()
        let status = try key.withStoreBytes { bytes throws(ShaleError) in
            try call { () throws(Failure) in try engine.get(bytes, .info, &buffer, &found) }
        }
        return status == .ok ? found.version : nil
    }

    /// Why there is none, without counting as a read; nil: there is one.
    package func miss(for key: [UInt8], includingStale: Bool) throws(ShaleError) -> Miss? {
        var buffer = buffers.take()
        defer { buffers.give(buffer) }
        var found = Found()
        var options: ReadOptions = [.info, .peek]
        if includingStale { options.insert(.stale) }
        let status = try key.withStoreBytes { bytes throws(ShaleError) in
            try call { () throws(Failure) in try engine.get(bytes, options, &buffer, &found) }
        }
        return status == .miss ? found.miss : nil
    }

    // MARK: Writing

    /// Stores a value and returns its version, or nil where the condition did not hold.
    @inlinable
    @discardableResult
    public func set(
        _ value: some StoreBytes, for key: some StoreBytes, maxAge: Lifetime? = nil, stale: Lifetime? = nil,
        tags: [String] = [],
        meta: [UInt8] = [], condition: Condition = .always, pinned: Bool = false, uncompressed: Bool = false
    ) throws(ShaleError) -> UInt64? {
        try key.withStoreBytes { keyBytes throws(ShaleError) in
            try value.withStoreBytes { valueBytes throws(ShaleError) in
                try write(
                    valueBytes, for: keyBytes, maxAge: maxAge, stale: stale, tags: tags, meta: meta,
                    condition: condition, pinned: pinned,
                    uncompressed: uncompressed)
            }
        }
    }

    @usableFromInline
    func write(
        _ value: UnsafeRawBufferPointer, for key: UnsafeRawBufferPointer, maxAge: Lifetime?, stale: Lifetime?,
        tags: [String], meta: [UInt8],
        condition: Condition, pinned: Bool, uncompressed: Bool
    ) throws(ShaleError) -> UInt64? {
        var options = SetOptions()
        options.maxAge = maxAge?.milliseconds ?? 0
        options.stale = stale?.milliseconds ?? 0
        options.condition = condition
        options.isPinned = pinned
        options.isUncompressed = uncompressed
        for tag in tags {
            try tag.withStoreBytes { bytes throws(ShaleError) in
                try call { () throws(Failure) in try options.add(tag: bytes, engine) }
            }
        }
        var version: UInt64 = 0
        defer { evictionObservers.tell() }
        let status = try meta.withStoreBytes { metaBytes throws(ShaleError) in
            options.meta = metaBytes
            return try call { () throws(Failure) in try engine.set(key, value, options, version: &version) }
        }
        return status == .ok ? version : nil
    }

    /// Whether there was an entry to remove. With a version, an entry that has another one stays.
    @discardableResult
    public func remove(_ key: some StoreBytes, version: UInt64? = nil) throws(ShaleError) -> Bool {
        // The engine takes 0 for any version; no entry has it.
        if version == 0 { return false }
        defer { evictionObservers.tell() }
        return try key.withStoreBytes { bytes throws(ShaleError) in
            try call { () throws(Failure) in try engine.remove(bytes, version: version ?? 0) }
        } == .ok
    }

    /// Gives an entry, fresh or stale, a new age from now. False where there is none. With a version, an entry that has
    /// another one keeps its age.
    @discardableResult
    public func touch(_ key: some StoreBytes, version: UInt64? = nil, maxAge: Lifetime? = nil) throws(ShaleError)
        -> Bool
    {
        if version == 0 { return false }
        defer { evictionObservers.tell() }
        return try key.withStoreBytes { bytes throws(ShaleError) in
            try call { () throws(Failure) in
                try engine.touch(bytes, version: version ?? 0, maxAge: maxAge?.milliseconds ?? 0)
            }
        } == .ok
    }

    /// The same, if nothing has happened to the key, or to the entry's tags, since the fence.
    package func touch(_ key: some StoreBytes, if fence: Condition, maxAge: Lifetime) throws(ShaleError) -> Bool {
        guard case .ifUntouched(let token) = fence else { return try touch(key, maxAge: maxAge) }
        defer { evictionObservers.tell() }
        return try key.withStoreBytes { bytes throws(ShaleError) in
            try call { () throws(Failure) in
                try engine.touch(bytes, since: token, maxAge: maxAge.milliseconds)
            }
        } == .ok
    }

    /// Makes an entry stale, as if its age were over: it is kept for its stale period from now, but no longer than it would
    /// have been; without one, it is removed. Whether there was an entry.
    @discardableResult
    public func expire(_ key: some StoreBytes) throws(ShaleError) -> Bool {
        defer { evictionObservers.tell() }
        return try key.withStoreBytes { bytes throws(ShaleError) in
            try call { () throws(Failure) in try engine.expire(bytes) }
        } == .ok
    }

    /// Adds to an 8-byte little-endian integer, from `initial` where there is none. Returns the sum.
    @discardableResult
    public func increment(_ key: some StoreBytes, by delta: Int64 = 1, initial: Int64 = 0) throws(ShaleError) -> Int64 {
        defer { evictionObservers.tell() }
        return try key.withStoreBytes { bytes throws(ShaleError) in
            try call { () throws(Failure) in try engine.increment(bytes, delta: delta, initial: initial) }
        }
    }

    // MARK: The whole store

    /// The time by which this store judges ages, in milliseconds since 1970.
    public var now: Int64 { Age.publicPoint(Age.point(clock?.now() ?? shim_now_ms())) }

    /// Removes every entry that carries the tag and was set before the call. Costs the number of shards.
    public func invalidate(tag: String) throws(ShaleError) { try invalidate(tag, expires: false) }
    /// Makes every entry stale that carries the tag and was set before the call, as ``expire(_:)`` does. Costs the number of
    /// shards.
    public func expire(tag: String) throws(ShaleError) { try invalidate(tag, expires: true) }

    private func invalidate(_ tag: String, expires: Bool) throws(ShaleError) {
        defer { evictionObservers.tell() }
        try tag.withStoreBytes { bytes throws(ShaleError) in
            try call { () throws(Failure) in try engine.invalidate(bytes, expires: expires) }
        }
    }
    public func removeAll() throws(ShaleError) { try call { () throws(Failure) in try engine.clear() } }
    /// Evicts up to `count` entries, of each shard those first that ``Options/eviction`` says. Returns how many.
    @discardableResult
    public func evict(_ count: Int) throws(ShaleError) -> Int {
        defer { evictionObservers.tell() }
        return try call { () throws(Failure) in Int(try engine.evict(UInt64(max(0, count)))) }
    }
    /// Removes what is past its age and its stale period. Returns how many.
    @discardableResult
    public func purge() throws(ShaleError) -> Int { try call { () throws(Failure) in Int(try engine.purge()) } }
    /// Returns when all that was completed before the call is on the disk. After a power cut each entry is as it was
    /// then, or as later. What may be missing: an entry whose place a full cache has reused since, a key that was
    /// changed since, what was evicted, and in a full cache what evicted entries displace that come back.
    public func sync() throws(ShaleError) { try call { () throws(Failure) in try engine.sync() } }
    /// Reads every current record, checks it, and drops what is damaged.
    public func verify() throws(ShaleError) -> Report { try call { () throws(Failure) in try engine.verify() } }
    public func statistics() throws(ShaleError) -> Statistics {
        try call { () throws(Failure) in try engine.statistics() }
    }

    /// Walks all entries, in no promised order, until `body` returns false: whatever lives throughout comes once, what
    /// is removed and set again meanwhile may come twice.
    public func forEach(
        includingStale: Bool = false,
        _ body: (_ key: UnsafeRawBufferPointer, Entry, _ value: UnsafeRawBufferPointer) -> Bool
    ) throws(ShaleError) {
        var cursor = Cursor(engine)
        var key = buffers.take(), value = buffers.take()
        defer {
            buffers.give(key)
            buffers.give(value)
        }
        while true {
            var found = Found()
            var keySize = 0
            let status = try call { () throws(Failure) in
                try cursor.next(includingStale ? .stale : [], key: &key, keySize: &keySize, value: &value, &found)
            }
            if status == .end { return }
            let whole = UnsafeRawBufferPointer(start: value.data, count: found.size + found.metaSize)
            let entry = Entry(found, meta: Array(whole[found.size...]))
            if !body(
                UnsafeRawBufferPointer(start: key.data, count: keySize), entry,
                UnsafeRawBufferPointer(rebasing: whole[..<found.size]))
            {
                return
            }
        }
    }
}

extension String {
    fileprivate func withPath<R>(_ body: (UnsafePointer<CChar>) throws(ShaleError) -> R) throws(ShaleError) -> R {
        var result: Result<R, ShaleError>?
        withCString { path in
            do throws(ShaleError) { result = .success(try body(path)) } catch { result = .failure(error) }
        }
        return try result.unsafelyUnwrapped.get()
    }
}

private final class ClockBox: Sendable {
    let now: @Sendable () -> Int64
    init(_ now: @escaping @Sendable () -> Int64) { self.now = now }
}

/// Value buffers that calls borrow, so that reads do not allocate in the steady state. Nobody waits for the
/// lock: in a forked child, it may have been another thread's, and stays locked.
private final class BufferPool: Sendable {
    private struct Free: @unchecked Sendable {
        var buffers: [ValueBuffer] = []
        var isOver = false
    }
    private let idle = Mutex(Free())
    private static let most = 16, largest = 1 << 20

    deinit { free() }

    func take() -> ValueBuffer { (idle.withLockIfAvailable { $0.buffers.popLast() } ?? nil) ?? ValueBuffer() }
    func give(_ buffer: ValueBuffer) {
        let kept = idle.withLockIfAvailable { free in
            guard !free.isOver, free.buffers.count < BufferPool.most, buffer.capacity <= BufferPool.largest else {
                return false
            }
            free.buffers.append(buffer)
            return true
        }
        if kept != true { shim_free(buffer.data) }
    }
    func free() {
        _ = idle.withLockIfAvailable { free in
            for buffer in free.buffers { shim_free(buffer.data) }
            free.buffers = []
            free.isOver = true
        }
    }
}
#endif
