#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// A request of a ``ViewClient`` to its network client. Beagle calls it `Request`.
public struct ViewRequest: Sendable, Equatable {
    public let url: URL
    public var additionalData: HttpAdditionalData?

    public init(url: URL, additionalData: HttpAdditionalData? = nil) {
        self.url = url
        self.additionalData = additionalData
    }

    /// Why a fetch failed.
    public enum Error: Swift.Error {
        /// The network client failed, the response has an unexpected status, or the caller cancelled (then `error` is a
        /// `CancellationError`).
        case networkError(NetworkError)
        /// The response does not decode to a component.
        case decoding(any Swift.Error)
        /// The URL builder returned nil for this URL.
        case urlBuilderError(String)
        /// The view client has no network client.
        case networkClientWasNotConfigured
    }
}

extension ViewRequest.Error: CustomStringConvertible {
    public var description: String {
        switch self {
        case .networkError(let failure): "\(failure.request.url): \(failure.error)"
        case .decoding(let error): "the response does not decode to a component: \(error)"
        case .urlBuilderError(let url):
            "\"\(url)\" is not a valid URL; use an absolute URL, or set the URL builder's baseUrl"
        case .networkClientWasNotConfigured: "the view client has no network client; pass one to its initializer"
        }
    }
}

/// The key of a component.
public struct ViewKey: Hashable, Codable, Sendable {
    public let url: String
    /// Nil also for a GET without headers and body.
    public let additionalData: HttpAdditionalData?

    public init(url: String, additionalData: HttpAdditionalData? = nil) {
        self.url = url
        self.additionalData = additionalData == HttpAdditionalData() ? nil : additionalData
    }
}
