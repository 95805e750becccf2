import Foundation

/// What happens to a reader and its server, and what must come of it.
struct Story {
    /// What was not as it must be.
    private(set) var surprises: [String] = []

    private let changelogs: [String: Changelog]
    private let serverArguments: [String]
    private let cache: String
    private let maxAge = 3
    private var edition = Edition.yesterday
    /// The text of each article as a reader has shown it last.
    private var shown: [String: String] = [:]
    private var tally = Tally()

    /// - Parameters:
    ///   - directory: Where the packages have their documents.
    ///   - count: How many changelogs, at most.
    ///   - cache: The directory of the reader's cache, empty.
    init(changelogsBelow directory: String, atMost count: Int, cache: String) throws {
        changelogs = Dictionary(
            uniqueKeysWithValues: try Changelog.installed(below: directory, atMost: count).map { ($0.name, $0) })
        serverArguments = [
            "server", "--until-eof", "--changelogs", directory, "--count", String(count), "--max-age", String(maxAge),
        ]
        self.cache = cache
    }

    mutating func tell() async throws {
        print(
            "The news: \(changelogs.count) changelogs of this machine's packages, fresh for \(maxAge) s. One request in ten fails."
        )
        var (server, address) = try await startServer(port: 0)
        var reader = try startReader(address)
        var round = Round()
        try await watch(reader, &round, until: changelogs.count / 2)
        reader.kill()
        try await watch(reader, &round)
        tell("A reader begins with an empty cache, and half-way is killed with kill -9", round)
        expect(
            round.last.count >= changelogs.count / 2 && round.last.values.allSatisfy { $0 == .network },
            "all comes from the network")

        var known = Set(shown.keys)
        reader = try startReader(address)
        round = try await watch(reader)
        tell("Another reader opens its cache", round)
        expect(known.allSatisfy { round.first[$0] == .disk }, "what the first has shown is there, from disk")
        expect(round.loaded.isDisjoint(with: known) && !round.loaded.isEmpty, "the rest alone comes from the network")

        known = Set(shown.keys)
        round = try await again(reader)
        tell("It reads again", round)
        expect(known.allSatisfy { round.first[$0] == .memory }, "what it has shown is there, from memory")

        try await growStale()
        known = Set(shown.keys)
        round = try await again(reader)
        tell("It reads again, when everything is stale", round)
        expect(known.allSatisfy { round.first[$0] == .memory }, "what is stale is shown at once")
        expect(
            known.allSatisfy { round.last[$0] == .revalidated || round.last[$0] == .stale },
            "nothing that is still right is loaded again")
        expect(round.tally.count(.revalidated) > round.tally.count(.stale), "most of it is revalidated")

        server.kill()
        try await growStale()
        known = Set(shown.keys)
        round = try await again(reader)
        tell("The server is killed, and everything is stale", round)
        expect(
            known.allSatisfy { round.first[$0] == .memory && round.last[$0] == .stale },
            "what is stale serves, from memory")

        reader.kill()
        reader = try startReader(address)
        round = try await watch(reader)
        tell("The reader is killed as well, and another one opens its cache", round)
        expect(
            known.allSatisfy { round.first[$0] == .disk && round.last[$0] == .stale }, "what is stale serves, from disk"
        )

        edition = .today
        (server, _) = try await startServer(port: URL(string: address)?.port ?? 0)
        round = try await again(reader)
        for _ in 1...3 where !isUpToDate { try await again(reader, &round) }
        tell("The server is back, with today's edition", round)
        expect(isUpToDate, "every article becomes today's")
        expect(
            round.tally.count(.network) > 0 && round.tally.count(.revalidated) > 0,
            "what is new is loaded, the rest revalidated")

        try reader.end()
        try await watch(reader, &round)
        expect(round.arrived == round.loaded, "the cache has announced what was loaded")
        try server.end()

        print("\n\(tally.table)\n")
        print(
            surprises.isEmpty
                ? "Every article shown was equal to its file, and came from where it must."
                : "\(surprises.count) not as expected.")
    }

    // MARK: What is seen

    /// Follows a reader until it has read everything, has shown enough, or has ended; compares what it shows.
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

    /// What the server has confirmed is of the present edition; what was stored is what was shown before.
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

    // MARK: Who takes part

    private func startServer(port: Int) async throws -> (Child, address: String) {
        let server = try Child(serverArguments + ["--edition", edition.rawValue, "--port", String(port)])
        guard let address = await server.nextLine() else { throw Failure(description: "the server has not started") }
        return (server, address)
    }

    private func startReader(_ address: String) throws -> Child {
        try Child(["reader", "--json", "--server", address, "--directory", cache])
    }

    private func growStale() async throws { try await Task.sleep(for: .seconds(maxAge) + .milliseconds(200)) }
}
