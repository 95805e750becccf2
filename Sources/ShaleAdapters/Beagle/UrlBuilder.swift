#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Builds request URLs from an application's paths. Called from any thread.
public protocol UrlBuilderProtocol: Sendable {
    /// Nil if the path is not valid.
    func build(path: String) -> URL?
}

/// Appends paths to a base URL.
public struct UrlBuilder: UrlBuilderProtocol {
    public var baseUrl: URL?

    public init(baseUrl: URL? = nil) {
        self.baseUrl = baseUrl
    }

    /// Appends a path that begins with a slash to the whole base URL; any other path has to be an absolute URL.
    /// Percent-encodes characters that require it. Nil for a relative path without a base URL, and for a URL without a
    /// scheme.
    public func build(path: String) -> URL? {
        var address = path
        if path.hasPrefix("/"), let base = baseUrl?.absoluteString {
            address = (base.hasSuffix("/") ? String(base.dropLast()) : base) + path
        }
        return URL(string: address).flatMap { $0.scheme == nil ? nil : $0 }
    }
}
