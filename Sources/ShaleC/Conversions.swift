import CShale
import CShalePlatform
import ShaleCore

// What C passes, checked and turned into the core's terms; and back.

/// The struct's size that this library knows, or less: fields beyond it have their defaults.
/// Below `least` it is no struct of this interface.
@inline(__always)
func isStruct(_ size: UInt32, least: Int = 8) -> Bool { Int(size) >= least }

func invalid(_ sentence: StaticString) -> shale_status {
    ErrorText.set(sentence)
    return SHALE_E_INVALID
}

// swift-format-ignore: AlwaysUseLowerCamelCase
let SHALE_E_INVALID: shale_status = -1

enum Argument {
    /// NULL with size 0 is empty; NULL with another size is an error.
    @inline(__always)
    static func bytes(_ p: UnsafeRawPointer?, _ count: Int) -> Bytes? {
        if p == nil, count != 0 { return nil }
        // A size_t that no memory could have: too large for everything, and no negative number.
        return Bytes(start: p, count: count < 0 ? 1 << 40 : count)
    }

    /// Copies a caller's struct, as far as the caller knows it, over one of defaults. In whole words: of a
    /// field that a wrong size cuts through, half a pointer would be left.
    static func copy<T>(_ p: UnsafePointer<T>, size: UInt32, over defaults: T) -> T {
        var result = defaults
        _ = withUnsafeMutableBytes(of: &result) {
            memcpy($0.baseAddress.unsafelyUnwrapped, p, min($0.count, Int(size) & ~7))
        }
        return result
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

extension shale_value {
    /// Whether the caller initialised it with SHALE_VALUE_INIT.
    @inline(__always) var isInitialised: Bool { Int(struct_size) >= MemoryLayout<shale_value>.size }

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
        flags = (found.isStale ? 1 : 0) | (found.isPinned ? 2 : 0)
    }

    @inline(__always)
    mutating func clear(_ buffer: ValueBuffer) {
        capacity = buffer.capacity
        data = buffer.data
        size = 0
        meta = nil
        meta_size = 0
        flags = 0
        created_ms = 0
        expires_ms = 0
        version = 0
        stored_size = 0
    }
}

extension SetOptions {
    private enum Flag {
        static let ifAbsent: UInt32 = 1, ifPresent: UInt32 = 2, ifVersion: UInt32 = 4
        static let pinned: UInt32 = 8, uncompressed: UInt32 = 16
    }

    /// Nil after an error whose sentence is set.
    static func from(_ options: shale_set_options, _ engine: Engine) throws(Failure) -> SetOptions? {
        var result = SetOptions()
        result.maxAge = options.max_age_ms
        result.stale = options.stale_ms
        result.isPinned = options.flags & Flag.pinned != 0
        result.isUncompressed = options.flags & Flag.uncompressed != 0
        switch options.flags & (Flag.ifAbsent | Flag.ifPresent | Flag.ifVersion) {
        case 0: break
        case Flag.ifAbsent: result.condition = .ifAbsent
        case Flag.ifPresent: result.condition = .ifPresent
        case Flag.ifVersion: result.condition = .ifVersion(options.version)
        default:
            ErrorText.set("more than one SHALE_SET_IF_... condition; pass one of them")
            return nil
        }
        if options.flags & ~31 != 0 {
            ErrorText.set("unknown bits in shale_set_options.flags; pass SHALE_SET_... only")
            return nil
        }
        guard let meta = Argument.bytes(options.meta, options.meta_size) else {
            ErrorText.set("meta is NULL and meta_size is not 0")
            return nil
        }
        result.meta = meta
        if options.tag_count > 8 {
            ErrorText.set("tag_count is above 8; an entry carries at most 8 tags")
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
