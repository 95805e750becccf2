#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

extension Resource {
    /// A parsed HTTP entity: content with headers and other metadata.
    public struct Entity<ContentType> {
        public var content: ContentType
        /// The charset given with the content type, if any.
        public var charset: String?
        /// When the content was last known to be valid, as `Date.timeIntervalSinceReferenceDate`, in seconds.
        public var timestamp: TimeInterval
        private var lowercasedHeaders: [String: String]

        /// All headers. Setting them converts their names to lower case.
        public var headers: [String: String] {
            get { lowercasedHeaders }
            set { lowercasedHeaders = newValue.lowercasedKeys }
        }

        /// Content that was received or read from a cache. Without a timestamp it is valid as of now, by the system's
        /// clock.
        public init(
            content: ContentType, charset: String? = nil, headers: [String: String], timestamp: TimeInterval? = nil
        ) {
            self.content = content
            self.charset = charset
            self.timestamp = timestamp ?? Date.timeIntervalSinceReferenceDate
            lowercasedHeaders = headers.lowercasedKeys
        }

        /// Content that was created locally, now.
        public init(content: ContentType, contentType: String, charset: String? = nil, headers: [String: String] = [:])
        {
            self.init(content: content, charset: charset, headers: headers)
            lowercasedHeaders["content-type"] = contentType
        }

        /// The media type, with its parameters, that the content was parsed from.
        public var contentType: String { lowercasedHeaders["content-type"] ?? "application/octet-stream" }
        /// The validator for the next request.
        public var etag: String? { header(forKey: "etag") }
        public func header(forKey key: String) -> String? { lowercasedHeaders[key.lowercased()] }

        /// Makes the content valid as of now, by the system's clock.
        public mutating func touch() { timestamp = Date.timeIntervalSinceReferenceDate }

        /// The same entity with its content as another type, or nil if the content is not of that type.
        public func withContentRetyped<NewType>() -> Entity<NewType>? {
            guard let content = content as? NewType else { return nil }
            return Entity<NewType>(content: content, charset: charset, headers: headers, timestamp: timestamp)
        }

        /// The content if it is of the type that the context requires.
        public func typedContent<T>() -> T? { content as? T }
    }
}

extension Resource.Entity: Sendable where ContentType: Sendable {}
extension Resource.Entity: Equatable where ContentType: Equatable {}

extension Resource.Entity: Codable where ContentType: Codable {
    private enum CodingKeys: String, CodingKey {
        case content, charset, timestamp
        case lowercasedHeaders = "headers"
    }
}

extension [String: String] {
    /// Keeps one of several names that differ only in case.
    fileprivate var lowercasedKeys: [String: String] {
        Dictionary(map { ($0.key.lowercased(), $0.value) }, uniquingKeysWith: { first, _ in first })
    }
}
