import ArgumentParser
import Foundation

struct DemoCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "demo",
        abstract: "Kills and restarts a reader and its server, and compares every article shown with its file.")

    @Option(help: "Where packages have their documents.") var changelogs = "/usr/share/doc"
    @Option(help: "How many changelogs, at most.") var count = 60
    @Option(help: "Seconds after which it is given up.") var timeout = 60

    func run() async throws {
        // The children end with their input, which ends with this process.
        let timeout = timeout
        let watchdog = Task {
            try await Task.sleep(for: .seconds(timeout))
            print("not finished after \(timeout) seconds")
            Self.exit(withError: ExitCode.failure)
        }
        defer { watchdog.cancel() }
        // Writing to a child that has ended is an error to report, not a signal to die of.
        signal(SIGPIPE, SIG_IGN)

        let directory = FileManager.default.temporaryDirectory.appendingPathComponent("shale-news-\(UUID().uuidString)")
        defer { try? FileManager.default.removeItem(at: directory) }
        var story = try Story(changelogsBelow: changelogs, atMost: count, cache: directory.path)
        try await story.tell()
        if !story.surprises.isEmpty { throw ExitCode.failure }
    }
}
