#if !hasFeature(Embedded)
import CShalePlatform

/// A persistent cache of bytes, shared by any number of threads and processes.
///
/// ```swift
/// let store = try Store(at: "/var/cache/app")
/// try store.insert("value", for: "key", maxAge: .seconds(60), tags: ["news"])
/// let bytes = try store.value(for: "key")
/// ```
///
/// Any thread may call every method. A completed `insert` survives `kill -9`; a power failure may take what was written
/// after the last `sync()` or orderly close, and what a full store has moved or evicted since: see `sync()`. A store
/// may evict any entry to make room: keep the original data elsewhere. The store closes when its last reference is
/// released, or by `close()`.
public final class Store: Sendable {
    /// The store's directory; nil: in memory.
    public let directory: String?
    let engine: Engine
    private let clock: ClockBox?
    let buffers = BufferPool()
    let evictionObservers = EvictionObservers()
    let waitObservers: WaitObservers
    private let calls = InFlightCalls()

    /// How a store is opened. Every default is stated here.
    public struct Options: Sendable {
        /// Bytes on disk, all files together, at least 1 MiB. Nil: 1 GiB for a new store, unchanged for an existing
        /// one.
        public var capacity: Int?
        /// For a new store: the capacity up to which each process that opens it reserves address space, so that it can
        /// grow with its index. Growing beyond that rebuilds the index. Nil, or more than that: four times its
        /// capacity.
        public var reserveCapacity: Int?
        /// Nil: as many as fit.
        public var maxEntries: Int?
        /// Default age of an entry. Nil: the one set at creation, or forever.
        public var maxAge: Age?
        /// How long an entry is kept past its age. Nil: as set at creation, or not at all.
        public var staleFor: Age?
        /// Nil: chosen from the capacity; one up to 128 MiB or 65,536 entries.
        public var shards: Int?
        /// Bytes, a power of two from 128 KiB to 16 MiB. Nil: chosen from the capacity.
        public var segmentSize: Int?
        /// Permission bits of new files.
        public var permissions: UInt32 = 0o600
        public var compression: Compression = .dictionary
        /// Which entries a full store evicts first. Chosen when the store is created; opening it with another one is an
        /// error. Nil: least recently used for a new store, unchanged for an existing one.
        public var eviction: Eviction?
        public var isReadOnly = false
        /// Fail instead of creating.
        public var mustExist = false
        /// Whether the last close makes everything durable.
        public var syncsAtClose = true
        /// How long a call waits for a lock that another process or thread holds, at least a millisecond. Then it
        /// throws an error with the code `busy`, which names the process, and has changed nothing. A lock is normally
        /// held for less than a millisecond, so the holder was probably stopped in the middle of a call (SIGSTOP, a
        /// debugger, a frozen cgroup). Calls that work on the whole store may have done part of it; call them again.
        /// Opening waits as long for another process that opens or closes. Nil: without limit.
        public var lockTimeout: Duration? = .seconds(10)
        /// Called once a call has waited for a lock for a second, on its thread, with a sentence that names the process
        /// that holds it; at most once a minute for each process. Must not use the store. Nil: the sentence is written
        /// to standard error, unless events of a `Cache` in the store are being read.
        public var onWait: (@Sendable (_ sentence: String) -> Void)?
        /// Milliseconds since 1970. Nil: the system's wall clock. Decides the freshness of every entry that this store
        /// reads.
        public var now: (@Sendable () -> Int64)?

        public init(capacity: Int? = nil, maxEntries: Int? = nil, maxAge: Age? = nil, staleFor: Age? = nil) {
            self.capacity = capacity
            self.maxEntries = maxEntries
            self.maxAge = maxAge
            self.staleFor = staleFor
        }
    }

    /// Opens the store in a directory, creating it and missing parents; nil: a new one in memory.
    public init(at directory: String?, options: Options = Options()) throws(ShaleError) {
        self.directory = directory
        var configuration = Configuration()
        configuration.capacity = UInt64(max(0, options.capacity ?? 0))
        configuration.reserveCapacity = UInt64(max(0, options.reserveCapacity ?? 0))
        configuration.maxEntries = UInt64(max(0, options.maxEntries ?? 0))
        let now = options.now ?? { shim_now_ms() }
        configuration.maxAge = options.maxAge?.milliseconds(from: now()) ?? 0
        configuration.stale = options.staleFor?.milliseconds(from: now()) ?? 0
        configuration.shards = UInt32(clamping: options.shards ?? 0)
        configuration.segmentSize = UInt32(clamping: options.segmentSize ?? 0)
        configuration.mode = options.permissions
        configuration.compression = options.compression
        configuration.eviction = options.eviction
        configuration.isReadOnly = options.isReadOnly
        configuration.mustExist = options.mustExist
        configuration.syncsAtClose = options.syncsAtClose
        if let timeout = options.lockTimeout {
            configuration.waits.limit = timeout == .zero ? 1 : timeout.wholeMilliseconds
        }
        waitObservers = WaitObservers(options.onWait)
        waitObservers.listen(to: &configuration.waits)
        clock = options.now.map(ClockBox.init)
        if let clock {
            configuration.clock = { Unmanaged<ClockBox>.fromOpaque($0.unsafelyUnwrapped).takeUnretainedValue().now() }
            configuration.clockContext = Unmanaged.passUnretained(clock).toOpaque()
        }
        let settled = configuration
        engine =
            if let directory {
                try directory.withPath { path throws(ShaleError) in
                    try throwing(in: directory) { () throws(Failure) in try Engine.open(path, settled) }
                }
            } else {
                try throwing(in: directory) { () throws(Failure) in try Engine.open(nil, settled) }
            }
        engine.ref.pointee.evictionListener = evictionObservers.listener
    }

    /// Opens the store in a directory with the limits that it has, or creates one with those of the options.
    package static func withOwnLimits(at directory: String, options: Options) throws(ShaleError) -> Store {
        var existing = options
        existing.capacity = nil
        existing.maxEntries = nil
        existing.mustExist = true
        do throws(ShaleError) { return try Store(at: directory, options: existing) } catch {
            if error.errno != SHIM_ENOENT { throw error }
            return try Store(at: directory, options: options)
        }
    }

    /// The time by which this store evaluates ages, in milliseconds since 1970.
    public var now: Int64 { Time48.publicPoint(Time48.point(clock?.now() ?? shim_now_ms())) }

    deinit { try? close() }

    /// Closes the store: calls under way end first, and later ones throw the code `closed`. The last process to close
    /// syncs. Must not be called from the store's clock.
    public func close() throws(ShaleError) {
        guard calls.close() else { return }
        buffers.free()
        try throwing(in: directory) { () throws(Failure) in try engine.close() }
    }

    /// Runs a call of the engine, which cannot be closed until it has returned.
    @inline(__always)
    func call<R>(_ body: () throws(Failure) -> R) throws(ShaleError) -> R {
        guard calls.enter() else { throw closed() }
        defer { calls.leave() }
        return try throwing(in: directory, body)
    }

    @inline(never)
    private func closed() -> ShaleError {
        ShaleError(code: .closed, message: "\(directory ?? "memory"): the store is closed; open another one")
    }
}

extension String {
    fileprivate func withPath<R>(_ body: (UnsafePointer<CChar>) throws(ShaleError) -> R) throws(ShaleError) -> R {
        var result: Result<R, ShaleError>?
        withCString { path in
            do throws(ShaleError) { result = .success(try body(path)) } catch { result = .failure(error) }
        }
        return try result.unsafelyUnwrapped.get()
    }
}

private final class ClockBox: Sendable {
    let now: @Sendable () -> Int64
    init(_ now: @escaping @Sendable () -> Int64) { self.now = now }
}
#endif
