import AsyncHTTPClient
import Logging
import NIOCore

/// What sends a request that the cache does not answer: an `HTTPClient`, or something else in tests.
public protocol HTTPTransport: Sendable {
    /// The body that is returned throws where it breaks off.
    func execute(_ request: HTTPClientRequest, deadline: NIODeadline, logger: Logger?) async throws
        -> HTTPClientResponse
}

extension HTTPClient: HTTPTransport {}

/// What can go wrong in the cache itself. Errors of the client are thrown as they are.
public enum HTTPCacheError: Error, Equatable, CustomStringConvertible {
    /// A part of a large stored body was evicted while it was read. Ask again: it is loaded anew.
    case bodyLost

    public var description: String {
        "a part of the stored body was evicted while it was read; ask again, or give the store more room"
    }
}
