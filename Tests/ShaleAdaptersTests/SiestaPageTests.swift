import Foundation
import Shale
import ShaleAdapters
import Testing

/// What Documentation/migrating/siesta.md and the module's page show, as they show it. The page's last line is in SiestaProtocolTests.swift.
@Suite("Siesta: the page", .timeLimit(.minutes(30)))
struct SiestaPageTests {
    typealias Story = SiestaSupport.Story
    private struct Answer: Sendable { var story: Story, headers: [String: String] }
    @MainActor
    final class Screen {
        var story: Story? {
            didSet { shown.append(story?.title) }
        }
        private(set) var shown: [String?] = []

        func follow(_ front: Resource) async {
            for await update in await front.events { story = update.latestData?.typedContent() }
        }
    }
    private let directory = SiestaSupport.Directory()
    private let url = URL(filePath: "/front")

    @Test("every line of code but the conformance is in this file")
    func isComplete() throws {
        let file = URL(fileURLWithPath: #filePath)
        func lines(_ text: String) -> [String] {
            text.split(separator: "\n").map { $0.trimmingCharacters(in: .whitespaces) }
        }
        let page = try String(
            contentsOf: file.appendingPathComponent("../../../Documentation/migrating/siesta.md").standardizedFileURL,
            encoding: .utf8)
        let here = Set(lines(try String(contentsOf: file, encoding: .utf8)) + ["var story: Story?"])
        let parts = page.components(separatedBy: "```")
        for i in stride(from: 1, to: parts.count, by: 2) where !parts[i].contains("extension ShaleEntityCache") {
            for line in lines(parts[i]).dropFirst() { #expect(here.contains(line), "\(line)") }
        }
    }

    @Test("After")
    @MainActor
    func after() async throws {
        @Sendable func download(_: URL, unless etag: String?) async throws -> Answer? {
            etag == "v1" ? nil : Answer(story: Story(title: "Front"), headers: ["ETag": "v1"])
        }
        let directory = directory.url, url = url, screen = Screen()
        for round in 0..<2 {
            let store = try Store(at: directory.path, options: .init(capacity: 64 << 20))
            let cache = try ShaleEntityCache<URL, Story>(in: store, named: "stories")

            let front = Resource(url: url, cache: cache) { stored in
                guard let answer = try await download(url, unless: stored?.etag) else { return .notModified }
                return .newData(Resource.Entity(content: answer.story, headers: answer.headers))
            }
            let following = Task { await screen.follow(front) }
            try await front.loadIfNeeded()

            #expect(await front.latestData?.typedContent() == Story(title: "Front"))
            while screen.story == nil { await Task.yield() }
            following.cancel()
            await following.value
            #expect(screen.shown.contains("Front"), "the second time it is stored")
            if round == 0 { screen.story = nil }
        }
    }

    @Test("After: the user is part of the key")
    func users() throws {
        struct UserPage: Hashable, Codable {
            var user: Int
            var url: URL
        }
        let store = try directory.open()
        let cache = try ShaleEntityCache<UserPage, Story>(in: store, named: "pages") { UserPage(user: 1, url: $0.url) }
        #expect(cache.key(for: Resource(url: url) { _ in .notModified }) == UserPage(user: 1, url: url))
    }
}
