import CShale

/// The answer of a call, by name, so that a failed expectation reads well.
public enum Status: shale_status, Sendable {
    case ok = 0
    case miss = 1
    case stale = 2
    case conflict = 3
    case end = 4
    case invalid = -1
    case tooLarge = -2
    case full = -3
    case memory = -4
    case io = -5
    case format = -6
    case version = -7
    case busy = -8
    case filesystem = -9
    case permission = -10

    /// Traps on a number that shale.h does not list: no call may answer one.
    public init(_ code: shale_status) {
        guard let status = Status(rawValue: code) else {
            fatalError("a status that shale.h does not list: \(code)")
        }
        self = status
    }

    public var isError: Bool { rawValue < 0 }
}

/// A call that failed, with the library's error message.
public struct Failure: Error, CustomStringConvertible, Sendable {
    public let status: Status
    public let message: String
    public let errno: Int32

    /// Takes the calling thread's last error.
    public init(_ status: Status) {
        self.status = status
        message = lastError()
        errno = shale_last_errno()
    }

    public var description: String { "\(status): \(message) (errno \(errno))" }
}

/// The calling thread's last error message.
public func lastError() -> String { String(cString: shale_last_error()) }

/// SHALE_NEVER; Swift does not import the macro because of its type.
public let never = Int64.max
/// SHALE_NONE as an age.
public let none: Int64 = -1
