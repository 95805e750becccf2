// The names are those of shale.h.
// swift-format-ignore-file: AlwaysUseLowerCamelCase

import CShale
import CShalePlatform
import ShaleCore

// Every function of shale.h. The compiler checks each against the header;
// nothing here decides anything but whether the arguments are usable.

private let noCache: StaticString = "the cache is NULL; open one first"
private let badOptions: StaticString = "struct_size of the options is too small; set it to sizeof the struct"
private let badValue: StaticString = "the value is NULL or not initialised; use SHALE_VALUE_INIT"
private let badKey: StaticString = "the key is NULL and its size is not 0"
private let badFlags: StaticString = "unknown bits in flags; pass SHALE_GET_... only"

@inline(__always) private func engine(_ cache: OpaquePointer) -> Engine { Engine(opaque: cache) }

@inline(__always)
private func run(_ body: () throws(Failure) -> Status) -> shale_status {
    do throws(Failure) { return try body().rawValue } catch { return error.status.rawValue }
}

// MARK: Names

@c @implementation
public func shale_version() -> UnsafePointer<CChar> { shim_version().unsafelyUnwrapped }

@c @implementation
public func shale_status_text(_ status: shale_status) -> UnsafePointer<CChar> {
    switch status {
    case 0: text("ok")
    case 1: text("miss")
    case 2: text("stale")
    case 3: text("conflict")
    case 4: text("end")
    case -1: text("invalid argument")
    case -2: text("too large")
    case -3: text("no space")
    case -4: text("out of memory")
    case -5: text("input/output error")
    case -6: text("not a cache")
    case -7: text("newer format")
    case -8: text("busy")
    case -9: text("unsuitable file system")
    case -10: text("permission denied")
    default: text("unknown status")
    }
}

@inline(__always)
private func text(_ string: StaticString) -> UnsafePointer<CChar> {
    UnsafeRawPointer(string.utf8Start).assumingMemoryBound(to: CChar.self)
}

@c @implementation
public func shale_last_error() -> UnsafePointer<CChar> {
    UnsafePointer(shim_error_text().unsafelyUnwrapped)
}

@c @implementation
public func shale_last_errno() -> CInt { shim_error_code() }

// MARK: Opening

@c @implementation
public func shale_open(
    _ directory: UnsafePointer<CChar>?, _ options: UnsafePointer<shale_options>?,
    _ cache: UnsafeMutablePointer<OpaquePointer?>?
) -> shale_status {
    guard let cache else { return invalid("cache is NULL; pass where the handle goes") }
    cache.pointee = nil
    var configuration = Configuration()
    if let options {
        guard isStruct(options.pointee.struct_size) else { return invalid(badOptions) }
        let o = Argument.copy(options, size: options.pointee.struct_size, over: shale_options())
        guard o.flags & ~7 == 0 else { return invalid("unknown bits in shale_options.flags; pass SHALE_OPEN_... only") }
        guard let compression = Compression(rawValue: o.compression) else {
            return invalid("compression is none of SHALE_COMPRESSION_...")
        }
        configuration.isReadOnly = o.flags & 1 != 0
        configuration.mustExist = o.flags & 2 != 0
        configuration.syncsAtClose = o.flags & 4 == 0
        configuration.capacity = o.capacity
        configuration.maxEntries = o.max_entries
        configuration.maxAge = o.max_age_ms
        configuration.stale = o.stale_ms
        configuration.shards = o.shards
        configuration.segmentSize = o.segment_size
        configuration.mode = o.mode
        configuration.compression = compression
        configuration.clock = o.now_ms
        configuration.clockContext = o.now_context
    }
    return run { () throws(Failure) in
        cache.pointee = try Engine.open(directory, configuration).opaque
        return .ok
    }
}

@c @implementation
public func shale_close(_ cache: OpaquePointer?) -> shale_status {
    guard let cache else { return 0 }
    return run { () throws(Failure) in
        try engine(cache).close()
        return .ok
    }
}

@c @implementation
public func shale_sync(_ cache: OpaquePointer?) -> shale_status {
    guard let cache else { return invalid(noCache) }
    return run { () throws(Failure) in
        try engine(cache).sync()
        return .ok
    }
}

// MARK: One key

@c @implementation
public func shale_set(
    _ cache: OpaquePointer?, _ key: UnsafeRawPointer?, _ key_size: Int, _ value: UnsafeRawPointer?, _ value_size: Int,
    _ options: UnsafePointer<shale_set_options>?
) -> shale_status {
    guard let cache else { return invalid(noCache) }
    guard let key = Argument.bytes(key, key_size) else { return invalid(badKey) }
    guard let value = Argument.bytes(value, value_size) else {
        return invalid("the value is NULL and its size is not 0")
    }
    return set(engine(cache), key, value, options)
}

@inline(__always)
private func set(_ engine: Engine, _ key: Bytes, _ value: Bytes, _ options: UnsafePointer<shale_set_options>?)
    -> shale_status
{
    var version: UInt64 = 0
    guard let options else {
        return run { () throws(Failure) in try engine.set(key, value, SetOptions(), version: &version) }
    }
    guard isStruct(options.pointee.struct_size) else { return invalid(badOptions) }
    let o = Argument.copy(options, size: options.pointee.struct_size, over: shale_set_options())
    let status = run { () throws(Failure) in
        guard let converted = try SetOptions.from(o, engine) else { return .invalid }
        return try engine.set(key, value, converted, version: &version)
    }
    if status == 0, let out = o.new_version { out.pointee = version }
    return status
}

@c @implementation
public func shale_get(
    _ cache: OpaquePointer?, _ key: UnsafeRawPointer?, _ key_size: Int, _ flags: UInt32,
    _ value: UnsafeMutablePointer<shale_value>?
) -> shale_status {
    guard let cache else { return invalid(noCache) }
    guard let key = Argument.bytes(key, key_size) else { return invalid(badKey) }
    guard let value, value.pointee.isInitialised else { return invalid(badValue) }
    return get(engine(cache), key, flags, value)
}

@inline(__always)
private func get(_ engine: Engine, _ key: Bytes, _ flags: UInt32, _ value: UnsafeMutablePointer<shale_value>)
    -> shale_status
{
    read(value, flags) { buffer, found throws(Failure) in
        try engine.get(key, ReadOptions(rawValue: flags), &buffer, &found)
    }
}

/// Reads into the caller's value, which is empty where nothing was found.
@inline(__always)
private func read(
    _ value: UnsafeMutablePointer<shale_value>, _ flags: UInt32,
    _ body: (inout ValueBuffer, inout Found) throws(Failure) -> Status
) -> shale_status {
    var buffer = ValueBuffer(data: value.pointee.data, capacity: value.pointee.capacity)
    var found = Found()
    if flags & ~7 != 0 {
        value.pointee.clear(buffer)
        return invalid(badFlags)
    }
    let status = run { () throws(Failure) in try body(&buffer, &found) }
    if status == 0 || status == 2 {
        value.pointee.take(buffer, found, info: flags & 4 != 0)
    } else {
        value.pointee.clear(buffer)
    }
    return status
}

@c @implementation
public func shale_lease(
    _ cache: OpaquePointer?, _ key: UnsafeRawPointer?, _ key_size: Int, _ options: UnsafePointer<shale_lease_options>?,
    _ value: UnsafeMutablePointer<shale_value>?, _ lease: UnsafeMutablePointer<UInt64>?
) -> shale_status {
    guard let lease else { return invalid("lease is NULL; pass where the lease goes") }
    lease.pointee = 0
    guard let cache else { return invalid(noCache) }
    guard let key = Argument.bytes(key, key_size) else { return invalid(badKey) }
    guard let value, value.pointee.isInitialised else { return invalid(badValue) }
    var o = LeaseOptions()
    if let options {
        guard isStruct(options.pointee.struct_size) else { return invalid(badOptions) }
        let given = Argument.copy(options, size: options.pointee.struct_size, over: shale_lease_options())
        o.read = ReadOptions(rawValue: given.flags)
        o.lease = given.lease_ms == 0 ? LeaseOptions.standard : given.lease_ms
        o.wait = given.wait_ms
        o.refreshAhead = given.refresh_ahead_ms
    }
    return read(value, o.read.rawValue) { buffer, found throws(Failure) in
        try engine(cache).get(key, o, &buffer, &found, lease: &lease.pointee)
    }
}

@c @implementation
public func shale_release(_ cache: OpaquePointer?, _ key: UnsafeRawPointer?, _ key_size: Int, _ lease: UInt64)
    -> shale_status
{
    guard let cache else { return invalid(noCache) }
    guard let key = Argument.bytes(key, key_size) else { return invalid(badKey) }
    return run { () throws(Failure) in try engine(cache).release(key, lease: lease) ? .ok : .miss }
}

@c @implementation
public func shale_remove(_ cache: OpaquePointer?, _ key: UnsafeRawPointer?, _ key_size: Int, _ version: UInt64)
    -> shale_status
{
    guard let cache else { return invalid(noCache) }
    guard let key = Argument.bytes(key, key_size) else { return invalid(badKey) }
    return run { () throws(Failure) in try engine(cache).remove(key, version: version) }
}

@c @implementation
public func shale_touch(_ cache: OpaquePointer?, _ key: UnsafeRawPointer?, _ key_size: Int, _ max_age_ms: Int64)
    -> shale_status
{
    guard let cache else { return invalid(noCache) }
    guard let key = Argument.bytes(key, key_size) else { return invalid(badKey) }
    return run { () throws(Failure) in try engine(cache).touch(key, maxAge: max_age_ms) }
}

@c @implementation
public func shale_increment(
    _ cache: OpaquePointer?, _ key: UnsafeRawPointer?, _ key_size: Int, _ delta: Int64, _ initial: Int64,
    _ result: UnsafeMutablePointer<Int64>?
) -> shale_status {
    guard let cache else { return invalid(noCache) }
    guard let key = Argument.bytes(key, key_size) else { return invalid(badKey) }
    return run { () throws(Failure) in
        let sum = try engine(cache).increment(key, delta: delta, initial: initial)
        result?.pointee = sum
        return .ok
    }
}

@c @implementation
public func shale_value_free(_ value: UnsafeMutablePointer<shale_value>?) {
    guard let value, value.pointee.isInitialised else { return }
    shim_free(value.pointee.data)
    value.pointee.clear(ValueBuffer())
}

// MARK: Many keys

/// Keeps the first error of a batch; its sentence stays the thread's last one only where nothing fails later.
private func each(_ count: Int, _ statuses: UnsafeMutablePointer<shale_status>?, _ body: (Int) -> shale_status)
    -> shale_status
{
    var first: shale_status = 0
    for i in 0..<count {
        let status = body(i)
        statuses?[i] = status
        if status < 0, first == 0 { first = status }
    }
    return first
}

@c @implementation
public func shale_remove_many(
    _ cache: OpaquePointer?, _ count: Int, _ keys: UnsafePointer<shale_bytes>?,
    _ statuses: UnsafeMutablePointer<shale_status>?
) -> shale_status {
    guard let cache else { return invalid(noCache) }
    guard count >= 0 else { return invalid("count is out of range") }
    if count == 0 { return 0 }
    guard let keys else { return invalid("keys is NULL and count is not 0") }
    return each(count, statuses) { shale_remove(cache, keys[$0].data, keys[$0].size, 0) }
}

@c @implementation
public func shale_get_many(
    _ cache: OpaquePointer?, _ count: Int, _ keys: UnsafePointer<shale_bytes>?, _ flags: UInt32,
    _ values: UnsafeMutablePointer<shale_value>?, _ statuses: UnsafeMutablePointer<shale_status>?
) -> shale_status {
    guard let cache else { return invalid(noCache) }
    guard count >= 0 else { return invalid("count is out of range") }
    if count == 0 { return 0 }
    guard let keys, let values else { return invalid("keys or values is NULL and count is not 0") }
    for i in 0..<count where !values[i].isInitialised { return invalid(badValue) }
    var first: shale_status = 0
    engine(cache).getMany(
        count, ReadOptions(rawValue: flags),
        key: { Argument.bytes(keys[$0].data, keys[$0].size) ?? Bytes(start: nil, count: 0) },
        get: { i in
            var status: shale_status
            if let key = Argument.bytes(keys[i].data, keys[i].size) {
                status = read(values + i, flags) { buffer, found throws(Failure) in
                    try engine(cache).getOutlined(key, ReadOptions(rawValue: flags), &buffer, &found)
                }
            } else {
                values[i].clear(ValueBuffer(data: values[i].data, capacity: values[i].capacity))
                status = invalid(badKey)
            }
            statuses?[i] = status
            if status < 0, first == 0 { first = status }
        })
    return first
}

@c @implementation
public func shale_set_many(
    _ cache: OpaquePointer?, _ count: Int, _ keys: UnsafePointer<shale_bytes>?, _ values: UnsafePointer<shale_bytes>?,
    _ options: UnsafePointer<shale_set_options>?, _ statuses: UnsafeMutablePointer<shale_status>?
) -> shale_status {
    guard let cache else { return invalid(noCache) }
    guard count >= 0 else { return invalid("count is out of range") }
    if count == 0 { return 0 }
    guard let keys, let values else { return invalid("keys or values is NULL and count is not 0") }
    return each(count, statuses) {
        shale_set(cache, keys[$0].data, keys[$0].size, values[$0].data, values[$0].size, options)
    }
}

// MARK: The whole cache

@c @implementation
public func shale_invalidate(_ cache: OpaquePointer?, _ tag: UnsafeRawPointer?, _ tag_size: Int) -> shale_status {
    guard let cache else { return invalid(noCache) }
    guard let tag = Argument.bytes(tag, tag_size) else { return invalid("the tag is NULL and its size is not 0") }
    return run { () throws(Failure) in
        try engine(cache).invalidate(tag)
        return .ok
    }
}

@c @implementation
public func shale_clear(_ cache: OpaquePointer?) -> shale_status {
    guard let cache else { return invalid(noCache) }
    return run { () throws(Failure) in
        try engine(cache).clear()
        return .ok
    }
}

@c @implementation
public func shale_evict(_ cache: OpaquePointer?, _ count: UInt64, _ evicted: UnsafeMutablePointer<UInt64>?)
    -> shale_status
{
    evicted?.pointee = 0
    guard let cache else { return invalid(noCache) }
    return run { () throws(Failure) in
        let done = try engine(cache).evict(count)
        evicted?.pointee = done
        return .ok
    }
}

@c @implementation
public func shale_purge(_ cache: OpaquePointer?, _ purged: UnsafeMutablePointer<UInt64>?) -> shale_status {
    purged?.pointee = 0
    guard let cache else { return invalid(noCache) }
    return run { () throws(Failure) in
        let done = try engine(cache).purge()
        purged?.pointee = done
        return .ok
    }
}

@c @implementation
public func shale_verify(_ cache: OpaquePointer?, _ report: UnsafeMutablePointer<shale_report>?) -> shale_status {
    guard let cache else { return invalid(noCache) }
    if let report, !isStruct(report.pointee.struct_size) {
        return invalid("struct_size of the report is too small; set it to sizeof the struct")
    }
    return run { () throws(Failure) in
        let found = try engine(cache).verify()
        if let report {
            let size = report.pointee.struct_size
            var filled = shale_report(
                struct_size: size, reserved: 0, records: found.records, bytes: found.bytes,
                corrupt_records: found.corruptRecords)
            memcpy(report, &filled, min(Int(size), MemoryLayout<shale_report>.size))
        }
        return .ok
    }
}

@c @implementation
public func shale_get_stats(_ cache: OpaquePointer?, _ stats: UnsafeMutablePointer<shale_stats>?) -> shale_status {
    guard let cache else { return invalid(noCache) }
    guard let stats, isStruct(stats.pointee.struct_size) else {
        return invalid("stats is NULL, or its struct_size too small; set it to sizeof the struct")
    }
    return run { () throws(Failure) in
        let s = try engine(cache).statistics()
        let size = stats.pointee.struct_size
        var filled = shale_stats(
            struct_size: size, shards: s.shards, entries: s.entries, capacity: s.capacity, max_entries: s.maxEntries,
            data_bytes: s.dataBytes, index_bytes: s.indexBytes, live_bytes: s.liveBytes, raw_bytes: s.rawBytes,
            stored_bytes: s.storedBytes, hits: s.hits, misses: s.misses, stale_hits: s.staleHits, sets: s.sets,
            removes: s.removes, evictions: s.evictions, expirations: s.expirations, invalidations: s.invalidations,
            cleaned_bytes: s.cleanedBytes, corrupt_records: s.corruptRecords, rebuilds: s.rebuilds,
            dictionaries: s.dictionaries)
        memcpy(stats, &filled, min(Int(size), MemoryLayout<shale_stats>.size))
        return .ok
    }
}

// MARK: Cursor

@c @implementation
public func shale_cursor_open(_ cache: OpaquePointer?, _ cursor: UnsafeMutablePointer<OpaquePointer?>?) -> shale_status
{
    guard let cursor else { return invalid("cursor is NULL; pass where the cursor goes") }
    cursor.pointee = nil
    guard let cache else { return invalid(noCache) }
    guard let memory = shim_malloc(MemoryLayout<CursorState>.size) else {
        ErrorText.set("out of memory; the call changed nothing")
        return Status.memory.rawValue
    }
    let state = memory.bindMemory(to: CursorState.self, capacity: 1)
    state.initialize(to: CursorState(cursor: Cursor(engine(cache))))
    cursor.pointee = OpaquePointer(state)
    return 0
}

/// A cursor and the buffers that it uses where the caller gives none.
private struct CursorState {
    var cursor: Cursor
    var key = ValueBuffer()
    var value = ValueBuffer()
}

@c @implementation
public func shale_cursor_next(
    _ cursor: OpaquePointer?, _ flags: UInt32, _ key: UnsafeMutablePointer<shale_value>?,
    _ value: UnsafeMutablePointer<shale_value>?
) -> shale_status {
    guard let cursor else { return invalid("the cursor is NULL; open one first") }
    if let key, !key.pointee.isInitialised { return invalid(badValue) }
    if let value, !value.pointee.isInitialised { return invalid(badValue) }
    if flags & ~7 != 0 { return invalid(badFlags) }
    let state = UnsafeMutablePointer<CursorState>(cursor)
    var keyBuffer = key.map { ValueBuffer(data: $0.pointee.data, capacity: $0.pointee.capacity) } ?? state.pointee.key
    var valueBuffer =
        value.map { ValueBuffer(data: $0.pointee.data, capacity: $0.pointee.capacity) } ?? state.pointee.value
    var keySize = 0
    var found = Found()
    let options = ReadOptions(rawValue: value == nil ? flags | 4 : flags)
    let status = run { () throws(Failure) in
        try state.pointee.cursor.next(options, key: &keyBuffer, keySize: &keySize, value: &valueBuffer, &found)
    }
    let isEntry = status == 0 || status == 2
    if let key {
        key.pointee.clear(keyBuffer)
        if isEntry { key.pointee.size = keySize }
    } else {
        state.pointee.key = keyBuffer
    }
    if let value {
        if isEntry {
            value.pointee.take(valueBuffer, found, info: flags & 4 != 0)
        } else {
            value.pointee.clear(valueBuffer)
        }
    } else {
        state.pointee.value = valueBuffer
    }
    return status
}

@c @implementation
public func shale_cursor_close(_ cursor: OpaquePointer?) {
    guard let cursor else { return }
    let state = UnsafeMutablePointer<CursorState>(cursor)
    shim_free(state.pointee.key.data)
    shim_free(state.pointee.value.data)
    state.deinitialize(count: 1)
    shim_free(state)
}
