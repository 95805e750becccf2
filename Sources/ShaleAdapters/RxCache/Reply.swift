import Shale

/// Data with its source.
public struct Reply<Value: Sendable>: Sendable {
    /// Where data came from.
    public enum Source: String, Sendable {
        case memory = "Memory"
        case persistence = "Persistence"
        /// The loader.
        case cloud = "Cloud"

        init(_ source: EntrySource) {
            self =
                switch source {
                case .memory: .memory
                case .store: .persistence
                case .loader: .cloud
                }
        }
    }

    public let source: Source
    public let cacheables: Value

    public init(source: Source, cacheables: Value) {
        self.source = source
        self.cacheables = cacheables
    }
}

extension Reply: Equatable where Value: Equatable {}
