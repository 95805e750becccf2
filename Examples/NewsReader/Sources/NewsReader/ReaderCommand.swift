import ArgumentParser
import Foundation

struct ReaderCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "reader",
        abstract: "Shows all articles, once at the start and once for every line of standard input.")

    @Option(help: "The server's address.") var server: String
    @Option(help: "The cache's directory.") var directory: String
    @Flag(help: "One JSON object a line.") var json = false

    func run() async throws {
        let client = NewsClient(server: server), screen = Screen(isJSON: json)
        let announcing: Task<Void, any Error>
        do {
            let reader = try Reader(directory: directory, client: client, screen: screen)
            announcing = Task { [changes = reader.articles.changes] in
                for await case .inserted(let name, _) in changes { try screen.show(.arrived(name: name)) }
            }
            var input = FileHandle.standardInput.lines.makeAsyncIterator()
            repeat {
                try await reader.readAll()
                try screen.show(.roundEnded)
            } while await input.next() != nil
        }
        // The stream of changes ends with its cache.
        try await announcing.value
        try await client.shutdown()
    }
}
