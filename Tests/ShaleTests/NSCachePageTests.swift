import Foundation
import Shale
import Testing

/// What Documentation/migrating/nscache.md shows, as it shows it.
@Suite("Coming from NSCache: the page", .timeLimit(.minutes(30)))
struct NSCachePageTests {
    private struct Article: Codable, Sendable, Equatable, Identifiable { var id: Int }
    private final class Image {}
    private let temporary = TemporaryDirectory()

    @Test("every line of code that is not from before is in this file")
    func isComplete() throws {
        let file = URL(fileURLWithPath: #filePath)
        func lines(_ text: String) -> [String] {
            text.split(separator: "\n").map { $0.trimmingCharacters(in: .whitespaces) }
        }
        let page = try String(
            contentsOf: file.appendingPathComponent("../../../Documentation/migrating/nscache.md")
                .standardizedFileURL,
            encoding: .utf8)
        let here = Set(lines(try String(contentsOf: file, encoding: .utf8)))
        let parts = page.components(separatedBy: "```")
        var shown = 0
        for i in stride(from: 1, to: parts.count, by: 2) where !parts[i - 1].hasSuffix("Before:\n\n") {
            for line in lines(parts[i]).dropFirst() {
                #expect(here.contains(line), "\(line)")
                shown += 1
            }
        }
        #expect(shown >= 12)
    }

    @Test("the generic cache")
    func generic() throws {
        let article = Article(id: Int.random(in: 0 ... .max)), directory = temporary.url
        let cache = MemoryCache<Article.ID, Article>(entryLifetime: 60 * 60, maximumEntryCount: 100)
        cache[article.id] = article
        cache.insert(article, for: article.id)
        let stored = cache.value(for: article.id)
        cache.removeValue(for: article.id)
        #expect(stored == article && cache[article.id] == nil)

        cache[article.id] = article
        do {
            let name = "shale-test-\(UUID().uuidString)"
            let folder = try FileManager.default.url(
                for: .cachesDirectory, in: .userDomainMask, appropriateFor: nil, create: true)
            defer { try? FileManager.default.removeItem(at: folder.appendingPathComponent("\(name).cache")) }
            let file = try cache.saveToDisk(withName: name)
            let saved = try MemoryCache<Article.ID, Article>(contentsOf: file)
            #expect(saved[article.id] == article)
        }

        let articles = try Cache<Article.ID, Article>(at: directory, maxAge: .seconds(60 * 60), maxEntries: 100)
        try articles.insert(article, for: article.id)
        #expect(articles[article.id] == article)
    }

    @Test("NSCache")
    func images() throws {
        let url = temporary.url, image = Image()
        let images = MemoryCache<URL, Image>(entryLifetime: .infinity, maximumEntryCount: 100)
        images[url] = image
        let shown = images[url]
        #expect(shown === image)
    }
}
