import CShale

/// The C interface with Swift's types, for tests. Closes at the end unless it
/// has been closed. As thread-safe as the handle: everything but `close`.
public final class TestCache: @unchecked Sendable {
    public private(set) var handle: OpaquePointer?
    /// The handle points to its clock.
    private let clock: TestClock?

    /// nil opens a cache in memory.
    public init(_ directory: String?, _ options: Options = Options()) throws {
        clock = options.clock
        var options = options.forC
        let status = Status(shale_open(directory, &options, &handle))
        guard status == .ok else {
            handle = nil
            throw Failure(status)
        }
    }

    deinit { _ = close() }

    @discardableResult
    public func close() -> Status {
        guard let handle else { return .ok }
        self.handle = nil
        return withExtendedLifetime(clock) { Status(shale_close(handle)) }
    }

    // MARK: One key

    @discardableResult
    public func set(_ key: some Bytes, _ value: some Bytes, _ options: SetOptions? = nil) -> Status {
        value.bytes.withUnsafeBytes { set(key.bytes, raw: $0, options) }
    }

    @discardableResult
    public func set(_ key: [UInt8], raw value: UnsafeRawBufferPointer, _ options: SetOptions? = nil) -> Status {
        key.withUnsafeBytes { key in
            guard let options else {
                return Status(shale_set(handle, key.baseAddress, key.count, value.baseAddress, value.count, nil))
            }
            return options.withC {
                Status(shale_set(handle, key.baseAddress, key.count, value.baseAddress, value.count, $0))
            }
        }
    }

    /// Sets and gives the version that the set gave.
    public func store(_ key: some Bytes, _ value: some Bytes, _ options: SetOptions = SetOptions()) -> (
        status: Status, version: UInt64
    ) {
        var version: UInt64 = 0
        let status = key.bytes.withUnsafeBytes { key in
            value.bytes.withUnsafeBytes { value in
                options.withC(newVersion: &version) {
                    Status(shale_set(handle, key.baseAddress, key.count, value.baseAddress, value.count, $0))
                }
            }
        }
        return (status, version)
    }

    public func get(_ key: some Bytes, _ flags: UInt32 = 0) -> Lookup {
        let buffer = ValueBuffer()
        let status = get(key.bytes, flags, into: buffer)
        return Lookup(status, buffer.raw, info: flags & SHALE_GET_INFO != 0)
    }

    public func get(_ key: [UInt8], _ flags: UInt32 = 0, into buffer: ValueBuffer) -> Status {
        key.withUnsafeBytes { Status(shale_get(handle, $0.baseAddress, $0.count, flags, &buffer.raw)) }
    }

    /// The fresh value as text, or nil.
    public func text(_ key: some Bytes) -> String? { get(key).text }

    /// Reads without leaving a trace, stale entries too.
    public func peek(_ key: some Bytes) -> Lookup { get(key, SHALE_GET_PEEK | SHALE_GET_STALE) }

    /// Whether there is an entry, fresh or stale; leaves no trace.
    public func holds(_ key: some Bytes) -> Bool {
        get(key, SHALE_GET_PEEK | SHALE_GET_STALE | SHALE_GET_INFO).status != .miss
    }

    @discardableResult
    public func remove(_ key: some Bytes, version: UInt64 = 0) -> Status {
        key.bytes.withUnsafeBytes { Status(shale_remove(handle, $0.baseAddress, $0.count, version)) }
    }

    @discardableResult
    public func touch(_ key: some Bytes, _ maxAge: Int64 = 0) -> Status {
        key.bytes.withUnsafeBytes { Status(shale_touch(handle, $0.baseAddress, $0.count, maxAge)) }
    }

    public func increment(_ key: some Bytes, by delta: Int64, from initial: Int64 = 0) -> (
        status: Status, result: Int64
    ) {
        var result: Int64 = 0
        let status = key.bytes.withUnsafeBytes {
            Status(shale_increment(handle, $0.baseAddress, $0.count, delta, initial, &result))
        }
        return (status, result)
    }

    // MARK: Many keys

    public func getMany(_ keys: [[UInt8]], _ flags: UInt32 = 0) -> (status: Status, lookups: [Lookup]) {
        var values = keys.map { _ in ValueBuffer().raw }
        var statuses = keys.map { _ in shale_status(0) }
        let status = withByteViews(keys) {
            Status(shale_get_many(handle, $0.count, $0.baseAddress, flags, &values, &statuses))
        }
        let lookups = zip(statuses, values).map { Lookup(Status($0), $1, info: flags & SHALE_GET_INFO != 0) }
        for position in values.indices { shale_value_free(&values[position]) }
        return (status, lookups)
    }

    @discardableResult
    public func setMany(_ keys: [[UInt8]], _ values: [some Bytes], _ options: SetOptions? = nil) -> (
        status: Status, statuses: [Status]
    ) {
        precondition(keys.count == values.count)
        var statuses = keys.map { _ in shale_status(0) }
        let status = withByteViews(keys) { keys in
            withByteViews(values.map(\.bytes)) { values in
                guard let options else {
                    return Status(
                        shale_set_many(handle, keys.count, keys.baseAddress, values.baseAddress, nil, &statuses))
                }
                return options.withC {
                    Status(shale_set_many(handle, keys.count, keys.baseAddress, values.baseAddress, $0, &statuses))
                }
            }
        }
        return (status, statuses.map { Status($0) })
    }

    @discardableResult
    public func removeMany(_ keys: [[UInt8]]) -> (status: Status, statuses: [Status]) {
        var statuses = keys.map { _ in shale_status(0) }
        let status = withByteViews(keys) {
            Status(shale_remove_many(handle, $0.count, $0.baseAddress, &statuses))
        }
        return (status, statuses.map { Status($0) })
    }

    // MARK: The whole cache

    @discardableResult
    public func invalidate(_ tag: some Bytes) -> Status {
        tag.bytes.withUnsafeBytes { Status(shale_invalidate(handle, $0.baseAddress, $0.count)) }
    }

    @discardableResult
    public func clear() -> Status { Status(shale_clear(handle)) }

    @discardableResult
    public func sync() -> Status { Status(shale_sync(handle)) }

    @discardableResult
    public func evict(_ count: UInt64) -> (status: Status, evicted: UInt64) {
        var evicted: UInt64 = 0
        let status = Status(shale_evict(handle, count, &evicted))
        return (status, evicted)
    }

    @discardableResult
    public func purge() -> (status: Status, purged: UInt64) {
        var purged: UInt64 = 0
        let status = Status(shale_purge(handle, &purged))
        return (status, purged)
    }

    public func verify() throws -> shale_report {
        var report = shale_report()
        report.struct_size = UInt32(MemoryLayout<shale_report>.size)
        let status = Status(shale_verify(handle, &report))
        guard status == .ok else { throw Failure(status) }
        return report
    }

    public func stats() throws -> shale_stats {
        var stats = shale_stats()
        stats.struct_size = UInt32(MemoryLayout<shale_stats>.size)
        let status = Status(shale_get_stats(handle, &stats))
        guard status == .ok else { throw Failure(status) }
        return stats
    }

    // MARK: Cursor

    /// Walks all entries. The body may use the cache.
    public func walk(_ flags: UInt32 = 0, _ body: (_ key: [UInt8], _ entry: Lookup) throws -> Void) throws {
        var cursor: OpaquePointer?
        let opened = Status(shale_cursor_open(handle, &cursor))
        guard opened == .ok else { throw Failure(opened) }
        defer { shale_cursor_close(cursor) }
        let key = ValueBuffer()
        let value = ValueBuffer()
        // More than any test has entries: a walk that does not end becomes a failure instead of a hang.
        for _ in 0..<1_000_000 {
            let status = Status(shale_cursor_next(cursor, flags, &key.raw, &value.raw))
            switch status {
            case .end: return
            case .ok, .stale: try body(Array(key.bytes), Lookup(status, value.raw, info: flags & SHALE_GET_INFO != 0))
            default: throw Failure(status)
            }
        }
        throw Failure(.end)
    }

    /// All entries by key, fresh and stale. A key that came more than once is there once.
    public func entries(_ flags: UInt32 = SHALE_GET_STALE) throws -> [[UInt8]: Lookup] {
        var entries: [[UInt8]: Lookup] = [:]
        try walk(flags) { entries[$0] = $1 }
        return entries
    }
}
