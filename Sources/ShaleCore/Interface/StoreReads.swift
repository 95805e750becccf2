#if !hasFeature(Embedded)
extension Store {
    /// An entry without its value.
    public struct Entry: Sendable {
        /// Bytes of the value.
        public let size: Int
        /// The caller's own bytes, stored beside the value.
        public let meta: [UInt8]
        /// Milliseconds since 1970.
        public let createdAt: Int64
        /// Milliseconds since 1970; nil: never.
        public let expiresAt: Int64?
        /// Changes with every insertion.
        public let version: UInt64
        /// Bytes of the value after compression.
        public let storedSize: Int
        public let isStale: Bool
        public let isPinned: Bool
        @usableFromInline package let bookmark: Bookmark

        init(_ found: Found, meta: [UInt8]) {
            size = found.size
            self.meta = meta
            createdAt = found.created
            expiresAt = found.expires == Time48.never ? nil : found.expires
            version = found.version
            storedSize = Int(found.storedSize)
            isStale = found.isStale
            isPinned = found.isPinned
            bookmark = found.bookmark
        }
    }

    /// Returns the value's bytes, or nil if there is none or it has expired.
    @inlinable
    public func value(for key: some StoreBytes, includingStale: Bool = false) throws(ShaleError) -> [UInt8]? {
        try withValue(for: key, includingStale: includingStale) { _, bytes in Array(bytes) }
    }

    /// Lends the value's bytes to `body` without another copy. They are valid only within it. `peeking` changes neither
    /// recency nor counters.
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

    /// The part that all specialisations of callers share. Calls `body` if there is an entry.
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

    /// Lends the value's bytes as a span.
    public func withSpan<R>(for key: some StoreBytes, includingStale: Bool = false, _ body: (RawSpan) -> R)
        throws(ShaleError) -> R?
    {
        try withValue(for: key, includingStale: includingStale) { _, bytes in body(bytes.bytes) }
    }

    /// Returns all but the value. Without `peeking` it is a read like any other: it counts, and makes the entry the
    /// most recently used.
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

    /// Returns the version of an entry, by a read that counts as a use. Builds no `Entry`, which would double the cost.
    @usableFromInline
    package func readVersion(of key: [UInt8], includingStale: Bool = false) throws(ShaleError)
        -> (version: UInt64, isStale: Bool, bookmark: Bookmark)?
    {
        var buffer = buffers.take()
        defer { buffers.give(buffer) }
        var found = Found()
        let options: ReadOptions = includingStale ? [.info, .stale] : .info
        let status = try key.withStoreBytes { bytes throws(ShaleError) in
            try call { () throws(Failure) in try engine.get(bytes, options, &buffer, &found) }
        }
        return status == .ok || status == .stale ? (found.version, found.isStale, found.bookmark) : nil
    }

    /// Whether the entry of a bookmark is unchanged and fresh, by a read that counts as a use and a hit if it is.
    @usableFromInline
    package func hits(_ bookmark: Bookmark) throws(ShaleError) -> Bool {
        try call { () throws(Failure) in engine.hits(bookmark) }
    }

    /// Returns why there is no entry, without counting as a read; nil if there is one.
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

    /// Walks all entries, in no promised order, until `body` returns false. A key that exists throughout comes exactly
    /// once, even if its value is replaced meanwhile; no key comes twice; a key that is inserted, removed or evicted
    /// meanwhile may or may not come. If a writer replaces the index that a read-only store uses, an error ends the
    /// walk.
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
#endif
