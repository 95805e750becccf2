import ArgumentParser

/// A command-line news reader. The news are the changelogs of this machine's packages.
@main
struct NewsReader: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "NewsReader",
        abstract: "Reads news through a cache that survives kills of the reader and the server.",
        subcommands: [ServerCommand.self, ReaderCommand.self, DemoCommand.self])
}
