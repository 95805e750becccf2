#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif
import ShaleCore
import Synchronization
// Types of ShaleCore in this module's public interface.
@_exported import enum ShaleCore.Compression
@_exported import enum ShaleCore.Eviction
@_exported import struct ShaleCore.Age
@_exported import struct ShaleCore.Lease
@_exported import struct ShaleCore.ShaleError
@_exported import class ShaleCore.Store

/// A persistent cache of typed values, shared by any number of tasks, threads and processes.
///
/// ```swift
/// let articles = try Cache<URL, Article>(at: directory, maxAge: .seconds(300))
/// try articles.insert(article, for: url, tags: ["news"])
/// let article = try await articles.value(for: url) { try await download(url) }
/// ```
///
/// An entry is fresh for its max age, then stale. Only calls that ask for stale data return stale entries. A full store
/// evicts fresh and stale entries alike, the least recently used first unless it has another `Eviction`: do not keep
/// the only copy of data in a cache.
///
/// Equal keys are the same key. Key types with a `==` of their own conform to ``CacheKey``.
///
/// A `Store` holds the encoded values. Decoded values that were used recently stay in memory; each read from memory
/// first checks the entry's version and age in the store. It therefore never returns a value that another process has
/// replaced, removed or invalidated, reports an expired entry as stale, and counts as a use in the store.
///
/// All methods are safe to call from any thread and from several processes at once. The child of a `fork` has to open
/// its own cache: a thread that does not exist in the child may hold this one's locks. Errors are `ShaleError`; loading
/// functions also throw what the loader throws.
public final class Cache<Key: Hashable & Codable & Sendable, Value: Codable & Sendable>: Sendable {
    /// Holds the entries. It may also hold other caches, and entries that belong to no cache.
    public let store: Store
    /// Separates this cache's entries from others in the store; empty for a cache that was opened by its directory.
    public let name: String

    let options: Options
    @usableFromInline let coder: Coder<Value>
    @usableFromInline let keys: KeySpace<Key>
    @usableFromInline let memory: MemoryTier<Key, Value>
    let storeIdentity: StoreIdentity
    let loader = Loader<[UInt8], Answer>()
    let pauses = LoadPauses<[UInt8]>()
    /// Every fresh hit may begin a load.
    @usableFromInline let refreshesAhead: Bool
    @usableFromInline let counters = Counters()
    @usableFromInline let changeBroadcast = Broadcast<Change>()
    @usableFromInline let eventBroadcast = Broadcast<Event>()
    private let evictions = Mutex<Int?>(nil)
    let waits = Mutex<Int?>(nil)
    private let isData = Value.self == Data.self

    /// Opens the cache in a directory, creating it and missing parents.
    ///
    /// An option that is nil leaves the setting of an existing store unchanged. An option out of range is an error with
    /// the code `invalid`, whose message states the range.
    ///
    /// - Parameters:
    ///   - directory: On a local file system. ``inMemory(options:)`` needs no directory.
    ///   - options: See ``Options``, also for the parameters of the other initializers.
    public convenience init(at directory: String, options: Options) throws(ShaleError) {
        try self.init(opening: directory, options)
    }

    /// The same, in a directory that a file URL names.
    public convenience init(at directory: URL, options: Options) throws(ShaleError) {
        if !directory.isFileURL { throw ShaleError(code: .invalid, message: "\(directory) is not a file URL") }
        try self.init(opening: directory.path, options)
    }

    /// The same, with the options one by one.
    public convenience init(
        at directory: String, maxAge: Age = .hours(12), staleFor: Age = .forever, maxEntries: Int? = nil,
        capacity: Int? = nil, reserveCapacity: Int? = nil,
        eviction: Eviction? = nil, memoryEntries: Int = 256, memoryBytes: Int = 32 << 20, refreshAhead: Double = 0,
        leaseTime: Duration = .seconds(10), lockTimeout: Duration? = nil, coder: Coder<Value> = .standard,
        schema: Int = 0, removesUndecodable: Bool = false, now: (@Sendable () -> Date)? = nil,
        limitClock: any Clock<Duration> = ContinuousClock()
    ) throws(ShaleError) {
        try self.init(
            at: directory,
            options: Options(
                maxAge: maxAge, staleFor: staleFor, maxEntries: maxEntries, capacity: capacity,
                reserveCapacity: reserveCapacity, eviction: eviction, memoryEntries: memoryEntries,
                memoryBytes: memoryBytes, refreshAhead: refreshAhead, leaseTime: leaseTime, lockTimeout: lockTimeout,
                coder: coder, schema: schema, removesUndecodable: removesUndecodable, now: now, limitClock: limitClock))
    }

    /// The same, in a directory that a file URL names.
    public convenience init(
        at directory: URL, maxAge: Age = .hours(12), staleFor: Age = .forever, maxEntries: Int? = nil,
        capacity: Int? = nil, reserveCapacity: Int? = nil,
        eviction: Eviction? = nil, memoryEntries: Int = 256, memoryBytes: Int = 32 << 20, refreshAhead: Double = 0,
        leaseTime: Duration = .seconds(10), lockTimeout: Duration? = nil, coder: Coder<Value> = .standard,
        schema: Int = 0, removesUndecodable: Bool = false, now: (@Sendable () -> Date)? = nil,
        limitClock: any Clock<Duration> = ContinuousClock()
    ) throws(ShaleError) {
        try self.init(
            at: directory,
            options: Options(
                maxAge: maxAge, staleFor: staleFor, maxEntries: maxEntries, capacity: capacity,
                reserveCapacity: reserveCapacity, eviction: eviction, memoryEntries: memoryEntries,
                memoryBytes: memoryBytes, refreshAhead: refreshAhead, leaseTime: leaseTime, lockTimeout: lockTimeout,
                coder: coder, schema: schema, removesUndecodable: removesUndecodable, now: now, limitClock: limitClock))
    }

    /// A new cache in memory, which its last reference frees. Otherwise it behaves like a cache in a directory.
    public static func inMemory(options: Options) throws(ShaleError) -> Cache { try Cache(opening: nil, options) }

    /// The same, with the options one by one.
    public static func inMemory(
        maxAge: Age = .hours(12), staleFor: Age = .forever, maxEntries: Int? = nil, capacity: Int? = nil,
        reserveCapacity: Int? = nil, eviction: Eviction? = nil, memoryEntries: Int = 256, memoryBytes: Int = 32 << 20,
        refreshAhead: Double = 0, leaseTime: Duration = .seconds(10), lockTimeout: Duration? = nil,
        coder: Coder<Value> = .standard, schema: Int = 0, removesUndecodable: Bool = false,
        now: (@Sendable () -> Date)? = nil, limitClock: any Clock<Duration> = ContinuousClock()
    ) throws(ShaleError) -> Cache {
        try inMemory(
            options: Options(
                maxAge: maxAge, staleFor: staleFor, maxEntries: maxEntries, capacity: capacity,
                reserveCapacity: reserveCapacity, eviction: eviction, memoryEntries: memoryEntries,
                memoryBytes: memoryBytes, refreshAhead: refreshAhead, leaseTime: leaseTime, lockTimeout: lockTimeout,
                coder: coder, schema: schema, removesUndecodable: removesUndecodable, now: now, limitClock: limitClock))
    }

    /// Opens one of several caches in a store, each with its own name. They share the store's limits and clock:
    /// `maxEntries`, `capacity`, `reserveCapacity`, `eviction`, `lockTimeout` and `now` are errors here; set them on the
    /// store.
    ///
    /// A name has at most 255 bytes of UTF-8, and is for one type of key and one type of value, see also
    /// ``Options/schema``. Otherwise the cache behaves like a cache in a directory.
    public convenience init(in store: Store, named name: String, options: Options) throws(ShaleError) {
        if options.includesStoreOptions {
            throw ShaleError(
                "maxEntries, capacity, reserveCapacity, eviction, lockTimeout and now belong to the store; set them in "
                    + "Store.Options",
                in: store.directory,
                named: name)
        }
        try self.init(in: store, name, options)
    }

    /// The same, with the options one by one.
    public convenience init(
        in store: Store, named name: String, maxAge: Age = .hours(12), staleFor: Age = .forever,
        memoryEntries: Int = 256, memoryBytes: Int = 32 << 20, refreshAhead: Double = 0,
        leaseTime: Duration = .seconds(10), coder: Coder<Value> = .standard, schema: Int = 0,
        removesUndecodable: Bool = false, limitClock: any Clock<Duration> = ContinuousClock()
    ) throws(ShaleError) {
        try self.init(
            in: store, named: name,
            options: Options(
                maxAge: maxAge, staleFor: staleFor, memoryEntries: memoryEntries, memoryBytes: memoryBytes,
                refreshAhead: refreshAhead, leaseTime: leaseTime, coder: coder, schema: schema,
                removesUndecodable: removesUndecodable, limitClock: limitClock))
    }

    /// Nil: in memory.
    convenience init(opening directory: String?, _ options: Options) throws(ShaleError) {
        // Before any file is created or changed.
        if let fault = options.fault { throw ShaleError(fault, in: directory) }
        var storeOptions = Store.Options(capacity: options.capacity, maxEntries: options.maxEntries)
        storeOptions.reserveCapacity = options.reserveCapacity
        storeOptions.eviction = options.eviction
        if let lockTimeout = options.lockTimeout { storeOptions.lockTimeout = lockTimeout }
        if let now = options.now { storeOptions.now = { now().millisecondsSince1970 } }
        try self.init(in: try Store(at: directory, options: storeOptions), "", options)
    }

    private init(in store: Store, _ name: String, _ options: Options) throws(ShaleError) {
        self.store = store
        self.name = name
        self.options = options
        refreshesAhead = options.refreshAhead > 0
        storeIdentity = StoreIdentity(store)
        if let fault = options.fault { throw ShaleError(fault, in: store.directory, named: name) }
        keys = try KeySpace(name: name, schema: options.schema)
        memory = MemoryTier(maxEntries: options.memoryEntries, maxCost: options.memoryBytes)
        coder = options.coder
    }

    deinit {
        if let observed = evictions.withLock({ $0 }) { store.stopObserving(observed) }
        if let observed = waits.withLock({ $0 }) { store.stopObservingWaits(observed) }
        changeBroadcast.finish()
        eventBroadcast.finish()
    }

    // MARK: Reading

    // Inlinable down to the store: code that is specialised for the client's types takes a third of the instructions.

    /// The fresh value, or nil. Setting inserts; setting nil removes.
    ///
    /// A read that fails returns nil. A write that fails changes nothing: it counts in ``CacheStatistics/failedWrites``
    /// and sends ``Event/writeFailed(_:_:)``; the first one of each object also goes to standard error. Call
    /// `value(for:)`, `insert` and `removeValue(for:)` to handle errors.
    ///
    /// `cache[key]? += 1` is a read and an insertion: tasks that do this at once lose changes, which
    /// ``update(_:for:)`` does not.
    public subscript(key: Key) -> Value? {
        @inlinable get { try? value(for: key) }
        set {
            do throws(ShaleError) {
                if let newValue { try insert(newValue, for: key) } else { try removeValue(for: key) }
            } catch { reportFailedWrite(error, for: key) }
        }
    }

    /// The fresh value, or the default if there is none or the read fails. Setting inserts, like the other subscript.
    public subscript(key: Key, default defaultValue: @autoclosure () -> Value) -> Value {
        get { self[key] ?? defaultValue() }
        set { self[key] = newValue }
    }

    /// The fresh value, or nil.
    @inlinable
    public func value(for key: Key) throws(ShaleError) -> Value? {
        if eventBroadcast.hasListeners { return try entry(for: key)?.value }
        let memoryKey = try memoryKey(for: key)
        guard let held = memory.item(for: memoryKey) else {
            return counted(
                try readStored(
                    key, try stored(key, at: memoryKey), at: memoryKey, includingStale: false, peeking: false))
        }
        if try isCurrent(held) { return held.value }
        guard let known = try store.readVersion(of: held.storedKey) else {
            memory.remove(memoryKey)
            return counted(nil)
        }
        if known.version == held.version {
            memory.mark(held, for: memoryKey, known.bookmark)
            counters.count(.memory)
            return held.value
        }
        // It was replaced. `readVersion` has already counted the use.
        return counted(try readStored(key, held.storedKey, at: memoryKey, includingStale: false, peeking: true))
    }

    /// Whether the item's entry is certainly fresh and unchanged since its bookmark; then this read is counted.
    @inlinable
    func isCurrent(_ held: MemoryTier<Key, Value>.Item) throws(ShaleError) -> Bool {
        guard try store.hits(held.bookmark) else { return false }
        counters.count(.memory)
        return true
    }

    @inlinable
    func counted(_ entry: Entry?) -> Value? {
        counters.count(entry?.source)
        return entry?.value
    }

    /// The value with its metadata, or nil. A stored value that does not decode reads as nil.
    @inlinable
    public func entry(for key: Key, includingStale: Bool = false) throws(ShaleError) -> Entry? {
        try self.entry(for: key, includingStale: includingStale, isCounted: false)
    }

    /// - Parameter isCounted: The store has counted this read.
    @inlinable
    func entry(for key: Key, includingStale: Bool, isCounted: Bool) throws(ShaleError) -> Entry? {
        let entry = try read(key, includingStale: includingStale, peeking: isCounted, reporting: true)
        counters.count(entry?.source)
        if eventBroadcast.hasListeners { emitRead(entry, for: key, includingStale: includingStale) }
        return entry
    }

    /// This object's counters, from its creation on.
    public var statistics: CacheStatistics { counters.statistics }

    /// With `peeking`, as in the steps of a load, the read changes neither the order of use nor a counter of the store;
    /// with `reporting`, an undecodable value counts.
    @inlinable
    func read(_ key: Key, includingStale: Bool, peeking: Bool, reporting: Bool) throws(ShaleError) -> Entry? {
        let memoryKey = try memoryKey(for: key)
        guard let held = memory.item(for: memoryKey) else {
            return try readStored(
                key, try stored(key, at: memoryKey), at: memoryKey, includingStale: includingStale, peeking: peeking,
                reporting: reporting)
        }
        guard let known = try store.entry(for: held.storedKey, includingStale: includingStale, peeking: peeking) else {
            memory.remove(memoryKey)
            return nil
        }
        if known.version == held.version { return Entry(held.value, known, source: .memory) }
        // It was replaced. `entry(for:)` has already counted the use.
        return try readStored(
            key, held.storedKey, at: memoryKey, includingStale: includingStale, peeking: true, reporting: reporting)
    }

    @inlinable
    func readStored(
        _ key: Key, _ storedKey: [UInt8], at memoryKey: MemoryKey<Key>, includingStale: Bool, peeking: Bool,
        reporting: Bool = true
    ) throws(ShaleError) -> Entry? {
        let read = try store.withValue(for: storedKey, includingStale: includingStale, peeking: peeking) {
            known, bytes in
            (known: known, value: Meta.isMissing(known.meta) ? nil : Result { try coder.decode(Data(bytes)) })
        }
        guard let read, let value = read.value else { return nil }
        switch value {
        case .success(let value):
            if memory.keepsAny {
                keep(
                    MemoryTier.Item(
                        value: value, version: read.known.version, storedKey: storedKey, cost: read.known.size,
                        bookmark: read.known.bookmark), at: memoryKey)
            }
            return Entry(value, read.known, source: .store)
        case .failure:
            foundUndecodable(key, storedKey, version: read.known.version, reporting: reporting)
            return nil
        }
    }

    @usableFromInline
    func foundUndecodable(_ key: Key, _ storedKey: [UInt8], version: UInt64, reporting: Bool) {
        // A failed removal, as in a read-only store, does not matter: the read is a miss.
        let isRemoved =
            options.removesUndecodable && (try? store.removeValue(for: storedKey, ifVersion: version)) == true
        guard reporting || isRemoved else { return }
        counters.undecodable.add(1, ordering: .relaxed)
        eventBroadcast.send(.undecodable(key))
        if isRemoved { changeBroadcast.send(.removed(key)) }
    }

    // MARK: Writing

    /// Stores a value and returns its version. Once the call has returned, the value survives `kill -9`.
    ///
    /// - Parameters:
    ///   - value: At most a quarter of the store's capacity, and 1 GiB, encoded.
    ///   - key: At most about 65,000 bytes, encoded.
    ///   - maxAge: Nil: the cache's default.
    ///   - tags: At most seven, none empty, see ``removeAll(tagged:)``.
    ///   - etag: A validator, stored with the value, for the next request to the value's origin.
    ///   - pinned: The entry is never evicted; it still expires and can be removed.
    @discardableResult
    @inlinable
    public func insert(
        _ value: Value, for key: Key, maxAge: Age? = nil, tags: [String] = [], etag: String? = nil,
        pinned: Bool = false
    ) throws(ShaleError) -> UInt64 {
        try insert(value, for: key, maxAge: maxAge, pinned: pinned, Meta(etag: etag, tags: tags))
    }

    /// Replaces the version that the caller has read, fresh or stale, and returns the new version. Returns nil and
    /// changes nothing if another caller has replaced or removed that version. Otherwise like
    /// ``insert(_:for:maxAge:tags:etag:pinned:)``.
    public func insert(
        _ value: Value, for key: Key, ifVersion version: UInt64, maxAge: Age? = nil, tags: [String] = [],
        etag: String? = nil, pinned: Bool = false
    ) throws(ShaleError) -> UInt64? {
        try set(value, for: key, maxAge: maxAge, pinned: pinned, Meta(etag: etag, tags: tags), .ifVersion(version))
    }

    /// Returns nil and changes nothing if the condition does not hold.
    package func insert(
        _ value: Value, for key: Key, maxAge: Age? = nil, tags: [String] = [], pinned: Bool = false,
        if condition: Condition
    ) throws(ShaleError) -> UInt64? {
        try set(value, for: key, maxAge: maxAge, pinned: pinned, Meta(tags: tags), condition)
    }

    @inlinable
    func insert(_ value: Value, for key: Key, maxAge: Age?, pinned: Bool, _ meta: Meta) throws(ShaleError)
        -> UInt64
    {
        // An unconditional set always returns a version.
        try set(value, for: key, maxAge: maxAge, pinned: pinned, meta, .always) ?? 0
    }

    /// A nil value stores that the key is known to be missing.
    @inlinable
    func set(
        _ value: Value?, for key: Key, maxAge: Age?, pinned: Bool, _ meta: Meta, _ condition: Condition
    ) throws(ShaleError) -> UInt64? {
        let storedKey = try stored(key)
        let bytes = try encode(value, for: key)
        return try set(value, bytes, for: key, storedKey, maxAge: maxAge, pinned: pinned, meta, condition)
    }

    @usableFromInline
    func encode(_ value: Value?, for key: Key) throws(ShaleError) -> Data {
        do { return try value.map(coder.encode) ?? Data() } catch {
            throw failure("the value for \(key) cannot be encoded: \(error)")
        }
    }

    /// `bytes` is the encoded value.
    @inlinable
    func set(
        _ value: Value?, _ bytes: Data, for key: Key, _ storedKey: [UInt8], maxAge: Age?, pinned: Bool, _ meta: Meta,
        _ condition: Condition
    ) throws(ShaleError) -> UInt64? {
        let (version, item) = try write(value, bytes, storedKey, maxAge: maxAge, pinned: pinned, meta, condition)
        guard let version else { return nil }
        let memoryKey = keys.memoryKey(for: key, storedAs: storedKey)
        guard let item else {
            memory.remove(memoryKey)
            return version
        }
        keep(item, at: memoryKey)
        changeBroadcast.send(.inserted(key, version: version))
        return version
    }

    /// Writes to the store and returns the item for memory. The version is nil, and nothing has changed, if the
    /// condition does not hold.
    @usableFromInline
    func write(
        _ value: Value?, _ bytes: Data, _ storedKey: [UInt8], maxAge: Age?, pinned: Bool, _ meta: Meta,
        _ condition: Condition
    ) throws(ShaleError) -> (version: UInt64?, item: MemoryTier<Key, Value>.Item?) {
        // The store's own limit counts the tag of the whole cache.
        if meta.tags.count > 7 { throw failure("\(meta.tags.count) tags; an entry has at most seven") }
        var tags = [keys.tag]
        for tag in meta.tags { tags.append(try stored(tag: tag)) }
        let version = try store.insert(
            bytes, for: storedKey, maxAge: try valid(maxAge), staleFor: options.staleFor, tags: tags, meta: meta.bytes,
            condition: condition, pinned: pinned)
        guard let version, let value else { return (version, nil) }
        let kept = memory.mayKeep(cost: bytes.count) ? compact(value) : value
        return (
            version, MemoryTier.Item(value: kept, version: version, storedKey: storedKey, cost: bytes.count)
        )
    }

    /// Gives a fresh or stale entry a new max age, counted from now; nil: the cache's default. Returns false if there
    /// is no entry.
    @discardableResult
    public func touch(_ key: Key, maxAge: Age? = nil) throws(ShaleError) -> Bool {
        try store.touch(try stored(key), maxAge: try valid(maxAge))
    }

    /// Makes an entry stale: calls that ask for stale data return it until it is loaded or inserted again. A load of
    /// the key that is under way stores nothing. Returns whether there was a fresh or stale entry.
    ///
    /// The entry is kept for `staleFor` from now on, but no longer than it would have been.
    @discardableResult
    public func expire(_ key: Key) throws(ShaleError) -> Bool { try store.expire(try stored(key)) }

    /// Makes every entry of this cache stale, in constant time. Other caches in the store are not affected.
    public func expireAll() throws(ShaleError) { try store.expireAll(tagged: keys.tag) }

    /// Makes every entry of this cache with the tag stale, in constant time.
    public func expireAll(tagged tag: String) throws(ShaleError) { try store.expireAll(tagged: try stored(tag: tag)) }

    /// Removes an entry and returns whether there was one. With a version, an entry of another version stays; no entry
    /// has version 0.
    @discardableResult
    public func removeValue(for key: Key, ifVersion version: UInt64? = nil) throws(ShaleError) -> Bool {
        let storedKey = try stored(key)
        let wasThere = try store.removeValue(for: storedKey, ifVersion: version)
        if !wasThere, version != nil { return false }
        memory.remove(keys.memoryKey(for: key, storedAs: storedKey))
        if wasThere { changeBroadcast.send(.removed(key)) }
        return wasThere
    }

    /// Removes every entry of this cache, in constant time. Other caches in the store are not affected.
    public func removeAll() throws(ShaleError) {
        try store.removeAll(tagged: keys.tag)
        memory.removeAll()
        changeBroadcast.send(.removedAll(tag: nil))
    }

    /// Removes every entry of this cache with the tag, in constant time.
    public func removeAll(tagged tag: String) throws(ShaleError) {
        try store.removeAll(tagged: try stored(tag: tag))
        changeBroadcast.send(.removedAll(tag: tag))
    }

    // MARK: Changes

    /// A stream of this object's insertions and removals, of the evictions from its store, and of those from its
    /// memory.
    ///
    /// Each call returns a new stream, which ends when the cache object is freed. A stream buffers the newest 1,024
    /// unread changes. Streams do not show the changes of other processes, nor expirations.
    public var changes: AsyncStream<Change> {
        evictions.withLock { observed in
            guard observed == nil else { return }
            // The observer does not capture the cache: the store must not release its last reference.
            let keys = keys, changeBroadcast = changeBroadcast
            observed = store.observeEvictions { key in
                if changeBroadcast.hasListeners, let key = key.withUnsafeBytes({ keys.decode($0) }) {
                    changeBroadcast.send(.evicted(key))
                }
            }
        }
        return changeBroadcast.stream()
    }

    /// A change to the cache that ``changes`` reports.
    public enum Change: Sendable {
        case inserted(Key, version: UInt64)
        case removed(Key)
        /// Every entry, or every entry with the tag.
        case removedAll(tag: String?)
        /// The store evicted the entry to make room for another, of any cache in it. With several inserting threads it
        /// may precede the entry's `inserted`.
        case evicted(Key)
        /// The decoded value was evicted from memory. The store may still hold the entry.
        case evictedFromMemory(Key)
    }

    // MARK: Shared steps

    /// Copies a `Data` slice, which would keep its whole buffer alive.
    private func compact(_ value: Value) -> Value {
        guard isData, let data = value as? Data else { return value }
        return Data(data) as? Value ?? value
    }

    @inlinable
    func keep(_ item: MemoryTier<Key, Value>.Item, at memoryKey: MemoryKey<Key>) {
        let evicted = memory.insert(item, for: memoryKey)
        if changeBroadcast.hasListeners { emitEvicted(evicted) }
    }

    @usableFromInline
    func emitEvicted(_ items: [MemoryTier<Key, Value>.Item]) {
        for item in items {
            if let key = item.storedKey.withUnsafeBytes({ keys.decode($0) }) {
                changeBroadcast.send(.evictedFromMemory(key))
            }
        }
    }

    /// The key in memory. A key that is compared by `==` need not be encoded for a hit.
    @inlinable
    func memoryKey(for key: Key) throws(ShaleError) -> MemoryKey<Key> {
        keys.encoding.isCompared ? .compared(key) : .stored(try stored(key))
    }

    @inlinable
    func stored(_ key: Key, at memoryKey: MemoryKey<Key>) throws(ShaleError) -> [UInt8] {
        if case .stored(let bytes) = memoryKey { bytes } else { try stored(key) }
    }

    @inlinable
    func stored(_ key: Key) throws(ShaleError) -> [UInt8] {
        do { return try keys.encode(key) } catch { throw failure("the key \(key) cannot be encoded: \(error)") }
    }

    /// Rejects the empty tag: it would be the tag that every entry of the cache carries.
    private func stored(tag: String) throws(ShaleError) -> String {
        if tag.isEmpty { throw failure("a tag is empty; it must have 1 to 65,535 bytes") }
        return keys.tag + tag.canonical
    }

    /// Nil: the cache's default.
    func valid(_ maxAge: Age?) throws(ShaleError) -> Age {
        let maxAge = maxAge ?? options.maxAge
        if maxAge.isNegative { throw failure("maxAge is \(maxAge); it must not be negative") }
        return maxAge
    }

    @usableFromInline
    func failure(_ cause: String) -> ShaleError {
        ShaleError(cause, in: store.directory, named: name)
    }
}

extension ShaleError {
    /// An error of the caller, with the directory and the cache's name.
    init(_ fault: String, in directory: String?, named name: String = "") {
        self.init(
            code: .invalid,
            message: "\(directory ?? "memory")\(name.isEmpty ? "" : ", cache \"\(name)\""): \(fault)")
    }
}

extension ShaleError {
    /// The same call would always fail.
    var isInvalidArgument: Bool { code == .invalid }
}

extension Date {
    /// Rounded to the nearest, so that whole milliseconds survive the conversion to a `Date`, which is a binary
    /// floating-point number of seconds. Dates out of range are clamped.
    package var millisecondsSince1970: Int64 {
        Int64(exactly: (timeIntervalSince1970 * 1000).rounded()) ?? (timeIntervalSince1970 > 0 ? .max : 0)
    }
    init(millisecondsSince1970 milliseconds: Int64) { self.init(timeIntervalSince1970: Double(milliseconds) / 1000) }
}
