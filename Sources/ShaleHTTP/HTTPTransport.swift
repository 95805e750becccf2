#if HTTP
import AsyncHTTPClient
import Logging
import NIOCore

/// Sends the requests that the cache does not answer: an `HTTPClient`, or a substitute in tests.
public protocol HTTPTransport: Sendable {
    /// The returned body throws if it breaks off.
    func execute(_ request: HTTPClientRequest, deadline: NIODeadline, logger: Logger?) async throws
        -> HTTPClientResponse
}

extension HTTPClient: HTTPTransport {}

/// An error of the cache itself. Errors of the client are passed on unchanged.
public enum HTTPCacheError: Error, Equatable, CustomStringConvertible {
    /// A part of a large stored body was evicted while the caller was reading it, or the caller read nothing of a body
    /// that could not be stored for `longestWait`, while others waited for more of it. Repeat the request: it is sent
    /// to the server.
    case bodyLost

    public var description: String {
        "a part of the body was evicted before it was read, or the caller read too slowly; repeat the request, or raise the store's capacity"
    }
}
#endif
