import CShalePlatform

/// What a read may do and returns.
public struct ReadOptions: OptionSet, Sendable {
    public let rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }
    /// Also what is past its age but kept.
    public static let stale = ReadOptions(rawValue: 1)
    /// Leave recency and counters alone.
    public static let peek = ReadOptions(rawValue: 2)
    /// All but the bytes.
    public static let info = ReadOptions(rawValue: 4)
}

/// Why there is nothing for a reader, as bits of the C interface.
public struct Miss: Equatable, Sendable {
    public let rawValue: UInt8
    public static let absent = Miss(rawValue: 0)
    /// Past its age, and not asked for or not kept any longer.
    public static let expired = Miss(rawValue: 4)
    /// One of its tags was invalidated.
    public static let invalidated = Miss(rawValue: 8)
    /// It was damaged.
    public static let damaged = Miss(rawValue: 16)

    /// Where it is counted.
    @inline(__always) var counter: Int { IndexHead.misses &+ Int(rawValue) &* 2 }
}

/// What a read answers, and where that is counted. (By a constant for each way out: a hit and a miss need not look.)
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

/// What is known of a value that was found.
public struct Found: Sendable {
    public var size = 0
    public var metaSize = 0
    /// Milliseconds since 1970.
    public var created: Int64 = 0
    /// Milliseconds since 1970; `Int64.max`: never.
    public var expires: Int64 = 0
    public var version: UInt64 = 0
    /// Bytes that the value takes after compression.
    public var storedSize: UInt64 = 0
    public var isStale = false
    public var isPinned = false
    /// Where none was.
    public var miss = Miss.absent
    public init() {}
}

/// A caller's buffer, grown as getline(3) grows its own: value first, meta behind it.
public struct ValueBuffer {
    public var data: UnsafeMutableRawPointer?
    public var capacity: Int
    @inline(__always) public init(data: UnsafeMutableRawPointer? = nil, capacity: Int = 0) {
        self.data = data
        self.capacity = capacity
    }

    /// At least `count` bytes. What was in it is lost. False where there is no memory.
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
