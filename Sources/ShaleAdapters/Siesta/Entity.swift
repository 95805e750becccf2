#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Content with what its origin said of it: an HTTP entity, parsed.
public struct Entity<ContentType> {
    public var content: ContentType
    /// The charset given with the content type, if any.
    public var charset: String?
    /// When the content was last known to be valid, in seconds since the reference date, as `Date.timeIntervalSinceReferenceDate`.
    public var timestamp: TimeInterval
    private var lowercasedHeaders: [String: String]

    /// All headers. Their names are in lower case, and are made so when set.
    public var headers: [String: String] {
        get { lowercasedHeaders }
        set { lowercasedHeaders = newValue.lowercasedKeys }
    }

    /// Content as it was received, or read from a cache. Without a timestamp it is valid as of now, by the system's clock.
    public init(content: ContentType, charset: String? = nil, headers: [String: String], timestamp: TimeInterval? = nil)
    {
        self.content = content
        self.charset = charset
        self.timestamp = timestamp ?? Date.timeIntervalSinceReferenceDate
        lowercasedHeaders = headers.lowercasedKeys
    }

    /// Content that was made here and now.
    public init(content: ContentType, contentType: String, charset: String? = nil, headers: [String: String] = [:]) {
        self.init(content: content, charset: charset, headers: headers)
        lowercasedHeaders["content-type"] = contentType
    }

    /// The type of what the content was parsed from, with its parameters.
    public var contentType: String { lowercasedHeaders["content-type"] ?? "application/octet-stream" }
    /// The validator that the next request sends.
    public var etag: String? { header(forKey: "etag") }
    public func header(forKey key: String) -> String? { lowercasedHeaders[key.lowercased()] }

    /// Makes the content valid as of now, by the system's clock.
    public mutating func touch() { timestamp = Date.timeIntervalSinceReferenceDate }

    /// The same entity with its content as another type, or nil if the content is not of that type.
    public func withContentRetyped<NewType>() -> Entity<NewType>? {
        guard let content = content as? NewType else { return nil }
        return Entity<NewType>(content: content, charset: charset, headers: headers, timestamp: timestamp)
    }

    /// The content if it is of the type that the context asks for.
    public func typedContent<T>() -> T? { content as? T }
}

extension Entity: Sendable where ContentType: Sendable {}
extension Entity: Equatable where ContentType: Equatable {}

extension Entity: Codable where ContentType: Codable {
    private enum CodingKeys: String, CodingKey {
        case content, charset, timestamp
        case lowercasedHeaders = "headers"
    }
}

extension [String: String] {
    /// Of names that differ in case alone, one stays.
    fileprivate var lowercasedKeys: [String: String] {
        Dictionary(map { ($0.key.lowercased(), $0.value) }, uniquingKeysWith: { first, _ in first })
    }
}
