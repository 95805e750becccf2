#if !hasFeature(Embedded)
/// An error: its code, a message that names the file and the cause, and the errno of a failed system call (0
/// otherwise).
public struct ShaleError: Error, Sendable, CustomStringConvertible {
    public enum Code: Int32, Sendable {
        /// An argument is out of range.
        case invalid = -1
        /// A key over 65,535 bytes, or a value over the store's limit.
        case tooLarge = -2
        /// The disk is full, or pinned entries or large values being written fill the store.
        case full = -3
        case outOfMemory = -4
        case inputOutput = -5
        /// The directory holds something that is not a store.
        case notAStore = -6
        /// The store has the format of another version.
        case otherVersion = -7
        /// Open elsewhere in a way that rules the call out; or the wait for a lock timed out; or the directory was
        /// removed or replaced since the store was opened.
        case busy = -8
        /// The file system cannot share mappings.
        case unsuitableFileSystem = -9
        /// The files are another user's, or the store is open read-only.
        case permission = -10
        /// The store was closed before the call. (Only in the Swift interface: in C, such a call is a programming
        /// error.)
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

    /// Takes the message from the thread's error slot, where the engine has just left it.
    init(_ failure: Failure, in directory: String?) {
        code = Code(rawValue: failure.status.rawValue) ?? .inputOutput
        message = inSwift(Message.last, in: directory)
        errno = failure.errno
    }
}

/// The engine's advice to C callers, and what replaces it in Swift. It ends a message, so that no part of a path is
/// mistaken for it.
private let advice: [(inC: String, inSwift: String)] = [
    (
        "or max_entries; close its other users first, or pass 0",
        "or maxEntries; close its other users first, or pass nil"
    ),
    (
        "a read-only handle cannot set capacity or max_entries; leave them 0",
        "a store that is read-only cannot set capacity or maxEntries; leave them nil"
    ),
    ("up to max_entries; unpin or remove some", "up to maxEntries; unpin or remove some"),
    ("or choose a larger max_entries", "or choose a larger maxEntries"),
    ("use a larger capacity or segment_size", "use a larger capacity or segmentSize"),
    (
        "open it without SHALE_OPEN_MUST_EXIST and SHALE_OPEN_READ_ONLY to create it",
        "open it without mustExist and isReadOnly to create it"
    ),
    (
        "this handle is read-only; open the cache without SHALE_OPEN_READ_ONLY to write",
        "the store is open read-only; open it without isReadOnly to write"
    ),
    (
        "since this read-only handle was opened; open it again",
        "since this read-only store was opened; open it again"
    ),
    ("the cache was removed or replaced; open it again", "the store was removed or replaced; open it again"),
    ("continue or end it, or raise lock_timeout_ms", "continue or end it, or raise lockTimeout"),
    ("lock_timeout_ms is negative", "lockTimeout is negative"),
    ("pass 0, or use another directory", "pass nil, or use another directory"),
    ("pass none, or use another directory", "pass nil, or use another directory"),
    ("shale_increment works on those alone", "increment works on those alone"),
    ("use 0 for the default, SHALE_NEVER or SHALE_NONE", "use nil for the default, .forever or .zero"),
    ("use NULL for a cache in memory", "use nil for a store in memory"),
]

/// Returns the message in Swift's terms, with the directory in front unless the message names it.
private func inSwift(_ sentence: String, in directory: String?) -> String {
    var sentence = sentence
    if let advice = advice.first(where: { sentence.hasSuffix($0.inC) }) {
        sentence = sentence.dropLast(advice.inC.count) + advice.inSwift
    }
    guard let directory, !directory.isEmpty else { return sentence }
    // Searches for a subsequence without Foundation.
    let bytes = Array(sentence.utf8), name = Array(directory.utf8)
    let isNamed = bytes.indices.contains { bytes[$0...].starts(with: name) }
    return isNamed ? sentence : "\(directory): \(sentence)"
}

/// Runs a call of the engine and turns its failure into a `ShaleError`.
@inline(__always)
func throwing<R>(in directory: String?, _ body: () throws(Failure) -> R) throws(ShaleError) -> R {
    do throws(Failure) { return try body() } catch { throw ShaleError(error, in: directory) }
}
#endif
