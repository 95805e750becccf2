// The names are those of shale.h.
// swift-format-ignore-file: AlwaysUseLowerCamelCase

import CShale
import CShalePlatform
#if canImport(ShaleCore) // CMake compiles both as one module
import ShaleCore
#endif

// Every function of shale.h. The compiler checks each against the header; the functions only check the arguments.

private let badOptions: StaticString = "struct_size of the options is too small; set it to sizeof the struct"
private let badValue: StaticString = "the value is NULL or not initialised; zero it, or use SHALE_VALUE_INIT"
private let badBytes: StaticString = "the value is NULL and its size is not 0"
private let badKey: StaticString = "the key is NULL and its size is not 0"
private let badArrays: StaticString = "keys or values is NULL and count is not 0"
private let badFlags: StaticString = "unknown bits in flags; pass SHALE_GET_... only"

@inline(__always)
private func status(_ body: () throws(Failure) -> Status) -> Status {
    do throws(Failure) { return try body() } catch { return error.status }
}

/// Runs a call of the library. (Test builds count under its name the work that it does while it holds a lock.)
@inline(__always)
private func run(call: StaticString = #function, _ body: () throws(Failure) -> Status) -> shale_status {
    #if SHALE_FAULTS
    let outer = shim_call(call.utf8Start)
    defer { shim_leave(outer) }
    #endif
    return status(body).code
}

/// Runs a call of the cache.
@inline(__always)
private func run(
    _ cache: OpaquePointer?, call: StaticString = #function, _ body: (Engine) throws(Failure) -> Status
) -> shale_status {
    run(call: call) { () throws(Failure) in
        guard let cache else { return invalid("the cache is NULL; open one first") }
        return try body(Engine(opaque: cache))
    }
}

/// Runs a call that has a key.
@inline(__always)
private func run(
    _ cache: OpaquePointer?, _ key: UnsafeRawPointer?, _ key_size: Int, call: StaticString = #function,
    _ body: (Engine, Bytes) throws(Failure) -> Status
) -> shale_status {
    run(cache, call: call) { engine throws(Failure) in
        guard let key = Argument.bytes(key, key_size) else { return invalid(badKey) }
        return try body(engine, key)
    }
}

// MARK: Names

@c @implementation
public func shale_version() -> UnsafePointer<CChar> { shim_version().unsafelyUnwrapped }

@c @implementation
public func shale_status_text(_ status: shale_status) -> UnsafePointer<CChar> {
    switch Int(status) {
    case SHALE_OK: text("ok")
    case SHALE_MISS: text("miss")
    case SHALE_STALE: text("stale")
    case SHALE_CONFLICT: text("conflict")
    case SHALE_END: text("end")
    case SHALE_E_INVALID: text("invalid argument")
    case SHALE_E_TOO_LARGE: text("too large")
    case SHALE_E_FULL: text("no space")
    case SHALE_E_MEMORY: text("out of memory")
    case SHALE_E_IO: text("input/output error")
    case SHALE_E_FORMAT: text("not a cache")
    case SHALE_E_VERSION: text("another version's format")
    case SHALE_E_BUSY: text("busy")
    case SHALE_E_FILESYSTEM: text("unsuitable file system")
    case SHALE_E_PERMISSION: text("permission denied")
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
    run { () throws(Failure) in
        guard let cache else { return invalid("cache is NULL; pass a pointer that receives the handle") }
        cache.pointee = nil
        var configuration = Configuration()
        if let options {
            guard Argument.isStruct(options.pointee.struct_size) else { return invalid(badOptions) }
            let given = Argument.copy(options, size: options.pointee.struct_size, over: shale_options())
            guard let converted = Configuration.from(given) else { return .invalid }
            configuration = converted
        }
        cache.pointee = try Engine.open(directory, configuration).opaque
        return .ok
    }
}

@c @implementation
public func shale_close(_ cache: OpaquePointer?) -> shale_status {
    guard let cache else { return Status.ok.code }
    return run(cache) { engine throws(Failure) in
        try engine.close()
        return .ok
    }
}

@c @implementation
public func shale_sync(_ cache: OpaquePointer?) -> shale_status {
    run(cache) { engine throws(Failure) in
        try engine.sync()
        return .ok
    }
}

// MARK: One key

/// Returns the options of a set, as this version knows them. Nil after an error whose message is set.
private func copied(_ options: UnsafePointer<shale_set_options>) -> shale_set_options? {
    guard Argument.isStruct(options.pointee.struct_size) else {
        ErrorText.set(badOptions)
        return nil
    }
    return Argument.copy(options, size: options.pointee.struct_size, over: shale_set_options())
}

@c @implementation
public func shale_set(
    _ cache: OpaquePointer?, _ key: UnsafeRawPointer?, _ key_size: Int, _ value: UnsafeRawPointer?, _ value_size: Int,
    _ options: UnsafePointer<shale_set_options>?
) -> shale_status {
    run(cache, key, key_size) { engine, key throws(Failure) in
        guard let value = Argument.bytes(value, value_size) else { return invalid(badBytes) }
        var version: UInt64 = 0
        guard let options else { return try engine.set(key, value, SetOptions(), version: &version) }
        guard let given = copied(options), let converted = try SetOptions.from(given, engine) else { return .invalid }
        let status = try engine.set(key, value, converted, version: &version)
        if status == .ok, let out = given.new_version { out.pointee = version }
        return status
    }
}

@c @implementation
public func shale_get(
    _ cache: OpaquePointer?, _ key: UnsafeRawPointer?, _ key_size: Int, _ flags: UInt32,
    _ value: UnsafeMutablePointer<shale_value>?
) -> shale_status {
    run(cache, key, key_size) { engine, key throws(Failure) in
        guard let value, value.pointee.isInitialised else { return invalid(badValue) }
        if flags & SHALE_GET_TOKEN != 0 { return getWithToken(engine, key, flags & ~SHALE_GET_TOKEN, value) }
        return read(value, flags) { buffer, found throws(Failure) in
            try engine.get(key, ReadOptions(flags), &buffer, &found)
        }
    }
}

@inline(never)
private func getWithToken(_ engine: Engine, _ key: Bytes, _ flags: UInt32, _ value: UnsafeMutablePointer<shale_value>)
    -> Status
{
    var token: UInt64 = 0
    let status = read(value, flags) { buffer, found throws(Failure) in
        try engine.get(key, ReadOptions(flags), &buffer, &found, token: &token)
    }
    if status == .miss { value.pointee.version = token }
    return status
}

/// Reads into the caller's value, which is empty if nothing was found.
@inline(__always)
private func read(
    _ value: UnsafeMutablePointer<shale_value>, _ flags: UInt32,
    _ body: (inout ValueBuffer, inout Found) throws(Failure) -> Status
) -> Status {
    var buffer = value.pointee.buffer
    var found = Found()
    guard ReadOptions.isKnown(flags) else {
        value.pointee.clear(buffer)
        return invalid(badFlags)
    }
    let status = status { () throws(Failure) in try body(&buffer, &found) }
    if status.isEntry {
        value.pointee.take(buffer, found, info: flags & SHALE_GET_INFO != 0)
    } else {
        value.pointee.clear(buffer, found.miss)
    }
    return status
}

@c @implementation
public func shale_lease(
    _ cache: OpaquePointer?, _ key: UnsafeRawPointer?, _ key_size: Int, _ options: UnsafePointer<shale_lease_options>?,
    _ value: UnsafeMutablePointer<shale_value>?, _ lease: UnsafeMutablePointer<UInt64>?
) -> shale_status {
    guard let lease else { return invalid("lease is NULL; pass a pointer that receives the lease").code }
    lease.pointee = 0
    return run(cache, key, key_size) { engine, key throws(Failure) in
        guard let value, value.pointee.isInitialised else { return invalid(badValue) }
        var converted = LeaseOptions()
        var flags: UInt32 = 0
        if let options {
            guard Argument.isStruct(options.pointee.struct_size) else { return invalid(badOptions) }
            let given = Argument.copy(options, size: options.pointee.struct_size, over: shale_lease_options())
            flags = given.flags
            converted.read = ReadOptions(flags)
            converted.mustBeRecorded = flags & SHALE_LEASE_RECORDED != 0
            converted.lease = given.lease_ms == 0 ? LeaseOptions.standard : given.lease_ms
            converted.wait = given.wait_ms
            converted.refreshAhead = given.refresh_ahead_ms
        }
        var answer = LeaseAnswer.none
        let status = read(value, flags & ~SHALE_LEASE_RECORDED) { buffer, found throws(Failure) in
            try engine.get(key, converted, &buffer, &found, lease: &answer)
        }
        switch answer {
        case .given(let token): lease.pointee = token
        case .none: break
        case .unrecorded: value.pointee.flags |= SHALE_VALUE_UNRECORDED
        }
        return status
    }
}

@c @implementation
public func shale_renew(
    _ cache: OpaquePointer?, _ key: UnsafeRawPointer?, _ key_size: Int, _ lease: UInt64, _ lease_ms: Int64
) -> shale_status {
    run(cache, key, key_size) { engine, key throws(Failure) in
        guard lease != 0 else { return invalid("the lease is 0; pass the one that shale_lease returned") }
        let time = lease_ms == 0 ? LeaseOptions.standard : lease_ms
        return try engine.renew(key, lease: lease, milliseconds: time) ? .ok : .miss
    }
}

@c @implementation
public func shale_release(_ cache: OpaquePointer?, _ key: UnsafeRawPointer?, _ key_size: Int, _ lease: UInt64)
    -> shale_status
{
    run(cache, key, key_size) { engine, key throws(Failure) in
        try engine.release(key, lease: lease) ? .ok : .miss
    }
}

@c @implementation
public func shale_remove(_ cache: OpaquePointer?, _ key: UnsafeRawPointer?, _ key_size: Int, _ version: UInt64)
    -> shale_status
{
    run(cache, key, key_size) { engine, key throws(Failure) in try engine.remove(key, version: version) }
}

@c @implementation
public func shale_expire(_ cache: OpaquePointer?, _ key: UnsafeRawPointer?, _ key_size: Int) -> shale_status {
    run(cache, key, key_size) { engine, key throws(Failure) in try engine.expire(key) }
}

@c @implementation
public func shale_touch(_ cache: OpaquePointer?, _ key: UnsafeRawPointer?, _ key_size: Int, _ max_age_ms: Int64)
    -> shale_status
{
    run(cache, key, key_size) { engine, key throws(Failure) in try engine.touch(key, maxAge: max_age_ms) }
}

@c @implementation
public func shale_touch_unchanged(
    _ cache: OpaquePointer?, _ key: UnsafeRawPointer?, _ key_size: Int, _ max_age_ms: Int64, _ token: UInt64
) -> shale_status {
    run(cache, key, key_size) { engine, key throws(Failure) in
        try engine.touch(key, since: token, maxAge: max_age_ms)
    }
}

@c @implementation
public func shale_increment(
    _ cache: OpaquePointer?, _ key: UnsafeRawPointer?, _ key_size: Int, _ delta: Int64, _ initial: Int64,
    _ result: UnsafeMutablePointer<Int64>?
) -> shale_status {
    run(cache, key, key_size) { engine, key throws(Failure) in
        let sum = try engine.increment(key, delta: delta, initial: initial)
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

/// The statuses of a batch: each goes to the caller, and the first error is the batch's. Its message stays the thread's
/// last one only if nothing fails later.
private struct Batch {
    let statuses: UnsafeMutablePointer<shale_status>?
    var first = Status.ok.code

    mutating func note(_ i: Int, _ status: shale_status) {
        statuses?[i] = status
        if status < SHALE_OK, first == SHALE_OK { first = status }
    }
}

/// Runs a call that records a status for each key, unless an error concerns all of them.
@inline(__always)
private func run(
    _ cache: OpaquePointer?, _ count: Int, _ statuses: UnsafeMutablePointer<shale_status>?,
    call: StaticString = #function, _ body: (Engine, inout Batch) -> Status
) -> shale_status {
    var batch = Batch(statuses: statuses)
    let status = run(cache, call: call) { engine in
        guard count >= 0 else { return invalid("count is out of range") }
        return count == 0 ? .ok : body(engine, &batch)
    }
    return status == SHALE_OK ? batch.first : status
}

@c @implementation
public func shale_remove_many(
    _ cache: OpaquePointer?, _ count: Int, _ keys: UnsafePointer<shale_bytes>?,
    _ statuses: UnsafeMutablePointer<shale_status>?
) -> shale_status {
    run(cache, count, statuses) { _, batch in
        guard let keys else { return invalid("keys is NULL and count is not 0") }
        for i in 0..<count { batch.note(i, shale_remove(cache, keys[i].data, keys[i].size, 0)) }
        return .ok
    }
}

@c @implementation
public func shale_get_many(
    _ cache: OpaquePointer?, _ count: Int, _ keys: UnsafePointer<shale_bytes>?, _ flags: UInt32,
    _ values: UnsafeMutablePointer<shale_value>?, _ statuses: UnsafeMutablePointer<shale_status>?
) -> shale_status {
    run(cache, count, statuses) { engine, batch in
        guard let keys, let values else { return invalid(badArrays) }
        for i in 0..<count where !values[i].isInitialised { return invalid(badValue) }
        engine.getMany(
            count,
            key: { Argument.bytes(keys[$0].data, keys[$0].size) ?? Bytes(start: nil, count: 0) },
            get: { i in
                let status = run { () throws(Failure) in
                    guard let key = Argument.bytes(keys[i].data, keys[i].size) else {
                        values[i].clear(values[i].buffer)
                        return invalid(badKey)
                    }
                    return read(values + i, flags) { buffer, found throws(Failure) in
                        try engine.getOutlined(key, ReadOptions(flags), &buffer, &found)
                    }
                }
                batch.note(i, status)
            })
        return .ok
    }
}

@c @implementation
public func shale_set_many(
    _ cache: OpaquePointer?, _ count: Int, _ keys: UnsafePointer<shale_bytes>?, _ values: UnsafePointer<shale_bytes>?,
    _ options: UnsafePointer<shale_set_options>?, _ statuses: UnsafeMutablePointer<shale_status>?
) -> shale_status {
    run(cache, count, statuses) { engine, batch in
        guard let keys, let values else { return invalid(badArrays) }
        // An error in the options concerns each key.
        var given = shale_set_options(), converted = SetOptions()
        let failed = status { () throws(Failure) in
            guard let options else { return .ok }
            guard let copy = copied(options), let its = try SetOptions.from(copy, engine) else { return .invalid }
            (given, converted) = (copy, its)
            return .ok
        }
        for i in 0..<count {
            let status = run { () throws(Failure) in
                if failed != .ok { return failed }
                guard let key = Argument.bytes(keys[i].data, keys[i].size) else { return invalid(badKey) }
                guard let value = Argument.bytes(values[i].data, values[i].size) else { return invalid(badBytes) }
                var version: UInt64 = 0
                let status = try engine.set(key, value, converted, version: &version)
                if status == .ok, let out = given.new_version { out.pointee = version }
                return status
            }
            batch.note(i, status)
        }
        return .ok
    }
}

// MARK: The whole cache

@c @implementation
public func shale_invalidate(_ cache: OpaquePointer?, _ tag: UnsafeRawPointer?, _ tag_size: Int) -> shale_status {
    shale_invalidate_with(cache, tag, tag_size, 0)
}

@c @implementation
public func shale_invalidate_with(
    _ cache: OpaquePointer?, _ tag: UnsafeRawPointer?, _ tag_size: Int, _ flags: UInt32
) -> shale_status {
    run(cache) { engine throws(Failure) in
        guard let tag = Argument.bytes(tag, tag_size) else { return invalid("the tag is NULL and its size is not 0") }
        guard flags & ~UInt32(SHALE_INVALIDATE_EXPIRE) == 0 else { return invalid("unknown flags") }
        try engine.invalidate(tag, expires: flags & UInt32(SHALE_INVALIDATE_EXPIRE) != 0)
        return .ok
    }
}

@c @implementation
public func shale_clear(_ cache: OpaquePointer?) -> shale_status {
    run(cache) { engine throws(Failure) in
        try engine.clear()
        return .ok
    }
}

@c @implementation
public func shale_evict(_ cache: OpaquePointer?, _ count: UInt64, _ evicted: UnsafeMutablePointer<UInt64>?)
    -> shale_status
{
    evicted?.pointee = 0
    return run(cache) { engine throws(Failure) in
        let done = try engine.evict(count)
        evicted?.pointee = done
        return .ok
    }
}

@c @implementation
public func shale_purge(_ cache: OpaquePointer?, _ purged: UnsafeMutablePointer<UInt64>?) -> shale_status {
    purged?.pointee = 0
    return run(cache) { engine throws(Failure) in
        let done = try engine.purge()
        purged?.pointee = done
        return .ok
    }
}

@c @implementation
public func shale_verify(_ cache: OpaquePointer?, _ report: UnsafeMutablePointer<shale_report>?) -> shale_status {
    run(cache) { engine throws(Failure) in
        if let report, !Argument.isStruct(report.pointee.struct_size) {
            return invalid("struct_size of the report is too small; set it to sizeof the struct")
        }
        let found = try engine.verify()
        if let report {
            let size = report.pointee.struct_size
            let filled = shale_report(
                struct_size: size, reserved: 0, records: found.records, bytes: found.bytes,
                corrupt_records: found.corruptRecords)
            Argument.fill(report, size: size, with: filled)
        }
        return .ok
    }
}

@c @implementation
public func shale_get_stats(_ cache: OpaquePointer?, _ stats: UnsafeMutablePointer<shale_stats>?) -> shale_status {
    run(cache) { engine throws(Failure) in
        guard let stats, Argument.isStruct(stats.pointee.struct_size) else {
            return invalid("stats is NULL, or its struct_size too small; set it to sizeof the struct")
        }
        let s = try engine.statistics()
        let size = stats.pointee.struct_size
        let filled = shale_stats(
            struct_size: size, shards: s.shards, entries: s.entries, capacity: s.capacity, max_entries: s.maxEntries,
            data_bytes: s.dataBytes, index_bytes: s.indexBytes, live_bytes: s.liveBytes, raw_bytes: s.rawBytes,
            stored_bytes: s.storedBytes, hits: s.hits, misses: s.misses, stale_hits: s.staleHits, sets: s.sets,
            removes: s.removes, evictions: s.evictions, expirations: s.expirations, invalidations: s.invalidations,
            cleaned_bytes: s.cleanedBytes, corrupt_records: s.corruptRecords, rebuilds: s.rebuilds,
            dictionaries: s.dictionaries, misses_absent: s.absent, misses_expired: s.expired,
            misses_invalidated: s.invalidated, misses_damaged: s.damaged, leases: s.leases, conflicts: s.conflicts,
            evicted_timed: s.evictedTimed, evicted_age_ms: s.evictedAge, evicted_idle_ms: s.evictedIdle,
            eviction: s.eviction.number, reserved: 0, leases_unrecorded: s.leasesUnrecorded,
            conflicts_key: s.conflictsByKey, conflicts_tag: s.conflictsByTag,
            conflicts_overflow: s.conflictsByOverflow, conflicts_reset: s.conflictsByReset, renewals: s.renewals)
        Argument.fill(stats, size: size, with: filled)
        return .ok
    }
}

// MARK: Cursor

@c @implementation
public func shale_cursor_open(_ cache: OpaquePointer?, _ cursor: UnsafeMutablePointer<OpaquePointer?>?) -> shale_status
{
    guard let cursor else { return invalid("cursor is NULL; pass a pointer that receives the cursor").code }
    cursor.pointee = nil
    return run(cache) { engine throws(Failure) in
        guard let memory = shim_malloc(MemoryLayout<CursorState>.size) else { throw Failure.outOfMemory }
        let state = memory.bindMemory(to: CursorState.self, capacity: 1)
        state.initialize(to: CursorState(cursor: Cursor(engine)))
        cursor.pointee = OpaquePointer(state)
        return .ok
    }
}

/// A cursor, and the buffers that it uses if the caller passes none.
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
    guard let cursor else { return invalid("the cursor is NULL; open one first").code }
    if let key, !key.pointee.isInitialised { return invalid(badValue).code }
    if let value, !value.pointee.isInitialised { return invalid(badValue).code }
    if let key, key == value { return invalid("key and value are the same object; pass two, or NULL").code }
    guard ReadOptions.isKnown(flags) else { return invalid(badFlags).code }
    #if SHALE_FAULTS
    let outer = shim_call(("shale_cursor_next" as StaticString).utf8Start)
    defer { shim_leave(outer) }
    #endif
    let state = UnsafeMutablePointer<CursorState>(cursor)
    var keyBuffer = key?.pointee.buffer ?? state.pointee.key
    var valueBuffer = value?.pointee.buffer ?? state.pointee.value
    var keySize = 0
    var found = Found()
    var options = ReadOptions(flags)
    if value == nil { options.insert(.info) }
    let status = status { () throws(Failure) in
        try state.pointee.cursor.next(options, key: &keyBuffer, keySize: &keySize, value: &valueBuffer, &found)
    }
    if let key {
        key.pointee.clear(keyBuffer)
        if status.isEntry { key.pointee.size = keySize }
    } else {
        state.pointee.key = keyBuffer
    }
    if let value {
        if status.isEntry {
            value.pointee.take(valueBuffer, found, info: flags & SHALE_GET_INFO != 0)
        } else {
            value.pointee.clear(valueBuffer)
        }
    } else {
        state.pointee.value = valueBuffer
    }
    return status.code
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
