#if !hasFeature(Embedded)
/// An error with its code, the sentence that names the file and the cause, and
/// the system's errno where a system call failed (0 otherwise).
public struct ShaleError: Error, Sendable, CustomStringConvertible {
    public enum Code: Int32, Sendable {
        /// An argument is out of range.
        case invalid = -1
        /// A key over 65,535 bytes, or a value over the store's limit.
        case tooLarge = -2
        /// The disk is full, or pinned entries fill the store.
        case full = -3
        case outOfMemory = -4
        case inputOutput = -5
        /// The directory holds something that is not a store.
        case notAStore = -6
        case newerFormat = -7
        /// Open elsewhere in a way that rules the call out.
        case busy = -8
        /// The file system cannot share mappings.
        case unsuitableFileSystem = -9
        /// The files are another user's, or the store is open read-only.
        case permission = -10
        /// The store was closed before the call. (Of the Swift interface: in C, such a call is the caller's fault.)
        case closed = -100
    }

    public let code: Code
    public let message: String
    public let errno: Int32

    public var description: String { message }

    public init(code: Code, message: String, errno: Int32 = 0) {
        self.code = code
        self.message = message
        self.errno = errno
    }

    /// Takes the sentence from the thread's error slot, where the engine has just left it.
    init(_ failure: Failure) {
        code = Code(rawValue: failure.status.rawValue) ?? .inputOutput
        message = Message.last
        errno = failure.errno
    }
}

/// Runs a call of the engine with its failure turned into a `ShaleError`.
@inline(__always)
func throwing<R>(_ body: () throws(Failure) -> R) throws(ShaleError) -> R {
    do throws(Failure) { return try body() } catch { throw ShaleError(error) }
}
#endif
