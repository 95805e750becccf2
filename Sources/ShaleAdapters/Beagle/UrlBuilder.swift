#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Makes the URL to request of what an application writes. Called from any thread.
public protocol UrlBuilderProtocol: Sendable {
    /// Nil: nothing that could be requested.
    func build(path: String) -> URL?
}

/// Puts paths behind a base URL.
public struct UrlBuilder: UrlBuilderProtocol {
    public var baseUrl: URL?

    public init(baseUrl: URL? = nil) {
        self.baseUrl = baseUrl
    }

    /// A path that begins with a slash comes behind the whole base URL; anything else has to be an absolute URL. What is not
    /// percent-encoded and has to be, is encoded. Nil for a path without a base URL, and for what has no scheme.
    public func build(path: String) -> URL? {
        var address = path
        if path.hasPrefix("/"), let base = baseUrl?.absoluteString {
            address = (base.hasSuffix("/") ? String(base.dropLast()) : base) + path
        }
        return URL(string: address).flatMap { $0.scheme == nil ? nil : $0 }
    }
}
