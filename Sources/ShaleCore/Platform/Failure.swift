import CShalePlatform

/// The result of a call. The values are those of `shale.h`.
public enum Status: Int32, Sendable {
    case ok = 0, miss = 1, stale = 2, conflict = 3, end = 4
    case invalid = -1, tooLarge = -2, full = -3, memory = -4, io = -5
    case format = -6, version = -7, busy = -8, filesystem = -9, permission = -10
}

/// An error: small enough for registers. Its message is in the thread's error slot (`Message.last`).
public struct Failure: Error, Sendable {
    public let status: Status
    /// The system call's errno, or 0.
    public let errno: Int32
}

extension StaticString {
    var cString: UnsafePointer<CChar> { UnsafeRawPointer(utf8Start).assumingMemoryBound(to: CChar.self) }
}

/// Writes an error's message: what failed, on which file, why, what to do.
struct Message {
    private var length = 0

    init() {
        shim_set_error_code(0)
        terminate()
    }

    private var text: UnsafeMutablePointer<CChar> { shim_error_text().unsafelyUnwrapped }
    private func terminate() { text[length] = 0 }

    #if !hasFeature(Embedded)
    static var last: String { String(cString: shim_error_text()) }
    #endif

    func adding(_ piece: StaticString) -> Message {
        adding(bytes: piece.utf8Start, count: piece.utf8CodeUnitCount)
    }
    func adding(_ string: UnsafePointer<CChar>?) -> Message {
        guard let string else { return adding("memory") }
        return UnsafeRawPointer(string).withMemoryRebound(to: UInt8.self, capacity: 1) {
            adding(bytes: $0, count: strlen(string))
        }
    }
    func adding(_ number: Int) -> Message {
        var digits: (UInt64, UInt64, UInt64) = (0, 0, 0)
        return withUnsafeMutableBytes(of: &digits) { buffer in
            var at = buffer.count, rest = number.magnitude
            repeat {
                at -= 1
                buffer[at] = UInt8(48 + rest % 10)
                rest /= 10
            } while rest > 0
            if number < 0 { at -= 1; buffer[at] = 45 }
            return adding(
                bytes: buffer.baseAddress.unsafelyUnwrapped.advanced(by: at).assumingMemoryBound(to: UInt8.self),
                count: buffer.count - at)
        }
    }
    func adding(errno code: Int32) -> Message {
        var buffer: (UInt64, UInt64, UInt64, UInt64, UInt64, UInt64, UInt64, UInt64) = (0, 0, 0, 0, 0, 0, 0, 0)
        return withUnsafeMutableBytes(of: &buffer) { raw in
            let start = raw.baseAddress.unsafelyUnwrapped.assumingMemoryBound(to: CChar.self)
            shim_errno_text(code, start, raw.count)
            return adding(UnsafePointer(start))
        }
    }
    private func adding(bytes: UnsafePointer<UInt8>, count: Int) -> Message {
        var next = self
        let room = Int(SHIM_ERROR_TEXT) - 1 - length
        let taken = min(room, count)
        memcpy(text + length, bytes, taken)
        next.length += taken
        next.terminate()
        return next
    }

    func failure(_ status: Status, errno: Int32 = 0) -> Failure {
        shim_set_error_code(errno)
        return Failure(status: status, errno: errno)
    }
}

extension Failure {
    /// Returns the error of a cause that needs no file: "what, why, what to do" in one piece.
    @inline(never)
    static func because(_ status: Status, _ sentence: StaticString) -> Failure {
        Message().adding(sentence).failure(status)
    }

    /// Whether the disk is full for every process, not a limit of the cache or of this process.
    var isDiskFull: Bool { errno == Int32(SHIM_ENOSPC) || errno == Int32(SHIM_EDQUOT) }
    /// Whether this process may not make a file so large; others may.
    var isFileLimit: Bool { errno == Int32(SHIM_EFBIG) }

    public static var outOfMemory: Failure { because(.memory, "out of memory; the call changed nothing") }

    /// Returns the error of a system call: "cannot open /dir/shale.data: Permission denied; advice". Without a
    /// directory, the message has only the file's name.
    @inline(never)
    static func system(
        _ what: StaticString, _ directory: UnsafePointer<CChar>?, _ file: StaticString, _ result: Int,
        status: Status? = nil, advice: StaticString = ""
    ) -> Failure {
        let code = Int32(truncatingIfNeeded: -result)
        var message = Message().adding("cannot ").adding(what).adding(" ")
        if let directory {
            message = message.adding(UnsafePointer(directory))
            if file.utf8CodeUnitCount > 0 { message = message.adding("/") }
        }
        message = message.adding(file)
        message = message.adding(": ").adding(errno: code)
        if advice.utf8CodeUnitCount > 0 { message = message.adding("; ").adding(advice) }
        return message.failure(status ?? Failure.status(of: code), errno: code)
    }

    private static func status(of code: Int32) -> Status {
        switch code {
        case Int32(SHIM_ENOSPC), Int32(SHIM_EDQUOT), Int32(SHIM_EFBIG): .full
        case Int32(SHIM_ENOMEM): .memory
        case Int32(SHIM_EACCES), Int32(SHIM_EPERM), Int32(SHIM_EROFS): .permission
        default: .io
        }
    }
}
