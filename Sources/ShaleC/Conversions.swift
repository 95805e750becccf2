import CShale
import CShalePlatform
#if canImport(ShaleCore) // CMake compiles both as one module
import ShaleCore
#endif

// Checks what C passes and converts it to the core's types; and back.

extension Status {
    var code: shale_status {
        let code =
            switch self {
            case .ok: SHALE_OK
            case .miss: SHALE_MISS
            case .stale: SHALE_STALE
            case .conflict: SHALE_CONFLICT
            case .end: SHALE_END
            case .invalid: SHALE_E_INVALID
            case .tooLarge: SHALE_E_TOO_LARGE
            case .full: SHALE_E_FULL
            case .memory: SHALE_E_MEMORY
            case .io: SHALE_E_IO
            case .format: SHALE_E_FORMAT
            case .version: SHALE_E_VERSION
            case .busy: SHALE_E_BUSY
            case .filesystem: SHALE_E_FILESYSTEM
            case .permission: SHALE_E_PERMISSION
            }
        return shale_status(code)
    }

    @inline(__always) var isEntry: Bool { self == .ok || self == .stale }
}

/// Sets the message for an argument that is not usable.
func invalid(_ sentence: StaticString) -> Status {
    ErrorText.set(sentence)
    return .invalid
}

enum Argument {
    /// More than any memory has, and too little to overflow a sum.
    private static let tooLarge = 1 << 40

    /// Whether at least the first word is present: struct_size and the field beside it. The rest has defaults.
    @inline(__always)
    static func isStruct(_ size: UInt32) -> Bool { size >= MemoryLayout<UInt64>.size }

    /// NULL with size 0 is empty; NULL with another size is an error.
    @inline(__always)
    static func bytes(_ p: UnsafeRawPointer?, _ count: Int) -> Bytes? {
        if p == nil, count != 0 { return nil }
        // A size_t in the upper half must not become a negative number.
        return Bytes(start: p, count: count < 0 ? tooLarge : count)
    }

    /// Copies a caller's struct, as far as the caller knows it, over one of defaults. In whole words: a wrong size that
    /// cuts through a field would leave half a pointer.
    static func copy<T>(_ p: UnsafePointer<T>, size: UInt32, over defaults: T) -> T {
        var result = defaults
        withUnsafeMutableBytes(of: &result) {
            let word = MemoryLayout<UInt64>.size
            memcpy($0.baseAddress.unsafelyUnwrapped, p, min($0.count, Int(size) / word * word))
        }
        return result
    }

    /// Fills a caller's struct, as far as the caller knows it.
    static func fill<T>(_ p: UnsafeMutablePointer<T>, size: UInt32, with value: T) {
        withUnsafeBytes(of: value) { _ = memcpy(p, $0.baseAddress.unsafelyUnwrapped, min($0.count, Int(size))) }
    }
}

enum ErrorText {
    static func set(_ sentence: StaticString) {
        let count = min(sentence.utf8CodeUnitCount, Int(SHIM_ERROR_TEXT) - 1)
        let text = shim_error_text().unsafelyUnwrapped
        memcpy(text, sentence.utf8Start, count)
        text[count] = 0
        shim_set_error_code(0)
    }
}

extension ReadOptions {
    private static let known = SHALE_GET_STALE | SHALE_GET_PEEK | SHALE_GET_INFO

    static func isKnown(_ flags: UInt32) -> Bool { flags & ~known == 0 }

    /// From SHALE_GET_... flags; ignores others.
    @inline(__always)
    init(_ flags: UInt32) {
        // (Without a branch: the compiler makes it one mask.)
        func word(_ flag: UInt32, _ option: ReadOptions) -> UInt32 { (flags & flag) / flag &* option.rawValue }
        self.init(rawValue: word(SHALE_GET_STALE, .stale) | word(SHALE_GET_PEEK, .peek) | word(SHALE_GET_INFO, .info))
    }
}

extension Compression {
    init?(_ number: Int32) {
        switch number {
        case SHALE_COMPRESSION_DICTIONARY: self = .dictionary
        case SHALE_COMPRESSION_LZ4: self = .lz4
        case SHALE_COMPRESSION_NONE: self = .none
        case SHALE_COMPRESSION_DENSE: self = .dense
        default: return nil
        }
    }
}

extension Eviction {
    init?(_ number: Int32) {
        switch number {
        case SHALE_EVICTION_LRU: self = .lru
        case SHALE_EVICTION_CLOCK: self = .clock
        default: return nil
        }
    }
    var number: Int32 {
        switch self {
        case .lru: SHALE_EVICTION_LRU
        case .clock: SHALE_EVICTION_CLOCK
        }
    }
}

extension Configuration {
    private static let known = SHALE_OPEN_READ_ONLY | SHALE_OPEN_MUST_EXIST | SHALE_OPEN_NO_SYNC

    /// Returns nil after an error whose message is set.
    static func from(_ o: shale_options) -> Configuration? {
        guard o.flags & ~known == 0 else {
            ErrorText.set("unknown bits in shale_options.flags; pass SHALE_OPEN_... only")
            return nil
        }
        guard o.reserved == 0 else {
            ErrorText.set("shale_options.reserved is not 0; zero the struct first")
            return nil
        }
        guard let compression = Compression(o.compression) else {
            ErrorText.set("compression is not one of SHALE_COMPRESSION_...")
            return nil
        }
        guard let eviction = Eviction(o.eviction) else {
            ErrorText.set("eviction is not one of SHALE_EVICTION_...")
            return nil
        }
        var result = Configuration()
        if eviction != .lru { result.eviction = eviction }
        result.isReadOnly = o.flags & SHALE_OPEN_READ_ONLY != 0
        result.mustExist = o.flags & SHALE_OPEN_MUST_EXIST != 0
        result.syncsAtClose = o.flags & SHALE_OPEN_NO_SYNC == 0
        result.capacity = o.capacity
        result.maxEntries = o.max_entries
        result.maxAge = o.max_age_ms
        result.stale = o.stale_ms
        result.shards = o.shards
        result.segmentSize = o.segment_size
        result.mode = o.mode
        result.compression = compression
        result.clock = o.now_ms
        result.clockContext = o.now_context
        result.waits.limit = o.lock_timeout_ms
        result.waits.listener = o.on_wait
        result.waits.context = o.wait_context
        result.reserveCapacity = o.reserve_capacity
        return result
    }
}

extension shale_value {
    /// Whether SHALE_VALUE_INIT has set it, or it was zeroed: then it has the fields of the first version.
    @inline(__always) var isInitialised: Bool { struct_size &- 1 >= UInt32(MemoryLayout<shale_value>.size - 1) }

    var buffer: ValueBuffer { ValueBuffer(data: data, capacity: capacity) }

    @inline(__always)
    mutating func take(_ buffer: ValueBuffer, _ found: Found, info: Bool) {
        capacity = buffer.capacity
        data = buffer.data
        size = found.size
        meta_size = found.metaSize
        meta = buffer.data.map { info ? $0 : $0 + found.size }
        created_ms = found.created
        expires_ms = found.expires
        version = found.version
        stored_size = found.storedSize
        flags = (found.isStale ? SHALE_VALUE_STALE : 0) | (found.isPinned ? SHALE_VALUE_PINNED : 0)
    }

    @inline(__always)
    mutating func clear(_ buffer: ValueBuffer, _ miss: Miss = .absent) {
        capacity = buffer.capacity
        data = buffer.data
        size = 0
        meta = nil
        meta_size = 0
        flags = UInt32(miss.rawValue)
        created_ms = 0
        expires_ms = 0
        version = 0
        stored_size = 0
    }
}

extension SetOptions {
    private static let conditions =
        SHALE_SET_IF_ABSENT | SHALE_SET_IF_PRESENT | SHALE_SET_IF_VERSION | SHALE_SET_IF_UNCHANGED
    private static let known = conditions | SHALE_SET_PINNED | SHALE_SET_UNCOMPRESSED

    /// Returns nil after an error whose message is set.
    static func from(_ options: shale_set_options, _ engine: Engine) throws(Failure) -> SetOptions? {
        var result = SetOptions()
        result.maxAge = options.max_age_ms
        result.stale = options.stale_ms
        result.isPinned = options.flags & SHALE_SET_PINNED != 0
        result.isUncompressed = options.flags & SHALE_SET_UNCOMPRESSED != 0
        switch options.flags & conditions {
        case 0: break
        case SHALE_SET_IF_ABSENT: result.condition = .ifAbsent
        case SHALE_SET_IF_PRESENT: result.condition = .ifPresent
        case SHALE_SET_IF_VERSION: result.condition = .ifVersion(options.version)
        case SHALE_SET_IF_UNCHANGED: result.condition = .ifUnchanged(since: options.version)
        default:
            ErrorText.set("more than one SHALE_SET_IF_... condition; pass one of them")
            return nil
        }
        if options.flags & ~known != 0 {
            ErrorText.set("unknown bits in shale_set_options.flags; pass SHALE_SET_... only")
            return nil
        }
        guard let meta = Argument.bytes(options.meta, options.meta_size) else {
            ErrorText.set("meta is NULL and meta_size is not 0")
            return nil
        }
        result.meta = meta
        // (Before any is read. A count above the highest Int is negative here.)
        if options.tag_count < 0 || options.tag_count > SHALE_MAX_TAGS {
            ErrorText.set("an entry carries at most 8 tags")
            return nil
        }
        if options.tag_count > 0 {
            guard let tags = options.tags else {
                ErrorText.set("tags is NULL and tag_count is not 0")
                return nil
            }
            for i in 0..<options.tag_count {
                guard let tag = Argument.bytes(tags[i].data, tags[i].size) else {
                    ErrorText.set("a tag is NULL and its size is not 0")
                    return nil
                }
                try result.add(tag: tag, engine)
            }
        }
        return result
    }
}
