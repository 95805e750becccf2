import ArgumentParser

/// A news reader without a window. Its news is what the maintainers of this machine's packages have written into their changelogs.
@main
struct NewsReader: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "NewsReader", abstract: "Reads news through a cache that survives its reader, and its server.",
        subcommands: [ServerCommand.self, ReaderCommand.self, DemoCommand.self])
}
