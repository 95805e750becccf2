import AsyncHTTPClient
import Logging
import NIOCore
import NIOHTTP1
import ShaleCore

/// A cache in front of AsyncHTTPClient, by RFC 9111 and RFC 5861, in a Shale store: shared by all processes of a machine, and there after
/// a restart.
///
/// ```swift
/// let store = try Store(at: "/var/cache/site/http", options: .init(capacity: 1 << 30))
/// let cache = HTTPCache(store: store)
/// let response = try await cache.execute(HTTPClientRequest(url: "https://example.org/feed"), timeout: .seconds(10))
/// ```
///
/// - It answers GET and HEAD from the store where HTTP allows it, and validates what is stale. Where many tasks ask for the same, in one
///   process or in many, one request is sent; the others wait until its response is stored, or is known not to be.
/// - A body is stored as it is read, and counts when it has come whole: read it to its end. In memory there are some hundred KiB of
///   it at most. A stored body that was evicted in part is loaded anew.
/// - A response to which the client was redirected is not stored. To have redirections stored too, give the cache a client that does
///   not follow them.
/// - A client that decompresses gives the cache what it gives you: the body without its encoding.
/// - Requests with Range, If-Range, If-Match, If-Unmodified-Since, a body or `no-store` are passed through.
/// - A store that fails is one that has nothing; the logger gets a warning.
///
/// Any task may use a cache, and several caches, in one process or in many, a store.
public struct HTTPCache: Sendable {
    public struct Options: Sendable {
        /// Bytes. A longer body is passed on and not stored.
        public var maxBodySize = 64 << 20
        /// How long a request waits at most for another one that loads the same. Then it sends its own.
        public var longestWait = Duration.seconds(10)
        /// The deadline of a request that validates what was served stale.
        public var validationTimeout = TimeAmount.seconds(30)
        /// What the store's keys begin with, so that other things can be in it.
        public var prefix = "http/"

        public init() {}
    }

    let policy: HTTPCachePolicy
    let options: Options
    let transport: any HTTPTransport
    let responses: ResponseStore
    let turns = Turns()

    /// - Parameters:
    ///   - store: Whose it is, closes it. Its clock tells what is fresh.
    ///   - transport: Sends what the store does not answer.
    ///   - logger: Gets what the store fails to do.
    public init(
        store: Store, transport: some HTTPTransport = HTTPClient.shared, policy: HTTPCachePolicy = .init(),
        options: Options = .init(), logger: Logger = Logger(label: "shale.http")
    ) {
        self.policy = policy
        self.options = options
        self.transport = transport
        responses = ResponseStore(store: store, keys: Keys(prefix: options.prefix), logger: logger)
    }

    /// As `HTTPClient`'s.
    public func execute(_ request: HTTPClientRequest, timeout: TimeAmount, logger: Logger? = nil) async throws
        -> HTTPClientResponse
    {
        try await execute(request, deadline: .now() + timeout, logger: logger)
    }

    /// As `HTTPClient`'s. Throws what the client throws where nothing that is stored may serve instead. With `only-if-cached`, a 504
    /// says that nothing is stored.
    public func execute(_ request: HTTPClientRequest, deadline: NIODeadline, logger: Logger? = nil) async throws
        -> HTTPClientResponse
    {
        let exchange = Exchange(
            cache: self, request: request, url: Keys.normalised(request.url), deadline: deadline, logger: logger)
        let isOnlyCached = CacheControl(request.headers).has("only-if-cached")
        if request.body == nil, policy.concerns(request.method, request.headers) {
            return try await exchange.run(isOnlyCached: isOnlyCached)
        }
        return isOnlyCached ? Exchange.gatewayTimeout : try await exchange.passThrough()
    }

    /// Removes what is stored of a URL, and keeps responses that are on their way from being stored.
    public func invalidate(_ url: String) { responses.invalidate(Keys.normalised(url)) }
}
