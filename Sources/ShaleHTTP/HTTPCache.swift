#if HTTP
import AsyncHTTPClient
import Logging
import NIOCore
import NIOHTTP1
import ShaleCore

/// A cache for AsyncHTTPClient, following RFC 9111 and RFC 5861, in a Shale store: all processes of a machine share it,
/// and it survives restarts.
///
/// ```swift
/// let store = try Store(at: "/var/cache/site/http", options: .init(capacity: 1 << 30))
/// let cache = HTTPCache(store: store)
/// let response = try await cache.execute(HTTPClientRequest(url: "https://example.org/feed"), timeout: .seconds(10))
/// ```
///
/// - Answers GET and HEAD from the store where HTTP allows it, and validates stale responses. When several tasks
///   request the same response, in one process or in several, one request is sent; the others wait until the response
///   is stored, or until it is certain that it is not. In the same process they read a body of more than 128 KiB while
///   it arrives. If the caller that sends the request fails or is cancelled, the next one sends it.
/// - Stores a body while its callers read it, as far as the fastest of them has read and 128 KiB more. A body that
///   none of them reads to its end is not stored, unless its Content-Length is at most 128 KiB. Holds a few hundred KiB
///   of it in memory at most. If a part of a stored body was evicted, the request is sent again.
/// - While a server fails, stale responses are served at once where the policy permits that.
/// - Does not store a response that the client reached by a redirection. To store redirections as well, pass a client
///   that does not follow them.
/// - A client that decompresses bodies passes them to the cache decompressed.
/// - Requests whose Host is not their URL's have their own responses.
/// - Passes requests with Range, If-Range, If-Match, If-Unmodified-Since, a body, a TLS configuration of their own or
///   `no-store` through.
/// - Bounds what it reads: a request or a response with more than 256 fields or 32 KiB of them, 64 directives in
///   Cache-Control or 16 names in Vary, and a request with more than 16 KiB of URL, is passed through and not stored.
/// - If the store fails, requests go to their servers and the logger gets a warning.
///
/// Safe to use from any task. Several caches, in one process or in several, can share a store.
public struct HTTPCache: Sendable {
    public struct Options: Sendable {
        /// In bytes. A longer body is passed on and not stored.
        public var maxBodySize = 64 << 20
        /// The longest time that requests wait for another one for the same response. Then one of them is sent too.
        public var longestWait = Duration.seconds(10)
        /// How long requests for a response that could not be stored, or that each of them has to validate, do not
        /// wait for each other.
        public var hitForMiss = Duration.seconds(5)
        /// A URL whose server fails is requested after pauses, from 100 ms up to this. During a pause, requests get the
        /// stale response where the policy permits that; after two failures, others get the last error.
        public var longestPause = Duration.seconds(5)
        /// The timeout of a request that validates a response in the background (`stale-while-revalidate`).
        public var validationTimeout = TimeAmount.seconds(30)
        /// After which other processes send a request although this one has not stored a response.
        var leaseTime = Duration.seconds(30)
        /// The prefix of all keys, so that the store can hold other data as well.
        public var prefix = "http/"

        public init() {}
    }

    let policy: HTTPCachePolicy
    let options: Options
    let transport: any HTTPTransport
    let responses: ResponseStore
    let loads = InFlightLoads()
    let hitForMiss: HitForMiss
    let backOff: BackOff

    /// - Parameters:
    ///   - store: Remains the caller's to close. Freshness is evaluated by its clock.
    ///   - transport: Sends the requests that the store does not answer.
    ///   - logger: Gets the store's errors.
    public init(
        store: Store, transport: some HTTPTransport = HTTPClient.shared, policy: HTTPCachePolicy = .init(),
        options: Options = .init(), logger: Logger = Logger(label: "shale.http")
    ) {
        self.policy = policy
        self.options = options
        self.transport = transport
        hitForMiss = HitForMiss(for: options.hitForMiss)
        backOff = BackOff(longestPause: options.longestPause)
        responses = ResponseStore(store: store, keys: Keys(prefix: options.prefix), logger: logger)
    }

    /// Like the method of `HTTPClient`.
    public func execute(_ request: HTTPClientRequest, timeout: TimeAmount, logger: Logger? = nil) async throws
        -> HTTPClientResponse
    {
        try await execute(request, deadline: .now() + timeout, logger: logger)
    }

    /// Like the method of `HTTPClient`. Throws the client's error unless a stored response may be served instead. With
    /// `only-if-cached`, returns 504 if no stored response can be used.
    public func execute(_ request: HTTPClientRequest, deadline: NIODeadline, logger: Logger? = nil) async throws
        -> HTTPClientResponse
    {
        let head = RequestHead(request.headers)
        let host = Keys.otherHost(request.headers, request.url), url = Keys.normalised(request.url) + host
        let exchange = Exchange(
            cache: self, request: request, head: head, url: url, host: host, deadline: deadline, logger: logger)
        let isOnlyCached = head.control.has(.onlyIfCached)
        if request.body == nil, request.tlsConfiguration == nil, policy.concerns(request.method, head),
            url.utf8.count <= Limits.url
        {
            return try await exchange.run(isOnlyCached: isOnlyCached)
        }
        return isOnlyCached ? Exchange.gatewayTimeout : try await exchange.passThrough()
    }

    /// Removes all stored responses of a URL. Responses in flight are not stored.
    /// - Parameter host: The Host of the requests, if they have their own.
    public func invalidate(_ url: String, host: String? = nil) {
        let host = Keys.otherHost(HTTPHeaders(host.map { [("Host", $0)] } ?? []), url)
        responses.invalidate(Keys.normalised(url) + host)
    }
}
#endif
