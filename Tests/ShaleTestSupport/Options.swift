import CShale

/// shale_options in Swift's types; every default is the header's.
public struct Options: Sendable {
    public var flags: UInt32 = 0
    public var capacity: UInt64 = 0
    public var maxEntries: UInt64 = 0
    public var maxAge: Int64 = 0
    public var stale: Int64 = 0
    public var shards: UInt32 = 0
    public var segmentSize: UInt32 = 0
    public var mode: UInt32 = 0
    public var compression: Int32 = 0
    public var clock: TestClock?

    public init(
        capacity: UInt64 = 0, maxEntries: UInt64 = 0, maxAge: Int64 = 0, stale: Int64 = 0,
        shards: UInt32 = 0, segmentSize: UInt32 = 0, mode: UInt32 = 0, compression: Int32 = 0,
        clock: TestClock? = nil, flags: UInt32 = 0
    ) {
        self.flags = flags
        self.capacity = capacity
        self.maxEntries = maxEntries
        self.maxAge = maxAge
        self.stale = stale
        self.shards = shards
        self.segmentSize = segmentSize
        self.mode = mode
        self.compression = compression
        self.clock = clock
    }

    /// The struct for C. It points to the clock, which the caller keeps alive.
    public var forC: shale_options {
        var options = shale_options()
        options.struct_size = UInt32(MemoryLayout<shale_options>.size)
        options.flags = flags
        options.capacity = capacity
        options.max_entries = maxEntries
        options.max_age_ms = maxAge
        options.stale_ms = stale
        options.shards = shards
        options.segment_size = segmentSize
        options.mode = mode
        options.compression = compression
        if let clock {
            options.now_ms = TestClock.callback
            options.now_context = Unmanaged.passUnretained(clock).toOpaque()
        }
        return options
    }
}

/// shale_set_options in Swift's types.
public struct SetOptions: Sendable {
    public var flags: UInt32 = 0
    public var maxAge: Int64 = 0
    public var stale: Int64 = 0
    public var version: UInt64 = 0
    public var meta: [UInt8] = []
    public var tags: [[UInt8]] = []

    public init(
        flags: UInt32 = 0, maxAge: Int64 = 0, stale: Int64 = 0, version: UInt64 = 0,
        meta: some Bytes = "", tags: [some Bytes] = [String]()
    ) {
        self.flags = flags
        self.maxAge = maxAge
        self.stale = stale
        self.version = version
        self.meta = meta.bytes
        self.tags = tags.map(\.bytes)
    }

    public static var pinned: SetOptions { SetOptions(flags: SHALE_SET_PINNED) }
    public static var ifAbsent: SetOptions { SetOptions(flags: SHALE_SET_IF_ABSENT) }
    public static var ifPresent: SetOptions { SetOptions(flags: SHALE_SET_IF_PRESENT) }
    public static func ifVersion(_ version: UInt64) -> SetOptions {
        SetOptions(flags: SHALE_SET_IF_VERSION, version: version)
    }
    public static func age(_ maxAge: Int64, stale: Int64 = 0) -> SetOptions {
        SetOptions(maxAge: maxAge, stale: stale)
    }
    public static func tagged(_ tags: String...) -> SetOptions { SetOptions(tags: tags) }

    /// Calls the body with the struct for C; its pointers are valid only inside.
    public func withC<R>(
        newVersion: UnsafeMutablePointer<UInt64>? = nil, _ body: (UnsafePointer<shale_set_options>) -> R
    ) -> R {
        var options = shale_set_options()
        options.struct_size = UInt32(MemoryLayout<shale_set_options>.size)
        options.flags = flags
        options.max_age_ms = maxAge
        options.stale_ms = stale
        options.version = version
        options.new_version = newVersion
        return meta.withUnsafeBytes { metaBytes in
            if !metaBytes.isEmpty {
                options.meta = metaBytes.baseAddress
                options.meta_size = metaBytes.count
            }
            return withByteViews(tags) { views in
                if !views.isEmpty {
                    options.tags = views.baseAddress
                    options.tag_count = views.count
                }
                return body(&options)
            }
        }
    }
}

/// Calls the body with one shale_bytes for each list; all pointers are valid only inside.
public func withByteViews<R>(_ lists: [[UInt8]], _ body: (UnsafeBufferPointer<shale_bytes>) -> R) -> R {
    guard !lists.isEmpty else { return body(UnsafeBufferPointer(start: nil, count: 0)) }
    return lists.flatMap { $0 }.withUnsafeBytes { all in
        var views: [shale_bytes] = []
        views.reserveCapacity(lists.count)
        var offset = 0
        for list in lists {
            views.append(shale_bytes(data: list.isEmpty ? nil : all.baseAddress! + offset, size: list.count))
            offset += list.count
        }
        return views.withUnsafeBufferPointer(body)
    }
}
