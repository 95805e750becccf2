import Foundation

/// A second process of this program, which communicates by lines.
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
        // Otherwise the pipe would stay open after the end of the process.
        try output.fileHandleForWriting.close()
        lines = output.fileHandleForReading.lines.makeAsyncIterator()
    }

    /// The next line of its output; nil after its end.
    func nextLine() async -> String? { await lines.next() }

    func sendLine() throws { try input.fileHandleForWriting.write(contentsOf: Data("\n".utf8)) }

    /// Sends SIGKILL.
    func kill() {
        Glibc.kill(process.processIdentifier, SIGKILL)
        process.waitUntilExit()
    }

    /// Closes its input, which makes it exit.
    func end() throws {
        try input.fileHandleForWriting.close()
        process.waitUntilExit()
        if process.terminationStatus != 0 {
            throw Failure(description: "\(process.arguments?.first ?? "") exited with \(process.terminationStatus)")
        }
    }
}
