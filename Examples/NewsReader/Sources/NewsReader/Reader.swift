import Shale

/// Shows all articles: stored ones at once, even if stale, and newer versions when they have been loaded.
struct Reader {
    let lists: Cache<String, [String]>
    let articles: Cache<String, Article>
    let client: NewsClient
    let screen: Screen
    private let clock = ContinuousClock()

    /// Two caches in one store.
    init(directory: String, client: NewsClient, screen: Screen) throws {
        let store = try Store(at: directory, options: .init(capacity: 64 << 20))
        lists = try Cache(in: store, named: "lists", maxAge: .seconds(1))
        articles = try Cache(in: store, named: "articles")
        self.client = client
        self.screen = screen
        // Starts loading before the first request.
        lists.prefetch("all") { try await client.articleNames() }
    }

    func readAll() async throws {
        var names: [String] = []
        var begun = clock.now
        do {
            for try await list in lists.entries(for: "all", load: { [client] in try await client.articleNames() }) {
                names = list.value
                try screen.show(
                    .list(count: names.count, source: Source(list.source), milliseconds: milliseconds(since: begun)))
                begun = clock.now
            }
        } catch let error as ShaleError { throw error } catch {
            try screen.show(.failure(name: "the list of articles", cause: "\(error)"))
        }
        for name in names { try await read(name) }
    }

    private func read(_ name: String) async throws {
        var begun = clock.now
        let stored = try articles.entry(for: name, includingStale: true)
        if let stored {
            try screen.show(
                .article(
                    name: name, stored.value, source: Source(stored.source), milliseconds: milliseconds(since: begun)))
            if !stored.isStale { return }
        }
        begun = clock.now
        do {
            let entry = try await articles.entry(for: name, options: .staleIfError) { [client] in
                try await client.article(name, unless: $0)
            }
            let source: Source = entry.isStale ? .stale : entry.version == stored?.version ? .revalidated : .network
            try screen.show(.article(name: name, entry.value, source: source, milliseconds: milliseconds(since: begun)))
        } catch let error as ShaleError { throw error } catch {
            try screen.show(.failure(name: name, cause: "\(error)"))
        }
    }

    private func milliseconds(since begun: ContinuousClock.Instant) -> Double { (clock.now - begun) / .milliseconds(1) }
}

extension Source {
    init(_ source: EntrySource) {
        self =
            switch source {
            case .memory: .memory
            case .store: .disk
            case .loader: .network
            }
    }
}
