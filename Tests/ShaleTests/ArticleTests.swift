import Foundation
import Synchronization
import Testing
import Shale

/// The code of the modules' pages and articles.
@Suite("Articles", .timeLimit(.minutes(30)))
struct ArticleTests {
    struct Article: Codable, Sendable {
        var title: String
    }
    private let directory = TemporaryDirectory()
    private func url() throws -> URL { try #require(URL(string: "https://example.org/news")) }

    @Test("A first cache: open it, store and read")
    func storing() throws {
        let directory = directory.url, url = try url()
        let articles = try Cache<URL, Article>(at: directory, maxAge: .seconds(300), maxEntries: 1000)

        articles[url] = Article(title: "First")
        #expect((articles[url]?.title ?? "nothing") == "First")
        articles[url] = nil
        #expect((articles[url]?.title ?? "nothing") == "nothing")

        try articles.insert(Article(title: "First"), for: url, maxAge: .seconds(60), tags: ["news"], etag: "v1")
        let article = try articles.value(for: url)
        #expect(article?.title == "First")
        if let entry = try articles.entry(for: url, includingStale: true) {
            #expect(entry.value.title == "First" && !entry.isStale)
        }
        try articles.removeAll(tagged: "news")
        #expect(try articles.value(for: url) == nil)
    }

    @Test("A first cache: several caches in one store")
    func several() throws {
        let directory = directory.url, url = try url()
        let store = try Store(at: directory.path, options: .init(capacity: 64 << 20))
        let articles = try Cache<URL, Article>(in: store, named: "articles")
        let images = try Cache<URL, Data>(in: store, named: "images")
        articles[url] = Article(title: "First")
        #expect(images[url] == nil)
    }

    @Test("A first cache: load missing values")
    func loading() async throws {
        struct Answer: Sendable { var article: Article, etag: String }
        @Sendable func download(_: URL) async throws -> Article { Article(title: "Loaded") }
        @Sendable func download(_: URL, unless etag: String?) async throws -> Answer? {
            etag == "v2" ? nil : Answer(article: Article(title: "Second"), etag: "v2")
        }
        let url = try url(), clock = TestClock()
        let articles = try Cache<URL, Article>(at: directory.url, now: clock.now)

        let article = try await articles.value(for: url) { try await download(url) }
        #expect(article.title == "Loaded")
        clock.advance(seconds: 24 * 60 * 60)
        #expect(
            try await articles.value(for: url, options: .staleIfError) { try await download(url) }.title == "Loaded")

        for _ in 0..<2 {
            clock.advance(seconds: 24 * 60 * 60)
            let entry = try await articles.entry(for: url) { stored in
                guard let answer = try await download(url, unless: stored?.etag) else { return .notModified() }
                return .value(answer.article, etag: answer.etag)
            }
            #expect(entry.value.title == "Second" && entry.etag == "v2" && !entry.isStale)
        }
    }

    @Test("Ages and stale data: set ages; renew and expire; remove many at once")
    func ages() throws {
        let directory = directory.url, clock = TestClock()
        func open() throws -> Cache<String, Int> {
            let prices = try Cache<String, Int>(at: directory, maxAge: .seconds(60), staleFor: .seconds(3600))
            return prices
        }
        #expect(try open().value(for: "tea") == nil)
        let prices = try Cache<String, Int>(
            at: directory, maxAge: .seconds(60), staleFor: .seconds(3600), now: clock.now)

        try prices.insert(42, for: "tea")
        try prices.insert(43, for: "salt", maxAge: .milliseconds(500))
        try prices.insert(44, for: "gold", maxAge: .forever)
        clock.advance(milliseconds: 500)
        #expect(prices["tea"] == 42 && prices["salt"] == nil && prices["gold"] == 44)

        clock.advance(seconds: 60)
        var seen = ""
        if let entry = try prices.entry(for: "tea", includingStale: true), entry.isStale {
            seen = "\(entry.value) until \(entry.expiresAt ?? .distantFuture)"
        }
        #expect(seen == "42 until \(clock.date - 0.5)")

        try prices.touch("tea")
        #expect(try prices.entry(for: "tea")?.expiresAt == clock.date + 60)
        try prices.touch("tea", maxAge: .seconds(10))
        #expect(try prices.entry(for: "tea")?.expiresAt == clock.date + 10)
        try prices.expire("tea")
        try prices.expireAll(tagged: "metals")
        #expect(prices["tea"] == nil)
        #expect(try prices.entry(for: "tea", includingStale: true)?.value == 42)

        clock.advance(seconds: 3600)
        #expect(try prices.entry(for: "tea", includingStale: true) == nil)
        let removed = try prices.store.purge()
        #expect(removed == 2)
        #expect(prices["gold"] == 44)

        try prices.insert(45, for: "silver", tags: ["metals"])
        try prices.removeAll(tagged: "metals")
        #expect(try prices.allKeys() == ["gold"])
    }

    @Test("Ages and stale data: use another clock")
    func clock() throws {
        let directory = directory.url
        let time = Mutex(Date())
        let prices = try Cache<String, Int>(at: directory, maxAge: .seconds(60), now: { time.withLock { $0 } })
        prices["tea"] = 42
        #expect(prices["tea"] == 42)
        time.withLock { $0 += 60 }
        #expect(prices["tea"] == nil)
    }

    @Test("Loading without stampedes")
    func stampedes() async throws {
        struct Answer: Sendable { var article: Article, etag: String }
        let downloads = Counter(), url = try url(), clock = TestClock()
        @Sendable func download(_: URL) async throws -> Article { Article(title: "Number \(downloads.add())") }
        @Sendable func download(_: URL, unless etag: String?) async throws -> Answer? {
            etag == "v1" ? nil : Answer(article: Article(title: "Validated"), etag: "v1")
        }
        let articles = try Cache<URL, Article>(at: directory.url, maxAge: .seconds(300), now: clock.now)

        let first = try await articles.value(for: url) { try await download(url) }
        #expect(first.title == "Number 1")

        clock.advance(seconds: 300)
        var changes = articles.changes.makeAsyncIterator()
        let article = try await articles.value(for: url, options: .staleWhileRevalidate) { try await download(url) }
        #expect(article.title == "Number 1")
        _ = await changes.next()
        #expect(articles[url]?.title == "Number 2")

        clock.advance(seconds: 300)
        var shown: [String] = []
        func show(_ article: Article, isOld: Bool) { shown.append("\(article.title)\(isOld ? ", old" : "")") }
        for try await entry in articles.entries(for: url, load: { try await download(url) }) {
            show(entry.value, isOld: entry.isStale)
        }
        #expect(shown == ["Number 2, old", "Number 3"])

        for _ in 0..<2 {
            clock.advance(seconds: 300)
            let entry = try await articles.entry(for: url) { stored in
                guard let answer = try await download(url, unless: stored?.etag) else {
                    return .notModified(maxAge: .seconds(60))
                }
                return .value(answer.article, tags: ["news"], etag: answer.etag)
            }
            #expect(entry.value.title == "Validated" && entry.etag == "v1" && entry.tags == ["news"])
        }
        #expect(try articles.entry(for: url)?.expiresAt == clock.date + 60)

        articles[url] = nil
        let prefetch = articles.prefetch(url) { try await download(url) }
        #expect(try await articles.value(for: url) { throw Offline() }.title == "Number 4")
        prefetch.cancel()
        #expect(articles[url]?.title == "Number 4")
    }

    @Test("Loading without stampedes: limits, ages by value, missing values, jitter")
    func loadOptions() async throws {
        struct Article: Codable, Sendable {
            var title = "Loaded"
            var isBreaking = false
        }
        let url = try url(), clock = TestClock()
        @Sendable func download(_: URL) async throws -> Article { Article(isBreaking: true) }
        @Sendable func find(_: URL) async throws -> Article? { nil }
        let articles = try Cache<URL, Article>(at: directory.url, maxAge: .seconds(300), now: clock.now)

        let careful = LoadOptions(
            .staleIfError, softLimit: .milliseconds(300), hardLimit: .seconds(10), pauseAfterFailure: .seconds(30))
        try articles.insert(Article(title: "Old"), for: url)
        let fresh = try await articles.entry(for: url, options: careful) { _ in .value(try await download(url)) }
        #expect(fresh.value.title == "Old" && fresh.error == nil)

        articles[url] = nil
        let entry = try await articles.entry(for: url) { _ in
            let answer = try await download(url)
            return .value(answer, maxAge: answer.isBreaking ? .seconds(30) : nil)
        }
        #expect(entry.expiresAt == clock.date + 30)

        articles[url] = nil
        for _ in 0..<2 {
            await #expect(throws: LoadError.self) {
                try await articles.entry(for: url) { _ in
                    guard let article = try await find(url) else { return .missing(maxAge: .seconds(60)) }
                    return .value(article)
                }
            }
        }
        #expect(articles.statistics.loads == 2)

        clock.advance(seconds: 60)
        let article = try await articles.value(for: url, options: LoadOptions(jitter: 0.1)) { try await download(url) }
        #expect(article.title == "Loaded")
    }

    @Test("Loading without stampedes: load ahead of time")
    func refreshingAhead() async throws {
        let directory = directory.url, url = try url()
        let articles = try Cache<URL, Article>(at: directory, maxAge: .seconds(300), refreshAhead: 1)
        let article = try await articles.value(for: url) { Article(title: "Loaded") }
        #expect(article.title == "Loaded")
    }

    @Test("Several processes: share a directory; change a shared value")
    func sharing() throws {
        let directory = directory.url, url = try url()
        let mine = try Cache<URL, Article>(at: directory)
        let theirs = try Cache<URL, Article>(at: directory) // as if in another process
        mine[url] = Article(title: "First")
        #expect((theirs[url]?.title ?? "nothing") == "First")

        let statistics = try mine.store.statistics()
        #expect(statistics.entries == 1 && statistics.hits == 1 && statistics.misses == 0)

        let stock = try Cache<String, Int>(in: mine.store, named: "stock")
        stock["tea"] = 7
        try stock.update({ $0 -= 1 }, for: "tea")
        try stock.update({ $0 += 1 }, for: "salt", default: 0)
        #expect(stock["tea"] == 6 && stock["salt"] == 1)
    }

    @Test("Several processes: set the limits; read only")
    func opening() throws {
        let directory = directory.url, url = try url()
        let other = try Cache<URL, Article>(at: directory, capacity: 32 << 20)
        other[url] = Article(title: "First")
        func open() throws(ShaleError) -> Store {
            do {
                return try Store(at: directory.path, options: .init(capacity: 64 << 20))
            } catch  where error.code == .busy {
                return try Store(at: directory.path)
            }
        }
        #expect(try open().statistics().capacity == 32 << 20)
        try other.store.close()
        #expect(try open().statistics().capacity == 64 << 20)

        var options = Store.Options()
        options.isReadOnly = true
        options.mustExist = true
        let articles = try Cache<URL, Article>(in: Store(at: directory.path, options: options), named: "")
        #expect(articles[url]?.title == "First")
        #expect(throws: ShaleError.self) { try articles.removeValue(for: url) }
    }

    @Test("Files, durability and encoding")
    func disk() throws {
        let directory = directory.url, url = try url()
        func open() throws -> Cache<URL, Article> {
            let titles = Coder<Article> {
                Data($0.title.utf8)
            } decode: {
                Article(title: String(decoding: $0, as: UTF8.self))
            }
            let articles = try Cache<URL, Article>(at: directory, coder: titles)
            return articles
        }
        let articles = try open()
        articles[url] = Article(title: "First")
        #expect(try open().value(for: url)?.title == "First")
        #expect(try Cache<URL, String>(at: directory).value(for: url) == "First")

        let statistics = try articles.store.statistics()
        #expect(
            statistics.dataBytes + statistics.indexBytes > 0
                && statistics.dataBytes + statistics.indexBytes <= statistics.capacity)
        for file in ["shale.data", "shale.index"] {
            #expect(FileManager.default.fileExists(atPath: directory.appendingPathComponent(file).path))
        }

        try articles.store.sync()
        let report = try articles.store.verify()
        #expect(report.records >= 1 && report.corruptRecords == 0)

        let other = TemporaryDirectory(), archives = other.url
        let copy = try Cache<URL, Article>(contentsOf: articles.saveToDisk(withName: "articles", in: archives))
        #expect(copy[url]?.title == "First")
    }

    @Test("ShaleCore's page")
    func core() throws {
        let directory = directory.url.path
        let store = try Store(at: directory, options: .init(capacity: 64 << 20))
        try store.insert("value", for: "key", maxAge: .seconds(60), tags: ["news"])
        let bytes = try store.value(for: "key")
        #expect(bytes == Array("value".utf8))
        try store.removeAll(tagged: "news")
        #expect(try store.value(for: "key") == nil)
    }

    @Test("The example of start.md")
    func start() async throws {
        let articles = try Cache<String, Article>(
            at: directory.url.path, maxAge: .seconds(3600), maxEntries: 10_000)
        articles["a"] = Article(title: "Slate")
        #expect(articles["a"]?.title ?? "gone" == "Slate")
        let b = try await articles.value(for: "b", options: .staleIfError) { Article(title: "Marl") }
        #expect(b.title == "Marl")
    }
}
