#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif
import Shale

/// The part of a view client that screens need, so that tests can substitute another one.
public protocol ViewClientProtocol<Component>: Sendable {
    associatedtype Component: Sendable

    /// See ``ViewClient/fetch(url:additionalData:completion:)``.
    @discardableResult
    func fetch(
        url: String, additionalData: HttpAdditionalData?,
        completion: @escaping @Sendable (Result<Component, ViewRequest.Error>) -> Void
    ) -> (any RequestToken)?
    /// See ``ViewClient/fetch(url:additionalData:)``.
    nonisolated(nonsending) func fetch(url: String, additionalData: HttpAdditionalData?) async throws -> Component
    /// See ``ViewClient/prefetch(url:additionalData:)``.
    func prefetch(url: String, additionalData: HttpAdditionalData?)
}

extension ViewClientProtocol {
    /// The component, through the other `fetch`. Cancelling the task cancels the request.
    public nonisolated(nonsending) func fetch(url: String, additionalData: HttpAdditionalData? = nil) async throws
        -> Component
    {
        let (results, continuation) = AsyncStream.makeStream(of: Result<Component, ViewRequest.Error>.self)
        let token = fetch(url: url, additionalData: additionalData) { continuation.yield($0) }
        return try await withTaskCancellationHandler {
            for await result in results { return try result.get() }
            throw CancellationError()
        } onCancel: {
            token?.cancel()
        }
    }
}

/// Beagle's view client: components by URL, from a cache or the network.
///
/// ```swift
/// let screens = try Cache<ViewKey, Screen>(at: directory, maxAge: .seconds(300))
/// let client = ViewClient(cache: screens, networkClient: network, urlBuilder: UrlBuilder(baseUrl: server))
/// client.prefetch(url: "/home")
/// let home = try await client.fetch(url: "/home")
/// ```
///
/// At most one request runs for a component, including prefetches; all callers share it. Failures are not stored. The
/// max age of a component is that of the response's `Cache-Control: max-age`, or else the cache's default. The
/// response's `beagle-hash` is stored with the component. Requests for a stale component send the hash, and the
/// response 304 renews the stored component. If the cache fails, components come from the network.
///
/// All methods are safe to call from any thread.
public struct ViewClient<Component: Codable & Sendable>: ViewClientProtocol {
    /// Holds the components.
    public let cache: Cache<ViewKey, Component>
    private let networkClient: (any NetworkClientProtocol)?
    private let urlBuilder: any UrlBuilderProtocol
    private let coder: Coder<Component>
    private let key: @Sendable (_ url: String, HttpAdditionalData?) -> ViewKey

    /// - Parameters:
    ///   - cache: Holds the components.
    ///   - networkClient: Nil: components come only from the cache.
    ///   - urlBuilder: Builds request URLs from callers' paths.
    ///   - coder: Decodes responses. The cache's own coder encodes stored components.
    ///   - key: The key of a component. By default it has the whole request: the same URL with another method, other
    ///     headers or another body is another component.
    public init(
        cache: Cache<ViewKey, Component>, networkClient: (any NetworkClientProtocol)?,
        urlBuilder: any UrlBuilderProtocol = UrlBuilder(),
        coder: Coder<Component> = .standard,
        key: @escaping @Sendable (_ url: String, HttpAdditionalData?) -> ViewKey = {
            ViewKey(url: $0, additionalData: $1)
        }
    ) {
        self.cache = cache
        self.networkClient = networkClient
        self.urlBuilder = urlBuilder
        self.coder = coder
        self.key = key
    }

    /// The fresh component from the cache, or the component from the network.
    ///
    /// - Parameters:
    ///   - url: A path or URL for the URL builder.
    ///   - additionalData: Method, headers and body of the request.
    ///   - completion: Called once: before `fetch` returns if it returns nil, otherwise from any thread. After a
    ///     cancellation it gets a `networkError` with a `CancellationError`.
    /// - Returns: A token that stops waiting. The request is cancelled after the last caller has stopped waiting.
    @discardableResult
    public func fetch(
        url: String, additionalData: HttpAdditionalData? = nil,
        completion: @escaping @Sendable (Result<Component, ViewRequest.Error>) -> Void
    ) -> (any RequestToken)? {
        let key = key(url, additionalData)
        if let component = try? cache.value(for: key) {
            completion(.success(component))
            return nil
        }
        let origin: Origin
        do { origin = try self.origin(of: url, additionalData) } catch {
            completion(.failure(error))
            return nil
        }
        return Wait(
            task: Task {
                do { completion(.success(try await load(key) { origin })) } catch {
                    completion(
                        .failure(
                            error as? ViewRequest.Error
                                ?? .networkError(NetworkError(error: error, request: origin.request))))
                }
            })
    }

    /// The fresh component from the cache, or the component from the network. Throws `ViewRequest.Error`, and
    /// `CancellationError` in a cancelled task.
    public nonisolated(nonsending) func fetch(url: String, additionalData: HttpAdditionalData? = nil) async throws
        -> Component
    {
        try await load(key(url, additionalData)) { try origin(of: url, additionalData) }
    }

    /// Requests the component in the background, even if it is in the cache, and stores it. A failure changes nothing.
    public func prefetch(url: String, additionalData: HttpAdditionalData? = nil) {
        Task {
            _ = try? await load(key(url, additionalData), .reload) { try origin(of: url, additionalData) }
        }
    }

    // MARK: Steps

    /// The client and the request for a component that is not in the cache.
    private struct Origin: Sendable {
        let client: any NetworkClientProtocol
        let request: ViewRequest
    }

    private func origin(of url: String, _ additionalData: HttpAdditionalData?) throws(ViewRequest.Error) -> Origin {
        guard let address = urlBuilder.build(path: url) else { throw .urlBuilderError(url) }
        guard let networkClient else { throw .networkClientWasNotConfigured }
        return Origin(client: networkClient, request: ViewRequest(url: address, additionalData: additionalData))
    }

    private nonisolated(nonsending) func load(
        _ key: ViewKey, _ options: LoadOptions = .default, from origin: @escaping @Sendable () throws -> Origin
    ) async throws -> Component {
        do {
            return try await cache.entry(for: key, options: options) { stored in
                let response = try await response(of: origin(), unless: stored?.etag)
                if response.isNotModified { return .notModified(maxAge: response.maxAge) }
                return .value(try decode(response), maxAge: response.maxAge, etag: response.hash)
            }.value
        } catch is ShaleError {
            return try decode(try await response(of: origin(), unless: nil))
        }
    }

    private func response(of origin: Origin, unless hash: String?) async throws -> NetworkResponse {
        var request = origin.request
        if let hash {
            var data = request.additionalData ?? HttpAdditionalData()
            data.headers[NetworkResponse.hashHeader] = hash
            request.additionalData = data
        }
        do {
            let response = try await origin.client.response(to: request)
            if response.isSuccess || response.isNotModified && hash != nil { return response }
            throw NetworkError(
                error: NetworkError.UnexpectedStatus(statusCode: response.statusCode), request: request,
                response: response)
        } catch let error as NetworkError { throw ViewRequest.Error.networkError(error) }
    }

    private func decode(_ response: NetworkResponse) throws(ViewRequest.Error) -> Component {
        // Copies a slice, whose indices need not begin at 0.
        do { return try coder.decode(Data(response.data)) } catch { throw .decoding(error) }
    }
}

private struct Wait: RequestToken {
    let task: Task<Void, Never>
    func cancel() { task.cancel() }
}
