import FoundationEssentials
import Glibc
import Synchronization

/// Buffered output. A failed write throws, so that a full disk does not go unnoticed.
final class Output: Sendable {
    static let shared = Output(descriptor: STDOUT_FILENO, name: "standard output")

    private let descriptor: Int32
    private let name: String
    private let buffer = Mutex<[UInt8]>([])

    init(descriptor: Int32, name: String) {
        self.descriptor = descriptor
        self.name = name
    }

    func write(_ bytes: some Collection<UInt8>) throws {
        let isFull = buffer.withLock { buffer in
            buffer.append(contentsOf: bytes)
            return buffer.count >= 1 << 16
        }
        if isFull { try flush() }
    }

    func line(_ text: String) throws { try write(Array("\(text)\n".utf8)) }

    func json(_ value: some Encodable, pretty: Bool = true) throws {
        let encoder = JSONEncoder()
        encoder.outputFormatting =
            pretty ? [.sortedKeys, .withoutEscapingSlashes, .prettyPrinted] : [.sortedKeys, .withoutEscapingSlashes]
        try write(try encoder.encode(value))
        try write([UInt8(ascii: "\n")])
    }

    func flush() throws {
        let bytes = buffer.withLock { buffer in
            defer { buffer.removeAll(keepingCapacity: true) }
            return buffer
        }
        try bytes.withUnsafeBytes { bytes in
            var written = 0
            while written < bytes.count {
                let count = Glibc.write(
                    descriptor, bytes.baseAddress.unsafelyUnwrapped + written, bytes.count - written)
                if count < 0, errno == EINTR { continue }
                if count < 0 { throw ToolFailure("cannot write to \(name)") }
                written += count
            }
        }
    }
}

/// Writes to a file, which is renamed to `file` when it is complete; nil: standard output.
func withOutput(_ file: String?, _ body: (Output) throws -> Void) throws {
    guard let file else { return try body(.shared) }
    let unfinished = file + ".unfinished"
    let descriptor = open(unfinished, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o600)
    if descriptor < 0 { throw ToolFailure("cannot create \(unfinished)") }
    defer { close(descriptor) }
    do {
        let output = Output(descriptor: descriptor, name: unfinished)
        try body(output)
        try output.flush()
        if rename(unfinished, file) != 0 { throw ToolFailure("cannot rename \(unfinished) to \(file)") }
    } catch {
        unlink(unfinished)
        throw error
    }
}

/// Reads a descriptor in pieces.
final class Input {
    private let descriptor: Int32
    let name: String
    /// Bytes read from the descriptor but not yet returned.
    private var ahead: [UInt8] = []

    init(descriptor: Int32, name: String) {
        self.descriptor = descriptor
        self.name = name
    }

    /// The next piece; empty at the end.
    func read() throws -> [UInt8] {
        if ahead.isEmpty { return try readMore() }
        defer { ahead = [] }
        return ahead
    }

    /// The next `count` bytes; fewer at the end.
    func read(upTo count: Int) throws -> [UInt8] {
        let bytes = try Array(peek(count))
        ahead.removeFirst(bytes.count)
        return bytes
    }

    /// The next `count` bytes, without consuming them; fewer at the end.
    func peek(_ count: Int) throws -> ArraySlice<UInt8> {
        while ahead.count < count, case let piece = try readMore(), !piece.isEmpty { ahead += piece }
        return ahead.prefix(count)
    }

    private func readMore() throws -> [UInt8] {
        try [UInt8](unsafeUninitializedCapacity: 1 << 18) { buffer, filled in
            repeat {
                filled = Glibc.read(descriptor, buffer.baseAddress, buffer.count)
            } while filled < 0 && errno == EINTR
            if filled < 0 {
                filled = 0
                throw ToolFailure("cannot read \(name)")
            }
        }
    }

    func readAll() throws -> [UInt8] {
        var all: [UInt8] = []
        while case let piece = try read(), !piece.isEmpty { all += piece }
        return all
    }

    /// Calls the body with each line, without its end.
    func forEachLine(_ body: (ArraySlice<UInt8>) throws -> Void) throws {
        var rest: [UInt8] = []
        while case let piece = try read(), !piece.isEmpty {
            // The bytes searched before contain no line end.
            var searched = rest.count
            rest += piece
            var start = 0
            while let end = rest[searched...].firstIndex(of: UInt8(ascii: "\n")) {
                try body(rest[start..<end])
                start = end + 1
                searched = start
            }
            rest.removeFirst(start)
        }
        if !rest.isEmpty { try body(rest[...]) }
    }
}
