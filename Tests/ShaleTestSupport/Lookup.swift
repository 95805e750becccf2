import CShale

/// The result of a get or a cursor, copied out of the library's buffer.
public struct Lookup: Equatable, Sendable {
    public var status: Status
    public var value = Blob("")
    public var meta = Blob("")
    /// The value's size; with SHALE_GET_INFO known although `value` is empty.
    public var size = 0
    public var isStale = false
    public var isPinned = false
    public var created: Int64 = 0
    public var expires: Int64 = 0
    public var version: UInt64 = 0
    public var storedSize: UInt64 = 0

    public init(_ status: Status) { self.status = status }

    public init(_ status: Status, _ raw: shale_value, info: Bool) {
        self.status = status
        size = raw.size
        guard status == .ok || status == .stale else { return }
        if !info, raw.size > 0, let data = raw.data {
            value = Blob(copying: UnsafeRawBufferPointer(start: data, count: raw.size))
        }
        if raw.meta_size > 0, let bytes = raw.meta {
            meta = Blob(copying: UnsafeRawBufferPointer(start: bytes, count: raw.meta_size))
        }
        isStale = raw.flags & SHALE_VALUE_STALE != 0
        isPinned = raw.flags & SHALE_VALUE_PINNED != 0
        created = raw.created_ms
        expires = raw.expires_ms
        version = raw.version
        storedSize = raw.stored_size
    }

    /// The value as text, for tests that store text.
    public var text: String? { status == .ok || status == .stale ? String(decoding: value.bytes, as: UTF8.self) : nil }
}

/// A shale_value that is freed at the end. Reused by many calls, as the header recommends.
public final class ValueBuffer {
    public var raw = shale_value()

    public init() { raw.struct_size = UInt32(MemoryLayout<shale_value>.size) }

    deinit { shale_value_free(&raw) }

    public var bytes: UnsafeRawBufferPointer {
        UnsafeRawBufferPointer(start: raw.size == 0 ? nil : raw.data, count: raw.data == nil ? 0 : raw.size)
    }
}
