import Foundation
import Shale
import ShaleAdapters
import Synchronization
import Testing

/// What Documentation/coming-from-siesta.md and the module's page show, as they show it. The page's last line is in SiestaProtocolTests.swift.
@Suite("Siesta: the page", .timeLimit(.minutes(5)))
struct SiestaPageTests {
    private typealias Story = SiestaSupport.Story
    private struct Answer: Sendable { var story: Story, headers: [String: String] }
    private final class Screen: Sendable {
        private let titles = Mutex<[String?]>([])
        var shown: [String?] { titles.withLock { $0 } }
        func show(_ story: Story?) { titles.withLock { $0.append(story?.title) } }
    }
    private let directory = SiestaSupport.Directory()
    private let url = URL(filePath: "/front")

    @Test("After")
    func after() async throws {
        @Sendable func download(_: URL, unless etag: String?) async throws -> Answer? {
            etag == "v1" ? nil : Answer(story: Story(title: "Front"), headers: ["ETag": "v1"])
        }
        let directory = directory.url, url = url, screen = Screen(), began = ContinuousClock.now
        for round in 0..<2 {
            let store = try Store(at: directory.path, options: .init(capacity: 64 << 20))
            let cache = try ShaleEntityCache<URL, Story>(in: store, named: "stories")

            let front = Resource(url: url, cache: cache) { stored in
                guard let answer = try await download(url, unless: stored?.etag) else { return .notModified }
                return .newData(Entity(content: answer.story, headers: answer.headers))
            }
            await front.addObserver(owner: screen) { resource, event in screen.show(resource.latestData?.typedContent())
            }
            try await front.loadIfNeeded()

            #expect(await front.latestData?.typedContent() == Story(title: "Front"))
            if round == 0 { #expect(screen.shown == [nil, nil, "Front"]) }
        }
        #expect(screen.shown.starts(with: [nil, nil, "Front", nil, "Front"]), "the second time it is stored")
        // (A resource is up to date for 30 seconds.)
        if ContinuousClock.now - began < .seconds(30) { #expect(screen.shown.count == 5, "and up to date") }
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
