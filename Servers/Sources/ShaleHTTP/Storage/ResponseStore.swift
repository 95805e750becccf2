import Logging
import NIOCore
import NIOHTTP1
import ShaleCore

/// Responses in a store. A store that fails is one that has nothing: requests go to their servers, and the logger is told why.
struct ResponseStore: Sendable {
    /// Bytes. A longer body is stored in chunks of this size, so that no more of it is in memory.
    static let chunkSize = 128 << 10

    let store: Store
    let keys: Keys
    let logger: Logger

    /// Where the response to a request is, if it is there.
    struct Place {
        let url: String
        let selector: Selector?
        /// The response's own key where the selector is known, else the selector's: what is loaded once for all who ask.
        let key: String
    }

    struct Found {
        var record: StoredRecord
        let key: String
        let version: UInt64
        var response: StoredResponse { record.response }
    }

    var now: Int64 { store.now }

    // MARK: Reading

    func place(of url: String, _ request: HTTPHeaders) -> Place {
        let key = keys.selector(url)
        let selector = attempt {
            try store.withValue(for: key) { _, bytes in Selector(ByteBuffer(bytes: bytes)) } ?? nil
        }
        guard let selector else { return Place(url: url, selector: nil, key: key) }
        let response = keys.response(selector, to: selector.vary.selection(from: request))
        return Place(url: url, selector: selector, key: response)
    }

    /// Nil also where a part of the body has been evicted.
    func find(_ place: Place) -> Found? {
        guard place.selector != nil else { return nil }
        let read = attempt {
            try store.withValue(for: place.key) { entry, bytes in
                StoredRecord(ByteBuffer(bytes: bytes)).map { Found(record: $0, key: place.key, version: entry.version) }
            } ?? nil
        }
        guard let found = read else { return nil }
        if case .chunks(let id, let count) = found.record.body {
            let isWhole = (0..<count).allSatisfy { index in
                attempt { try store.entry(for: keys.chunk(id, index)) != nil } == true
            }
            guard isWhole else { return nil }
        }
        return found
    }

    func chunk(_ id: UInt64, _ index: Int) throws -> ByteBuffer? {
        try store.withValue(for: keys.chunk(id, index)) { _, bytes in ByteBuffer(bytes: bytes) }
    }

    // MARK: Writing

    /// Taken before a request is sent: what comes is stored only if the URL was not invalidated since.
    func fence(_ url: String) -> Condition? { attempt { try store.fence(for: keys.selector(url)) } }

    /// Makes a response current, whose chunks, if any, are stored. False where its URL was invalidated since the fence.
    @discardableResult
    func store(_ record: StoredRecord, _ request: HTTPHeaders, at place: Place, since fence: Condition) -> Bool {
        guard let vary = Vary(record.response.headers) else { return false }
        if let selector = place.selector, selector.vary == vary {
            return set(record.encoded, keys.response(selector, to: vary.selection(from: request)))
        }
        // The response first: the selector makes it current.
        let selector = Selector(generation: .random(in: 1 ... .max), vary: vary)
        guard set(record.encoded, keys.response(selector, to: vary.selection(from: request))) else { return false }
        return set(selector.encoded, keys.selector(place.url), fence)
    }

    /// Another head for the same body. Nothing where another response is there by now.
    func replaceHead(of found: Found) { _ = set(found.record.encoded, found.key, .ifVersion(found.version)) }

    func storeChunk(_ bytes: ByteBuffer, _ id: UInt64, _ index: Int) -> Bool {
        set(bytes, keys.chunk(id, index))
    }

    func removeChunks(_ id: UInt64, _ count: Int) {
        for index in 0..<count { attempt { try store.remove(keys.chunk(id, index)) } }
    }

    func remove(_ found: Found) { attempt { try store.remove(found.key, version: found.version) } }

    /// All responses of a URL, and those that are on their way.
    func invalidate(_ url: String) { attempt { try store.remove(keys.selector(url)) } }

    /// False where the condition does not hold. The least recently used leaves where there is no room, so nothing has an age.
    private func set(_ value: ByteBuffer, _ key: String, _ condition: Condition = .always) -> Bool {
        attempt {
            try value.withUnsafeReadableBytes {
                try store.set($0, for: key, maxAge: .forever, condition: condition)
            }
        } != nil
    }

    // MARK: Leases

    enum LeaseAnswer {
        case given(Lease)
        /// Another has it.
        case taken
        case failed
    }

    func lease(_ key: String, for time: Duration) -> LeaseAnswer {
        attempt { try store.lease(key, for: time).map(LeaseAnswer.given) ?? .taken } ?? .failed
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
