import Foundation

/// The steps of the demonstration and their expected results.
struct Story {
    /// Expectations that failed.
    private(set) var surprises: [String] = []

    private let changelogs: [String: Changelog]
    private let serverArguments: [String]
    private let cache: String
    private let maxAge = 3
    private var edition = Edition.yesterday
    /// The last text that a reader has shown of each article.
    private var shown: [String: String] = [:]
    private var tally = Tally()

    /// - Parameters:
    ///   - directory: The directory with the packages' documents.
    ///   - count: The maximum number of changelogs.
    ///   - cache: An empty directory for the reader's cache.
    init(changelogsBelow directory: String, atMost count: Int, cache: String) throws {
        changelogs = Dictionary(
            uniqueKeysWithValues: try Changelog.installed(below: directory, atMost: count).map { ($0.name, $0) })
        serverArguments = [
            "server", "--until-eof", "--changelogs", directory, "--count", String(count), "--max-age", String(maxAge),
        ]
        self.cache = cache
    }

    mutating func tell() async throws {
        print("The news: \(changelogs.count) changelogs of this machine's packages, fresh for \(maxAge) s.")
        print("One request in ten fails.")
        var (server, address) = try await startServer(port: 0)
        var reader = try startReader(address)
        var round = Round()
        try await watch(reader, &round, until: changelogs.count / 2)
        reader.kill()
        try await watch(reader, &round)
        tell("A reader starts with an empty cache and is killed half-way with kill -9", round)
        expect(
            round.last.count >= changelogs.count / 2 && round.last.values.allSatisfy { $0 == .network },
            "all articles come from the network")

        var known = Set(shown.keys)
        reader = try startReader(address)
        round = try await watch(reader)
        tell("Another reader opens its cache", round)
        expect(
            known.allSatisfy { round.first[$0] == .disk }, "all articles that the first reader showed come from disk")
        expect(round.loaded.isDisjoint(with: known) && !round.loaded.isEmpty, "only the others come from the network")

        known = Set(shown.keys)
        round = try await again(reader)
        tell("It reads again", round)
        expect(known.allSatisfy { round.first[$0] == .memory }, "all articles that it has shown come from memory")

        try await growStale()
        known = Set(shown.keys)
        round = try await again(reader)
        tell("It reads again, with all articles stale", round)
        expect(known.allSatisfy { round.first[$0] == .memory }, "stale articles are shown at once")
        expect(
            known.allSatisfy { round.last[$0] == .revalidated || round.last[$0] == .stale },
            "no current article is loaded again")
        expect(round.tally.count(.revalidated) > round.tally.count(.stale), "most articles are revalidated")

        server.kill()
        try await growStale()
        known = Set(shown.keys)
        round = try await again(reader)
        tell("The server is killed, and all articles are stale", round)
        expect(
            known.allSatisfy { round.first[$0] == .memory && round.last[$0] == .stale },
            "stale articles are served from memory")

        reader.kill()
        reader = try startReader(address)
        round = try await watch(reader)
        tell("The reader is killed too, and another one opens its cache", round)
        expect(
            known.allSatisfy { round.first[$0] == .disk && round.last[$0] == .stale },
            "stale articles are served from disk"
        )

        edition = .today
        (server, _) = try await startServer(port: URL(string: address)?.port ?? 0)
        round = try await again(reader)
        for _ in 1...3 where !isUpToDate { try await again(reader, &round) }
        tell("The server restarts with today's edition", round)
        expect(isUpToDate, "every article is updated to today's edition")
        expect(
            round.tally.count(.network) > 0 && round.tally.count(.revalidated) > 0,
            "new articles are loaded, the others revalidated")

        try reader.end()
        try await watch(reader, &round)
        expect(round.arrived == round.loaded, "the cache announced every loaded article")
        try server.end()

        print("\n\(tally.table)\n")
        print(
            surprises.isEmpty
                ? "Every article shown was equal to its file and came from the expected source."
                : "\(surprises.count) expectations failed.")
    }

    // MARK: Watching

    /// Follows a reader to the end of its pass, until it has shown `enough` articles, or until it exits; compares its
    /// articles with their files.
    private mutating func watch(_ reader: Child, _ round: inout Round, until enough: Int = .max) async throws {
        while round.last.count < enough, let line = await reader.nextLine() {
            let event = try JSONDecoder().decode(Event.self, from: Data(line.utf8))
            if case .roundEnded = event { return }
            if case .article(let name, let article, let source, let milliseconds) = event {
                compare(name, article.text, source)
                tally.add(source, milliseconds: milliseconds)
            }
            round.add(event)
        }
    }

    private mutating func watch(_ reader: Child) async throws -> Round {
        var round = Round()
        try await watch(reader, &round)
        return round
    }

    private mutating func again(_ reader: Child, _ round: inout Round) async throws {
        try reader.sendLine()
        try await watch(reader, &round)
    }

    private mutating func again(_ reader: Child) async throws -> Round {
        var round = Round()
        try await again(reader, &round)
        return round
    }

    /// Articles confirmed by the server are of the current edition; stored ones are as shown before.
    private mutating func compare(_ name: String, _ text: String, _ source: Source) {
        let published = changelogs[name]?.text(in: edition)
        let right =
            switch source {
            case .network, .revalidated: published
            case .memory, .disk, .stale: shown[name] ?? published
            }
        expect(text == right, "\(name), \(source), has the text of its file")
        shown[name] = text
    }

    private var isUpToDate: Bool { changelogs.values.allSatisfy { shown[$0.name] == $0.text(in: edition) } }

    private func tell(_ title: String, _ round: Round) { print("\n\(title):\n    \(round.summary)") }

    private mutating func expect(_ isSo: Bool, _ expectation: String) {
        if isSo { return }
        surprises.append(expectation)
        print("    NOT AS EXPECTED: \(expectation)")
    }

    // MARK: Processes

    private func startServer(port: Int) async throws -> (Child, address: String) {
        let server = try Child(serverArguments + ["--edition", edition.rawValue, "--port", String(port)])
        guard let address = await server.nextLine() else { throw Failure(description: "the server did not start") }
        return (server, address)
    }

    private func startReader(_ address: String) throws -> Child {
        try Child(["reader", "--json", "--server", address, "--directory", cache])
    }

    private func growStale() async throws { try await Task.sleep(for: .seconds(maxAge) + .milliseconds(200)) }
}
