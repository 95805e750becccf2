#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// A server-driven component as it came, with what is known of it.
public struct CacheReference: Codable, Sendable, Equatable {
    /// What it is stored under: the component's URL, usually.
    public let identifier: String
    public let data: Data
    /// The validator that the server gave for the data.
    public let hash: String
    /// Seconds from `timeOfCreation` on; nil: the cache manager's default.
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
