import ArgumentParser
import FlyingFox
import Foundation

struct ServerCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "server", abstract: "Publishes changelogs on the loopback interface.")

    @Option(help: "0 for any free port. The first line of the output is the address.") var port: UInt16 = 0
    @Option(help: "The directory with the packages' documents.") var changelogs = "/usr/share/doc"
    @Option(help: "The maximum number of changelogs.") var count = 60
    @Option(help: "yesterday or today.") var edition = Edition.today
    @Option(help: "The max-age of articles, in seconds.") var maxAge = 3
    @Flag(help: "Exits at the end of standard input, and thus with the parent process.") var untilEOF = false

    func run() async throws {
        let handler = try NewsServer(
            Changelog.installed(below: changelogs, atMost: count), edition: edition, maxAge: maxAge)
        let server = HTTPServer(address: try .inet(ip4: "127.0.0.1", port: port), logger: .disabled, handler: handler)
        let serving = Task { try await server.run() }
        try await server.waitUntilListening()
        if case .ip4(let host, let port) = await server.listeningAddress {
            try FileHandle.standardOutput.write(contentsOf: Data("http://\(host):\(port)\n".utf8))
        }
        if untilEOF {
            for await _ in FileHandle.standardInput.lines {}
            serving.cancel()
            _ = await serving.result
        } else {
            try await serving.value
        }
    }
}
