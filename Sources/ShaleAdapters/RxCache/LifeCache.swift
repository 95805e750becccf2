import Shale

/// The maximum age of a record. 0: any age.
public struct LifeCache: Sendable, Hashable {
    public enum TimeUnit: Int, Sendable {
        case seconds = 1
        case minutes = 60
        case hours = 3600
        case days = 86400
    }

    public let duration: Double
    public let timeUnit: TimeUnit

    public init(duration: Double, timeUnit: TimeUnit) {
        self.duration = duration
        self.timeUnit = timeUnit
    }

    /// Nil: any age.
    private var milliseconds: Int64? {
        duration == 0 ? nil : Int64(exactly: (duration * Double(timeUnit.rawValue) * 1000).rounded(.up))
    }

    /// Whether a record of `age`, in milliseconds, is too old.
    func isOver(at age: Int64) -> Bool {
        milliseconds.map { age >= $0 } ?? false
    }

    var age: Age {
        switch milliseconds {
        case nil: .forever
        case let milliseconds? where milliseconds > 0: .milliseconds(milliseconds)
        default: .zero
        }
    }
}
