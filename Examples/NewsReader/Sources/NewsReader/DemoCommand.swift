import ArgumentParser
import Foundation

struct DemoCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "demo",
        abstract: "Kills and restarts a reader and its server, and compares every article shown with its file.")

    @Option(help: "The directory with the packages' documents.") var changelogs = "/usr/share/doc"
    @Option(help: "The maximum number of changelogs.") var count = 60
    @Option(help: "The time limit in seconds.") var timeout = 60

    func run() async throws {
        // The children exit when their input closes, which happens with the end of this process.
        let timeout = timeout
        let watchdog = Task {
            try await Task.sleep(for: .seconds(timeout))
            print("not finished after \(timeout) seconds")
            Self.exit(withError: ExitCode.failure)
        }
        defer { watchdog.cancel() }
        // Writing to a child that has exited must return an error, not end this process by SIGPIPE.
        signal(SIGPIPE, SIG_IGN)

        let directory = FileManager.default.temporaryDirectory.appendingPathComponent("shale-news-\(UUID().uuidString)")
        defer { try? FileManager.default.removeItem(at: directory) }
        var story = try Story(changelogsBelow: changelogs, atMost: count, cache: directory.path)
        try await story.tell()
        if !story.surprises.isEmpty { throw ExitCode.failure }
    }
}
