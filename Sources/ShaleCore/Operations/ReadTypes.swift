import CShalePlatform

public struct ReadOptions: OptionSet, Sendable {
    public let rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }
    /// Also returns an entry past its age that is still kept.
    public static let stale = ReadOptions(rawValue: 1)
    /// Does not change recency or counters.
    public static let peek = ReadOptions(rawValue: 2)
    /// Returns all but the bytes.
    public static let info = ReadOptions(rawValue: 4)
}

/// Why a read misses, as bits of the C interface.
public struct Miss: Equatable, Sendable {
    public let rawValue: UInt8
    public static let absent = Miss(rawValue: 0)
    /// Past its age, and no stale entry was asked for or kept.
    public static let expired = Miss(rawValue: 4)
    /// One of its tags was invalidated.
    public static let invalidated = Miss(rawValue: 8)
    public static let damaged = Miss(rawValue: 16)

    @inline(__always) var counter: Int { IndexHead.misses &+ Int(rawValue) &* 2 }
}

/// A read's status and its counter, a constant on each path: a hit and a miss need not look it up.
struct Answer {
    let status: Status
    let counter: Int
    @inline(__always) init(_ status: Status, _ counter: Int) {
        self.status = status
        self.counter = counter
    }

    @inline(__always) static func miss(_ why: Miss, _ found: inout Found) -> Answer {
        found.miss = why
        return Answer(.miss, why.counter)
    }
}

public struct Found: Sendable {
    public var size = 0
    public var metaSize = 0
    /// Milliseconds since 1970.
    public var created: Int64 = 0
    /// Milliseconds since 1970; `Int64.max`: never.
    public var expires: Int64 = 0
    public var version: UInt64 = 0
    /// Bytes of the value after compression.
    public var storedSize: UInt64 = 0
    public var isStale = false
    public var isPinned = false
    /// The reason if none was found.
    public var miss = Miss.absent
    #if !hasFeature(Embedded)
    var bookmark = Bookmark.none
    #endif
    public init() {}
}

/// A caller's buffer, grown as by getline(3): the value, followed by its meta.
public struct ValueBuffer {
    public var data: UnsafeMutableRawPointer?
    public var capacity: Int
    @inline(__always) public init(data: UnsafeMutableRawPointer? = nil, capacity: Int = 0) {
        self.data = data
        self.capacity = capacity
    }

    /// Provides `count` bytes; discards the content. Returns false without memory.
    @inline(__always)
    mutating func reserve(_ count: Int) -> Bool { count <= capacity && capacity != 0 || grow(count) }
    @inline(never)
    private mutating func grow(_ count: Int) -> Bool {
        let wanted = max(256, count + count / 8)
        guard let fresh = shim_malloc(wanted) else { return false }
        shim_free(data)
        data = fresh
        capacity = wanted
        return true
    }
    @inline(__always) var start: Memory { data.unsafelyUnwrapped }
}
