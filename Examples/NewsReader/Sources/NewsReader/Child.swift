import Foundation

/// This program once more, as a process of its own that is spoken to by lines.
final class Child {
    private let process = Process()
    private let input = Pipe(), output = Pipe()
    private var lines: AsyncStream<String>.Iterator

    init(_ arguments: [String]) throws {
        process.executableURL = Bundle.main.executableURL
        process.arguments = arguments
        process.standardInput = input
        process.standardOutput = output
        try process.run()
        // So that the lines end with the process.
        try output.fileHandleForWriting.close()
        lines = output.fileHandleForReading.lines.makeAsyncIterator()
    }

    /// The next line of its output; nil: it has ended.
    func nextLine() async -> String? { await lines.next() }

    func sendLine() throws { try input.fileHandleForWriting.write(contentsOf: Data("\n".utf8)) }

    /// As `kill -9` does.
    func kill() {
        Glibc.kill(process.processIdentifier, SIGKILL)
        process.waitUntilExit()
    }

    /// Ends its input, upon which it ends by itself.
    func end() throws {
        try input.fileHandleForWriting.close()
        process.waitUntilExit()
        if process.terminationStatus != 0 {
            throw Failure(description: "\(process.arguments?.first ?? "") ended with \(process.terminationStatus)")
        }
    }
}
