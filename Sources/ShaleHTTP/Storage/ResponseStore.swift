#if HTTP
import Logging
import NIOCore
import NIOHTTP1
import ShaleCore

/// Responses in a store. If the store fails, the response counts as missing, and the logger gets the error.
struct ResponseStore: Sendable {
    /// In bytes. A longer body is stored in chunks of this size, which bounds the memory that it takes.
    static let chunkSize = 128 << 10

    let store: Store
    let keys: Keys
    let logger: Logger

    /// Where the responses to a request are stored, if at all.
    struct Location {
        let url: String
        let selector: Selector?
        /// One for each set of names in the selector.
        let candidates: [String]
        /// Of the request: requests with the same key are coalesced.
        let key: String
        /// Whether the store fails.
        var isLost = false
    }

    /// Where a response is stored.
    enum Place {
        case key(String)
        /// The URL was invalidated after the fence was taken.
        case invalidated
        /// The store fails.
        case lost
    }

    struct Found {
        var record: StoredRecord
        let key: String
        let version: UInt64
        var response: StoredResponse { record.response }
    }

    var now: Int64 { store.now }

    // MARK: Reading

    func location(of url: String, _ request: HTTPHeaders) -> Location {
        let key = keys.selector(url)
        var isLost = true
        let known = attempt {
            let known = try selector(key)
            isLost = false
            return known
        }
        guard let (selector, _) = known else {
            return Location(url: url, selector: nil, candidates: [], key: key, isLost: isLost)
        }
        let candidates = selector.varies.map { keys.response(selector.generation, $0, to: request) }
        return Location(
            url: url, selector: selector, candidates: candidates,
            key: candidates.count == 1
                ? candidates[0] : keys.response(selector.generation, selector.union, to: request))
    }

    private func selector(_ key: String) throws -> (Selector, version: UInt64)? {
        try store.withValue(for: key) { entry, bytes in
            Selector(ByteBuffer(bytes: bytes)).map { ($0, entry.version) }
        } ?? nil
    }

    /// The latest of the responses that match (RFC 9111, 4.1). Nil also if a part of the body has been evicted. A Date
    /// in the future makes none later than it was received.
    func find(_ location: Location) -> Found? {
        let all = location.candidates.compactMap(find)
        let latest = all.max { one, other in
            (min(one.response.date, one.response.receivedAt), one.response.receivedAt)
                < (min(other.response.date, other.response.receivedAt), other.response.receivedAt)
        }
        guard let found = latest else { return nil }
        if case .chunks(let id, let count) = found.record.body {
            let isWhole = (0..<count).allSatisfy { index in
                attempt { try store.entry(for: keys.chunk(id, index)) != nil } == true
            }
            guard isWhole else { return nil }
        }
        return found
    }

    private func find(_ key: String) -> Found? {
        attempt {
            try store.withValue(for: key) { entry, bytes in
                StoredRecord(ByteBuffer(bytes: bytes)).map { Found(record: $0, key: key, version: entry.version) }
            } ?? nil
        }
    }

    func chunk(_ id: UInt64, _ index: Int) throws -> ByteBuffer? {
        try store.withValue(for: keys.chunk(id, index)) { _, bytes in ByteBuffer(bytes: bytes) }
    }

    // MARK: Writing

    /// Taken before sending a request: the response is stored only if the URL has not been invalidated since.
    func fence(_ url: String) -> Condition? { attempt { try store.fence(for: keys.selector(url)) } }

    /// The place of a response with these names in its Vary, which the URL's selector now makes reachable.
    /// - Parameters:
    ///   - fence: Nil if the store failed.
    ///   - prepare: Called before the selector changes, with the key of a request's location from then on.
    func place(
        for vary: Vary?, to request: HTTPHeaders, at location: Location, since fence: Condition?,
        _ prepare: (String) -> Void
    ) -> Place {
        guard let vary, let fence else { return .lost }
        return attempt {
            try key(for: vary, to: request, at: location, since: fence, prepare).map(Place.key) ?? .invalidated
        } ?? .lost
    }

    private func key(
        for vary: Vary, to request: HTTPHeaders, at location: Location, since fence: Condition,
        _ prepare: (String) -> Void
    ) throws -> String? {
        guard let known = location.selector else {
            let selector = Selector(generation: .random(in: 1 ... .max), varies: [vary])
            prepare(keys.response(selector.generation, vary, to: request))
            guard try write(selector.encoded, keys.selector(location.url), fence) else { return nil }
            return keys.response(selector.generation, vary, to: request)
        }
        let key = keys.response(known.generation, vary, to: request)
        if known.varies.contains(vary) { return key }
        // Others may add a set meanwhile.
        for _ in 0..<Limits.varySets {
            guard let (current, version) = try selector(keys.selector(location.url)),
                current.generation == known.generation
            else { return nil }
            if current.varies.contains(vary) { return key }
            var longer = current
            longer.add(vary)
            prepare(keys.response(longer.generation, longer.union, to: request))
            if try write(longer.encoded, keys.selector(location.url), .ifVersion(version)) { return key }
        }
        return nil
    }

    /// Stores a response after its chunks, if any. If its URL has been invalidated, no selector makes it reachable.
    /// Returns false if the store fails.
    func store(_ record: StoredRecord, _ key: String) -> Bool { set(record.encoded, key) }

    /// Replaces the head of a stored response, unless the response itself has been replaced.
    func replaceHead(of found: Found) { _ = set(found.record.encoded, found.key, .ifVersion(found.version)) }

    func storeChunk(_ bytes: ByteBuffer, _ id: UInt64, _ index: Int) -> Bool {
        set(bytes, keys.chunk(id, index))
    }

    func removeChunks(_ id: UInt64, _ count: Int) {
        for index in 0..<count { attempt { try store.removeValue(for: keys.chunk(id, index)) } }
    }

    func remove(_ found: Found) { attempt { try store.removeValue(for: found.key, ifVersion: found.version) } }

    /// Removes all responses of a URL; responses in flight are not stored.
    func invalidate(_ url: String) { attempt { try store.removeValue(for: keys.selector(url)) } }

    private func set(_ value: ByteBuffer, _ key: String, _ condition: Condition = .always) -> Bool {
        attempt { try write(value, key, condition) } == true
    }

    /// Returns false if the condition does not hold. Entries do not expire: the store evicts the least recently used
    /// when it is full.
    private func write(_ value: ByteBuffer, _ key: String, _ condition: Condition) throws -> Bool {
        try value.withUnsafeReadableBytes {
            try store.insert($0, for: key, maxAge: .forever, condition: condition)
        } != nil
    }

    // MARK: Leases

    enum LeaseAnswer {
        case given(Lease)
        /// By another task or process.
        case held
        case failed
    }

    func lease(_ key: String, for time: Duration) -> LeaseAnswer {
        attempt { try store.lease(key, for: time).map(LeaseAnswer.given) ?? .held } ?? .failed
    }

    func release(_ lease: Lease, of key: String) { attempt { try store.release(lease, of: key) } }

    @discardableResult
    private func attempt<R>(_ body: () throws -> R?) -> R? {
        do { return try body() } catch {
            logger.warning("the store of HTTP responses fails: \(error)")
            return nil
        }
    }
}
#endif
