#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif
import Shale

/// The network access of a ``ViewClient``. Called from any thread, concurrently.
public protocol NetworkClientProtocol: Sendable {
    /// Begins a request. Calls `completion` once, from any thread, also after a cancellation.
    ///
    /// - Returns: A token that cancels the request; nil if the request cannot be cancelled.
    func executeRequest(
        _ request: ViewRequest, completion: @escaping @Sendable (Result<NetworkResponse, NetworkError>) -> Void
    ) -> (any RequestToken)?
}

/// Cancels a request. Safe to call from any thread; further calls have no effect.
public protocol RequestToken: Sendable {
    func cancel()
}

/// A response of a server.
public struct NetworkResponse: Sendable {
    public let data: Data
    public let statusCode: Int
    public let headers: [String: String]

    public init(data: Data, statusCode: Int = 200, headers: [String: String] = [:]) {
        self.data = data
        self.statusCode = statusCode
        self.headers = headers
    }
}

/// Why a request failed.
public struct NetworkError: Error {
    public let error: any Error
    public let request: ViewRequest
    /// Nil: there was no response.
    public let response: NetworkResponse?

    public init(error: any Error, request: ViewRequest, response: NetworkResponse? = nil) {
        self.error = error
        self.request = request
        self.response = response
    }

    /// A status code other than 2xx, and other than 304 for a request with a hash.
    public struct UnexpectedStatus: Error, Equatable {
        public let statusCode: Int

        public init(statusCode: Int) {
            self.statusCode = statusCode
        }
    }
}

extension NetworkClientProtocol {
    /// The response; throws `NetworkError`. Cancelling the task cancels the request and ends the wait.
    func response(to request: ViewRequest) async throws -> NetworkResponse {
        let (answers, continuation) = AsyncStream.makeStream(of: Result<NetworkResponse, NetworkError>.self)
        let token = executeRequest(request) { answer in continuation.yield(answer) }
        return try await withTaskCancellationHandler {
            // The stream ends without an element if the task is cancelled.
            for await answer in answers { return try answer.get() }
            throw CancellationError()
        } onCancel: {
            token?.cancel()
        }
    }
}

extension NetworkResponse {
    static let hashHeader = "beagle-hash"

    var isSuccess: Bool { 200..<300 ~= statusCode }
    var isNotModified: Bool { statusCode == 304 }

    /// The validator of the component.
    var hash: String? { header(NetworkResponse.hashHeader) }

    /// From `Cache-Control: max-age`. Other directives are ignored.
    var maxAge: Age? {
        let directives = header("cache-control")?.lowercased().split { $0 == "," || $0 == " " } ?? []
        return directives.lazy.compactMap { $0.hasPrefix("max-age=") ? Int($0.dropFirst(8)) : nil }.first { $0 >= 0 }
            .map { .seconds($0) }
    }

    /// Header names are case-insensitive.
    private func header(_ name: String) -> String? {
        headers.first { $0.key.lowercased() == name }?.value
    }
}
