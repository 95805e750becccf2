#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// What a ``ViewClient`` asks its network client for. Beagle calls it `Request`.
public struct ViewRequest: Sendable, Equatable {
    public let url: URL
    public var additionalData: HttpAdditionalData?

    public init(url: URL, additionalData: HttpAdditionalData? = nil) {
        self.url = url
        self.additionalData = additionalData
    }

    /// Why there is no component.
    public enum Error: Swift.Error {
        /// The network client failed, or answered with an unexpected status; or the caller cancelled, which its `error` says.
        case networkError(NetworkError)
        /// The answer is no component.
        case decoding(any Swift.Error)
        /// The URL builder made nothing of this.
        case urlBuilderError(String)
        /// The view client has no network client.
        case networkClientWasNotConfigured
    }
}

extension ViewRequest.Error: CustomStringConvertible {
    public var description: String {
        switch self {
        case .networkError(let failure): "\(failure.request.url): \(failure.error)"
        case .decoding(let error): "the answer is no component: \(error)"
        case .urlBuilderError(let url):
            "no URL can be made of \"\(url)\"; give an absolute URL, or the URL builder a base URL"
        case .networkClientWasNotConfigured: "the view client has no network client; give it one when it is made"
        }
    }
}

/// What a component is stored under.
public struct ViewKey: Hashable, Codable, Sendable {
    public let url: String
    /// Nil also for data that says nothing but GET.
    public let additionalData: HttpAdditionalData?

    public init(url: String, additionalData: HttpAdditionalData? = nil) {
        self.url = url
        self.additionalData = additionalData == HttpAdditionalData() ? nil : additionalData
    }
}
