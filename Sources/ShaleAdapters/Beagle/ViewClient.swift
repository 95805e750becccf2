#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif
import Shale

/// What screens need of a view client, so that tests can give them another one.
public protocol ViewClientProtocol<Component>: Sendable {
    associatedtype Component: Sendable

    /// See ``ViewClient/fetch(url:additionalData:completion:)``.
    @discardableResult
    func fetch(
        url: String, additionalData: HttpAdditionalData?,
        completion: @escaping @Sendable (Result<Component, ViewRequest.Error>) -> Void
    ) -> (any RequestToken)?
    /// See ``ViewClient/fetch(url:additionalData:)``.
    func fetch(url: String, additionalData: HttpAdditionalData?) async throws -> Component
    /// See ``ViewClient/prefetch(url:additionalData:)``.
    func prefetch(url: String, additionalData: HttpAdditionalData?)
}

extension ViewClientProtocol {
    /// The component by the other `fetch`, whose request a task that is cancelled cancels.
    public func fetch(url: String, additionalData: HttpAdditionalData? = nil) async throws -> Component {
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

/// Beagle's view client: components by their URL, from a cache, or else from the network.
///
/// ```swift
/// let screens = try Cache<ViewKey, Screen>(at: directory, maxAge: .seconds(300))
/// let client = ViewClient(cache: screens, networkClient: network, urlBuilder: UrlBuilder(baseUrl: server))
/// client.prefetch(url: "/home")
/// let home = try await client.fetch(url: "/home")
/// ```
///
/// However many ask for a component, one request at a time runs for it, prefetches among them. Only components are stored,
/// failures never. How long they are fresh the answer's `Cache-Control: max-age` says, or else the cache. The answer's
/// `beagle-hash` is kept with a component; once that is stale, the hash goes with the next request, and the answer 304 gives the
/// stored component a new age. Should the cache fail, the network alone serves.
///
/// Every method may be called from any thread.
public struct ViewClient<Component: Codable & Sendable>: ViewClientProtocol {
    /// Where the components are.
    public let cache: Cache<ViewKey, Component>
    private let networkClient: (any NetworkClientProtocol)?
    private let urlBuilder: any UrlBuilderProtocol
    private let coder: Coder<Component>
    private let key: @Sendable (_ url: String, HttpAdditionalData?) -> ViewKey

    /// - Parameters:
    ///   - cache: Where components are kept.
    ///   - networkClient: Nil: there are components from the cache alone.
    ///   - urlBuilder: Makes URLs of what callers ask for.
    ///   - coder: Decodes what the network sends. How components are stored is the cache's matter.
    ///   - key: What tells components apart. By default everything does that is in a request: a URL with other headers or
    ///     another body is another component.
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

    /// The component, if it is fresh, or else from the network.
    ///
    /// - Parameters:
    ///   - url: As the URL builder takes it.
    ///   - additionalData: What else belongs to the request.
    ///   - completion: Called once: before `fetch` returns, where it returns no token; else from any thread. After a
    ///     cancellation it gets a `networkError` with a `CancellationError`.
    /// - Returns: A token that stops waiting. The request is cancelled with the last one who waits for it.
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

    /// The component, if it is fresh, or else from the network. Throws `ViewRequest.Error`, and a `CancellationError` in a task that is cancelled.
    public func fetch(url: String, additionalData: HttpAdditionalData? = nil) async throws -> Component {
        try await load(key(url, additionalData)) { try origin(of: url, additionalData) }
    }

    /// Requests the component, in the background, whether or not it is in the cache, and replaces it there. A failure changes nothing.
    public func prefetch(url: String, additionalData: HttpAdditionalData? = nil) {
        Task {
            _ = try? await load(key(url, additionalData), .reload) { try origin(of: url, additionalData) }
        }
    }

    // MARK: Steps

    /// Where a component comes from that is not in the cache.
    private struct Origin: Sendable {
        let client: any NetworkClientProtocol
        let request: ViewRequest
    }

    private func origin(of url: String, _ additionalData: HttpAdditionalData?) throws(ViewRequest.Error) -> Origin {
        guard let address = urlBuilder.build(path: url) else { throw .urlBuilderError(url) }
        guard let networkClient else { throw .networkClientWasNotConfigured }
        return Origin(client: networkClient, request: ViewRequest(url: address, additionalData: additionalData))
    }

    private func load(
        _ key: ViewKey, _ options: LoadOptions = .default, from origin: @escaping @Sendable () throws -> Origin
    ) async throws -> Component {
        do {
            return try await cache.entry(for: key, policy: options) { stored in
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
        // (A slice's indices begin anywhere.)
        do { return try coder.decode(Data(response.data)) } catch { throw .decoding(error) }
    }
}

private struct Wait: RequestToken {
    let task: Task<Void, Never>
    func cancel() { task.cancel() }
}
