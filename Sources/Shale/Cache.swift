#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif
import ShaleCore
import Synchronization
// What this module's users write of the one below.
@_exported import enum ShaleCore.Compression
@_exported import enum ShaleCore.Eviction
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
/// An entry is fresh until its age is over, then stale: it is served to those alone who ask for stale data,
/// and leaves like any other, the least recently used first, unless the store has another `Eviction`. Every entry may leave to
/// make room: keep the truth elsewhere.
///
/// Keys are the same if they are equal, see ``CacheKey`` for those that have a `==` of their own.
///
/// Values are kept in a `Store`, encoded. Decoded values that were used lately are kept in memory in front of
/// it, and each read from memory asks the store for the entry's version and age first: what another process
/// has replaced, removed or invalidated is never served, and what it has expired is stale. Such a read counts as a use in the store too.
///
/// Every method may be called from any thread, and from several processes at once; in the child of a `fork`, open
/// another cache, as this one's locks may be held by threads that the child does not have. Errors are `ShaleError`;
/// loading functions throw what the loader throws as well.
public final class Cache<Key: Hashable & Codable & Sendable, Value: Codable & Sendable>: Sendable {
    /// Where the entries are. It may hold other caches, and entries that belong to none.
    public let store: Store
    /// What tells this cache's entries from others' in the store; empty for a cache that was opened by its directory.
    public let name: String

    let options: Options
    @usableFromInline let coder: Coder<Value>
    @usableFromInline let keys: KeySpace<Key>
    @usableFromInline let memory: MemoryTier<Key, Value>
    let place: StorePlace
    let loader = Loader<[UInt8], Answer>()
    let pauses = LoadPauses<[UInt8]>()
    @usableFromInline let counters = Counters()
    @usableFromInline let broadcast = Broadcast<Change>()
    @usableFromInline let told = Broadcast<Event>()
    private let evictions = Mutex<Int?>(nil)
    let waits = Mutex<Int?>(nil)
    private let isData = Value.self == Data.self

    /// Opens the cache in a directory, creating it and missing parents.
    ///
    /// What is left out changes nothing in a store that is there already. Options that are out of range are an error of the code
    /// `invalid`, which says what the range is.
    ///
    /// - Parameters:
    ///   - directory: On a local file system. For a cache without one there is ``inMemory(options:)``.
    ///   - options: See ``Options``, for the further parameters of the other initializers too.
    public convenience init(at directory: String, options: Options) throws(ShaleError) {
        try self.init(opening: directory, options)
    }

    /// The same, in a directory that a file URL names.
    public convenience init(at directory: URL, options: Options) throws(ShaleError) {
        if !directory.isFileURL { throw ShaleError(code: .invalid, message: "\(directory) names no file") }
        try self.init(opening: directory.path, options)
    }

    /// The same, with the options one by one.
    public convenience init(
        at directory: String, maxAge: Age = .hours(12), staleFor: Age = .forever, maxEntries: Int? = nil,
        capacity: Int? = nil,
        eviction: Eviction? = nil, memoryEntries: Int = 256, memoryBytes: Int = 32 << 20, refreshAhead: Double = 0,
        leaseTime: Duration = .seconds(10), lockTimeout: Duration? = nil, coder: Coder<Value> = .standard,
        now: (@Sendable () -> Date)? = nil, limitClock: any Clock<Duration> = ContinuousClock()
    ) throws(ShaleError) {
        try self.init(
            at: directory,
            options: Options(
                maxAge: maxAge, staleFor: staleFor, maxEntries: maxEntries, capacity: capacity, eviction: eviction,
                memoryEntries: memoryEntries, memoryBytes: memoryBytes, refreshAhead: refreshAhead,
                leaseTime: leaseTime, lockTimeout: lockTimeout, coder: coder, now: now, limitClock: limitClock))
    }

    /// The same, in a directory that a file URL names.
    public convenience init(
        at directory: URL, maxAge: Age = .hours(12), staleFor: Age = .forever, maxEntries: Int? = nil,
        capacity: Int? = nil,
        eviction: Eviction? = nil, memoryEntries: Int = 256, memoryBytes: Int = 32 << 20, refreshAhead: Double = 0,
        leaseTime: Duration = .seconds(10), lockTimeout: Duration? = nil, coder: Coder<Value> = .standard,
        now: (@Sendable () -> Date)? = nil, limitClock: any Clock<Duration> = ContinuousClock()
    ) throws(ShaleError) {
        try self.init(
            at: directory,
            options: Options(
                maxAge: maxAge, staleFor: staleFor, maxEntries: maxEntries, capacity: capacity, eviction: eviction,
                memoryEntries: memoryEntries, memoryBytes: memoryBytes, refreshAhead: refreshAhead,
                leaseTime: leaseTime, lockTimeout: lockTimeout, coder: coder, now: now, limitClock: limitClock))
    }

    /// A new cache in memory, which goes with its last reference. The rest is as for a cache in a directory.
    public static func inMemory(options: Options) throws(ShaleError) -> Cache { try Cache(opening: nil, options) }

    /// The same, with the options one by one.
    public static func inMemory(
        maxAge: Age = .hours(12), staleFor: Age = .forever, maxEntries: Int? = nil, capacity: Int? = nil,
        eviction: Eviction? = nil, memoryEntries: Int = 256, memoryBytes: Int = 32 << 20, refreshAhead: Double = 0,
        leaseTime: Duration = .seconds(10), lockTimeout: Duration? = nil, coder: Coder<Value> = .standard,
        now: (@Sendable () -> Date)? = nil, limitClock: any Clock<Duration> = ContinuousClock()
    ) throws(ShaleError) -> Cache {
        try inMemory(
            options: Options(
                maxAge: maxAge, staleFor: staleFor, maxEntries: maxEntries, capacity: capacity, eviction: eviction,
                memoryEntries: memoryEntries, memoryBytes: memoryBytes, refreshAhead: refreshAhead,
                leaseTime: leaseTime, lockTimeout: lockTimeout, coder: coder, now: now, limitClock: limitClock))
    }

    /// Opens one of many caches in a store, each under a name of its own. The store's limits and clock are shared by them all:
    /// options that are the store's, ``Options/maxEntries`` for one, are an error.
    ///
    /// A name has at most 255 bytes of UTF-8, and is for one type of key and one type of value. The rest is as for a
    /// cache in a directory.
    public convenience init(in store: Store, named name: String, options: Options) throws(ShaleError) {
        if options.isOfStore {
            throw ShaleError(
                "maxEntries, capacity, eviction, lockTimeout and now are the store's: give them to it",
                in: store.directory,
                named: name)
        }
        try self.init(in: store, name, options)
    }

    /// The same, with the options one by one.
    public convenience init(
        in store: Store, named name: String, maxAge: Age = .hours(12), staleFor: Age = .forever,
        memoryEntries: Int = 256, memoryBytes: Int = 32 << 20, refreshAhead: Double = 0,
        leaseTime: Duration = .seconds(10), coder: Coder<Value> = .standard,
        limitClock: any Clock<Duration> = ContinuousClock()
    ) throws(ShaleError) {
        try self.init(
            in: store, named: name,
            options: Options(
                maxAge: maxAge, staleFor: staleFor, memoryEntries: memoryEntries, memoryBytes: memoryBytes,
                refreshAhead: refreshAhead, leaseTime: leaseTime, coder: coder, limitClock: limitClock))
    }

    /// Nil: in memory.
    convenience init(opening directory: String?, _ options: Options) throws(ShaleError) {
        // Before anything is made or changed.
        if let fault = options.fault { throw ShaleError(fault, in: directory) }
        var ofStore = Store.Options(capacity: options.capacity, maxEntries: options.maxEntries)
        ofStore.eviction = options.eviction
        ofStore.lockTimeout = options.lockTimeout
        if let now = options.now { ofStore.now = { now().millisecondsSince1970 } }
        try self.init(in: try Store(at: directory, options: ofStore), "", options)
    }

    private init(in store: Store, _ name: String, _ options: Options) throws(ShaleError) {
        self.store = store
        self.name = name
        self.options = options
        place = StorePlace(store)
        keys = try KeySpace(name: name)
        if let fault = options.fault { throw ShaleError(fault, in: store.directory, named: name) }
        memory = MemoryTier(maxEntries: options.memoryEntries, maxCost: options.memoryBytes)
        coder = options.coder
    }

    deinit {
        if let observed = evictions.withLock({ $0 }) { store.stopObserving(observed) }
        if let observed = waits.withLock({ $0 }) { store.stopObservingWaits(observed) }
        broadcast.finish()
        told.finish()
    }

    // MARK: Reading

    // Inlinable, down to the store: what its users' compiler specialises for their types takes a third of the instructions.

    /// The fresh value, or nil; set: inserts, or removes with nil. Errors read as nil. Those of writing are counted in
    /// ``CacheStatistics/failedWrites`` and announced as ``Event/writeFailed(_:_:)``; the first of each object is also written to standard error.
    /// Where they matter, call `value(for:)`, `insert` and `remove`.
    public subscript(key: Key) -> Value? {
        @inlinable get { try? value(for: key) }
        set {
            do throws(ShaleError) {
                if let newValue { try insert(newValue, for: key) } else { try remove(key) }
            } catch { tell(ofFailedWrite: error, for: key) }
        }
    }

    /// The fresh value, or the default where there is none, or it cannot be read; set: inserts, as the other subscript does.
    public subscript(key: Key, default defaultValue: @autoclosure () -> Value) -> Value {
        get { self[key] ?? defaultValue() }
        set { self[key] = newValue }
    }

    /// The fresh value, or nil.
    @inlinable
    public func value(for key: Key) throws(ShaleError) -> Value? {
        if told.isHeard { return try entry(for: key)?.value }
        // A hit in memory makes no entry, which would take as long as finding it.
        let place = try place(of: key)
        guard let held = memory.item(for: place) else {
            return counted(
                try readStored(key, try stored(key, at: place), at: place, includingStale: false, peeking: false))
        }
        guard let version = try store.readVersion(of: held.storedKey) else {
            memory.remove(place)
            return counted(nil)
        }
        if version == held.version {
            counters.count(.memory)
            return held.value
        }
        // It was replaced. The use has been counted by the question just asked.
        return counted(try readStored(key, held.storedKey, at: place, includingStale: false, peeking: true))
    }

    @inlinable
    func counted(_ entry: Entry?) -> Value? {
        counters.count(entry?.source)
        return entry?.value
    }

    /// The value with what is known of it, or nil. A stored value that no longer decodes is removed, and reads as nil.
    @inlinable
    public func entry(for key: Key, includingStale: Bool = false) throws(ShaleError) -> Entry? {
        let entry = try read(key, includingStale: includingStale)
        counters.count(entry?.source)
        if told.isHeard { tell(of: entry, for: key, includingStale: includingStale) }
        return entry
    }

    /// What this object has counted since it was made.
    public var statistics: CacheStatistics { counters.statistics }

    /// `peeking` leaves the order of use and the store's counters alone.
    @inlinable
    func read(_ key: Key, includingStale: Bool, peeking: Bool = false) throws(ShaleError) -> Entry? {
        let place = try place(of: key)
        guard let held = memory.item(for: place) else {
            return try readStored(
                key, try stored(key, at: place), at: place, includingStale: includingStale, peeking: peeking)
        }
        guard let known = try store.entry(for: held.storedKey, includingStale: includingStale, peeking: peeking) else {
            memory.remove(place)
            return nil
        }
        if known.version == held.version { return Entry(held.value, known, source: .memory) }
        // It was replaced. The use has been counted by the question just asked.
        return try readStored(key, held.storedKey, at: place, includingStale: includingStale, peeking: true)
    }

    @inlinable
    func readStored(
        _ key: Key, _ storedKey: [UInt8], at place: MemoryKey<Key>, includingStale: Bool, peeking: Bool
    ) throws(ShaleError) -> Entry? {
        let read = try store.withValue(for: storedKey, includingStale: includingStale, peeking: peeking) {
            known, bytes in
            (known: known, value: Meta.isMissing(known.meta) ? nil : Result { try coder.decode(Data(bytes)) })
        }
        guard let read, let value = read.value else { return nil }
        switch value {
        case .success(let value):
            keep(
                MemoryTier.Item(value: value, version: read.known.version, storedKey: storedKey, cost: read.known.size),
                at: place)
            return Entry(value, read.known, source: .store)
        case .failure:
            removeUndecodable(key, storedKey, version: read.known.version)
            return nil
        }
    }

    @usableFromInline
    func removeUndecodable(_ key: Key, _ storedKey: [UInt8], version: UInt64) {
        counters.undecodable.add(1, ordering: .relaxed)
        told.send(.undecodable(key))
        // Where it cannot be removed, in a read-only store for one, it is a miss all the same.
        if (try? store.remove(storedKey, version: version)) == true { broadcast.send(.removed(key)) }
    }

    // MARK: Writing

    /// Stores a value and returns its version. Survives `kill -9` once it has returned.
    ///
    /// - Parameters:
    ///   - value: At most a quarter of the store's capacity, and 1 GiB, encoded.
    ///   - key: At most some 65,000 bytes, encoded.
    ///   - maxAge: Nil: the cache's.
    ///   - tags: At most seven, none empty, see ``removeAll(tagged:)``.
    ///   - etag: A validator that is kept beside the value, for the next request to the value's origin.
    ///   - pinned: Never evicted to make room; ages and removals still apply.
    @discardableResult
    @inlinable
    public func insert(
        _ value: Value, for key: Key, maxAge: Age? = nil, tags: [String] = [], etag: String? = nil,
        pinned: Bool = false
    ) throws(ShaleError) -> UInt64 {
        try insert(value, for: key, maxAge: maxAge, pinned: pinned, Meta(etag: etag, tags: tags))
    }

    /// Stores a value in the place of the version that the caller has read, fresh or stale, and returns the new version. Nil, with nothing
    /// changed, where that version is no longer there: somebody else has replaced or removed it. The rest is as for
    /// ``insert(_:for:maxAge:tags:etag:pinned:)``.
    @discardableResult
    public func replace(
        _ version: UInt64, with value: Value, for key: Key, maxAge: Age? = nil, tags: [String] = [],
        etag: String? = nil,
        pinned: Bool = false
    ) throws(ShaleError) -> UInt64? {
        try set(value, for: key, maxAge: maxAge, pinned: pinned, Meta(etag: etag, tags: tags), .ifVersion(version))
    }

    /// Nil, with nothing changed, where the condition does not hold.
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
        // Without a condition, a set always gives a version.
        try set(value, for: key, maxAge: maxAge, pinned: pinned, meta, .always) ?? 0
    }

    /// No value: one that is known to be missing, as the meta says.
    @inlinable
    func set(
        _ value: Value?, for key: Key, maxAge: Age?, pinned: Bool, _ meta: Meta, _ condition: Condition
    ) throws(ShaleError) -> UInt64? {
        let storedKey = try stored(key)
        let (version, item) = try write(value, for: key, storedKey, maxAge: maxAge, pinned: pinned, meta, condition)
        guard let version else { return nil }
        let place = keys.place(of: key, storedAs: storedKey)
        guard let item else {
            memory.remove(place)
            return version
        }
        keep(item, at: place)
        broadcast.send(.inserted(key, version: version))
        return version
    }

    /// In the store; and what memory may keep of it. Its version is nil, with nothing changed, where the condition does not hold.
    @usableFromInline
    func write(
        _ value: Value?, for key: Key, _ storedKey: [UInt8], maxAge: Age?, pinned: Bool, _ meta: Meta,
        _ condition: Condition
    ) throws(ShaleError) -> (version: UInt64?, item: MemoryTier<Key, Value>.Item?) {
        let maxAge = try lifetime(maxAge), stale = options.staleFor.lifetime(from: store.now)
        let bytes: Data
        do { bytes = try value.map(coder.encode) ?? Data() } catch {
            throw failure("the value for \(key) cannot be encoded: \(error)")
        }
        var tags = [keys.tag]
        for tag in meta.tags { tags.append(try stored(tag: tag)) }
        let version = try store.set(
            bytes, for: storedKey, maxAge: maxAge, stale: stale, tags: tags, meta: meta.bytes,
            condition: condition, pinned: pinned)
        guard let version, let value else { return (version, nil) }
        let kept = memory.mayKeep(cost: bytes.count) ? compact(value) : value
        return (
            version, MemoryTier.Item(value: kept, version: version, storedKey: storedKey, cost: bytes.count)
        )
    }

    /// Gives an entry, fresh or stale, a new age from now; nil: the cache's. False where there is none.
    @discardableResult
    public func touch(_ key: Key, maxAge: Age? = nil) throws(ShaleError) -> Bool {
        try store.touch(try stored(key), maxAge: try lifetime(maxAge))
    }

    /// Makes an entry stale, as if its age were over: it serves those who ask for stale data until it is loaded or inserted
    /// anew. A load of it that is under way stores nothing. Whether there was one.
    ///
    /// It is kept as long as the cache keeps what is stale (`staleFor`), from now on, but no longer than it would have been.
    @discardableResult
    public func expire(_ key: Key) throws(ShaleError) -> Bool { try store.expire(try stored(key)) }

    /// Makes every entry of this cache stale, and none of another in the same store, at a cost that does not depend on how many there are.
    public func expireAll() throws(ShaleError) { try store.expire(tag: keys.tag) }

    /// Makes every entry of this cache stale that was inserted with the tag, at a cost that does not depend on how many there are.
    public func expireAll(tagged tag: String) throws(ShaleError) { try store.expire(tag: try stored(tag: tag)) }

    /// Whether there was an entry to remove. With a version, an entry that has another one stays; none has 0.
    @discardableResult
    public func remove(_ key: Key, version: UInt64? = nil) throws(ShaleError) -> Bool {
        let storedKey = try stored(key)
        let wasThere = try store.remove(storedKey, version: version)
        if !wasThere, version != nil { return false }
        memory.remove(keys.place(of: key, storedAs: storedKey))
        if wasThere { broadcast.send(.removed(key)) }
        return wasThere
    }

    /// Removes every entry of this cache, and none of another in the same store, at a cost that does not depend on how many there are.
    public func removeAll() throws(ShaleError) {
        try store.invalidate(tag: keys.tag)
        memory.removeAll()
        broadcast.send(.removedAll(tag: nil))
    }

    /// Removes every entry of this cache that was inserted with the tag, at a cost that does not depend on how many there are.
    public func removeAll(tagged tag: String) throws(ShaleError) {
        try store.invalidate(tag: try stored(tag: tag))
        broadcast.send(.removedAll(tag: tag))
    }

    // MARK: Changes

    /// What this object inserts and removes from now on, what its store evicts, and what leaves its memory.
    ///
    /// Each call gives a sequence of its own, which ends with the cache object: with its last reference. One that is not read keeps the newest 1,024 changes.
    /// What other processes insert, remove and evict is not announced, nor what expires.
    public var changes: AsyncStream<Change> {
        evictions.withLock { observed in
            guard observed == nil else { return }
            // Not the cache: its last reference must not go where the store calls.
            let keys = keys, broadcast = broadcast
            observed = store.observeEvictions { key in
                if broadcast.isHeard, let key = key.withUnsafeBytes({ keys.decode($0) }) {
                    broadcast.send(.evicted(key))
                }
            }
        }
        return broadcast.stream()
    }

    /// A change that this object made.
    public enum Change: Sendable {
        case inserted(Key, version: UInt64)
        case removed(Key)
        /// Every entry, or every one with the tag.
        case removedAll(tag: String?)
        /// Left the store to make room for others, of any cache in it. Where several threads insert, it may come before the
        /// announcement that the entry was inserted.
        case evicted(Key)
        /// Left memory to make room for others. The store may still hold it.
        case evictedFromMemory(Key)
    }

    // MARK: Shared steps

    /// A slice of `Data` would keep all of it alive.
    private func compact(_ value: Value) -> Value {
        guard isData, let data = value as? Data else { return value }
        return Data(data) as? Value ?? value
    }

    @inlinable
    func keep(_ item: MemoryTier<Key, Value>.Item, at place: MemoryKey<Key>) {
        let evicted = memory.insert(item, for: place)
        if broadcast.isHeard { tell(ofEvicted: evicted) }
    }

    @usableFromInline
    func tell(ofEvicted items: [MemoryTier<Key, Value>.Item]) {
        for item in items {
            if let key = item.storedKey.withUnsafeBytes({ keys.decode($0) }) { broadcast.send(.evictedFromMemory(key)) }
        }
    }

    /// Where memory keeps it. A key that is compared as it is need not be encoded for a hit.
    @inlinable
    func place(of key: Key) throws(ShaleError) -> MemoryKey<Key> {
        keys.encoding.isCompared ? .compared(key) : .stored(try stored(key))
    }

    @inlinable
    func stored(_ key: Key, at place: MemoryKey<Key>) throws(ShaleError) -> [UInt8] {
        if case .stored(let bytes) = place { bytes } else { try stored(key) }
    }

    @inlinable
    func stored(_ key: Key) throws(ShaleError) -> [UInt8] {
        do { return try keys.encode(key) } catch { throw failure("the key \(key) cannot be encoded: \(error)") }
    }

    /// An empty tag would be the one that every entry of the cache carries.
    private func stored(tag: String) throws(ShaleError) -> String {
        if tag.isEmpty { throw failure("a tag is empty; it has 1 to 65,535 bytes") }
        return keys.tag + tag.canonical
    }

    /// From now on; nil: the cache's.
    func lifetime(_ maxAge: Age?) throws(ShaleError) -> Store.Lifetime {
        let maxAge = maxAge ?? options.maxAge
        if maxAge.isNegative { throw failure("maxAge is \(maxAge); it is not negative") }
        return maxAge.lifetime(from: store.now)
    }

    @usableFromInline
    func failure(_ cause: String) -> ShaleError {
        ShaleError(cause, in: store.directory, named: name)
    }
}

extension ShaleError {
    /// Of the caller. It names the place.
    init(_ fault: String, in directory: String?, named name: String = "") {
        self.init(
            code: .invalid,
            message: "\(directory ?? "memory")\(name.isEmpty ? "" : ", cache \"\(name)\""): \(fault)")
    }
}

extension ShaleError {
    /// The same call would fail always, and everywhere.
    var isCallers: Bool { code == .invalid }
}

extension Date {
    /// The nearest, so that whole milliseconds come back from a `Date`, which counts in binary fractions of a second.
    /// What no clock shows is the first moment, or the last.
    package var millisecondsSince1970: Int64 {
        Int64(exactly: (timeIntervalSince1970 * 1000).rounded()) ?? (timeIntervalSince1970 > 0 ? .max : 0)
    }
    init(millisecondsSince1970 milliseconds: Int64) { self.init(timeIntervalSince1970: Double(milliseconds) / 1000) }
}
