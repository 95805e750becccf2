#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif
import Shale

/// How a ``ViewClient`` reaches the network. Called from any thread, several requests at once.
public protocol NetworkClientProtocol: Sendable {
    /// Begins a request. Calls `completion` once, from any thread, also after a cancellation.
    ///
    /// - Returns: A token that cancels the request; nil where there is nothing to cancel.
    func executeRequest(
        _ request: ViewRequest, completion: @escaping @Sendable (Result<NetworkResponse, NetworkError>) -> Void
    ) -> (any RequestToken)?
}

/// Cancels a request. Any thread may call it; more than once is once.
public protocol RequestToken: Sendable {
    func cancel()
}

/// A server's answer.
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
    /// Nil: none came.
    public let response: NetworkResponse?

    public init(error: any Error, request: ViewRequest, response: NetworkResponse? = nil) {
        self.error = error
        self.request = request
        self.response = response
    }

    /// A status code that is neither a success nor a "not modified" that was asked for.
    public struct UnexpectedStatus: Error, Equatable {
        public let statusCode: Int

        public init(statusCode: Int) {
            self.statusCode = statusCode
        }
    }
}

extension NetworkClientProtocol {
    /// The answer, or a `NetworkError`. A task that is cancelled cancels the request, and waits for its client no longer.
    func response(to request: ViewRequest) async throws -> NetworkResponse {
        let (answers, continuation) = AsyncStream.makeStream(of: Result<NetworkResponse, NetworkError>.self)
        let token = executeRequest(request) { answer in continuation.yield(answer) }
        return try await withTaskCancellationHandler {
            // Ends without an answer in a task that is cancelled.
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

    /// The validator of what came.
    var hash: String? { header(NetworkResponse.hashHeader) }

    /// Of `Cache-Control`, `max-age` alone counts.
    var maxAge: Age? {
        let directives = header("cache-control")?.lowercased().split { $0 == "," || $0 == " " } ?? []
        return directives.lazy.compactMap { $0.hasPrefix("max-age=") ? Int($0.dropFirst(8)) : nil }.first { $0 >= 0 }
            .map { .seconds($0) }
    }

    /// Names of headers are the same in any case.
    private func header(_ name: String) -> String? {
        headers.first { $0.key.lowercased() == name }?.value
    }
}
