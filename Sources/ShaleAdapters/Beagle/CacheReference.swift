#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// A server-driven component as received, with its metadata.
public struct CacheReference: Codable, Sendable, Equatable {
    /// The key, usually the component's URL.
    public let identifier: String
    public let data: Data
    /// The server's validator for the data.
    public let hash: String
    /// In seconds, counted from `timeOfCreation`; nil: the cache manager's default.
    public let maxAge: Int?
    /// The cache manager sets it when it stores the reference.
    public let timeOfCreation: Date

    public init(identifier: String, data: Data, hash: String, maxAge: Int? = nil, timeOfCreation: Date = Date()) {
        self.identifier = identifier
        self.data = data
        self.hash = hash
        self.maxAge = maxAge
        self.timeOfCreation = timeOfCreation
    }
}
