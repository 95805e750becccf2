import Foundation
import Testing
import Shale

/// What the module's articles show, as they show it.
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

    @Test("A first cache: load what is missing")
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
        #expect(try await articles.value(for: url, orLoad: .staleIfError) { try await download(url) }.title == "Loaded")

        for _ in 0..<2 {
            clock.advance(seconds: 24 * 60 * 60)
            let entry = try await articles.entry(for: url) { stored in
                guard let answer = try await download(url, unless: stored?.etag) else { return .notModified() }
                return .value(answer.article, etag: answer.etag)
            }
            #expect(entry.value.title == "Second" && entry.etag == "v2" && !entry.isStale)
        }
    }

    @Test("The README's example")
    func readme() async throws {
        let articles = try Cache<String, Article>(at: directory.url.path, maxAge: .seconds(3600), memoryEntries: 256)
        articles["a"] = Article(title: "Slate")
        #expect(articles["a"]?.title ?? "gone" == "Slate")
        let b = try await articles.value(for: "b", orLoad: .staleIfError) { Article(title: "Marl") }
        #expect(b.title == "Marl")
    }
}
