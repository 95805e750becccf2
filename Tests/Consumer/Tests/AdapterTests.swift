import Foundation
import Shale
import ShaleAdapters
import Testing

@Suite("A program that uses ShaleAdapters", .timeLimit(.minutes(30)))
struct AdapterTests {
    private let directory = Directory()

    @Test("keeps the entities of Siesta resources across restarts")
    func entities() async throws {
        struct Offline: Error {}
        let url = try #require(URL(string: "https://example.org/front"))
        for round in 0..<2 {
            let store = try Store(at: directory.url.path)
            let cache = try ShaleEntityCache<URL, String>(in: store, named: "pages")
            let front = Resource(url: url, cache: cache) { _ in
                if round == 1 { throw Offline() }
                return .newData(Resource.Entity(content: "Front", headers: ["ETag": "v1"]))
            }
            let entity = try await front.loadIfNeeded()
            #expect(entity.typedContent() == "Front" && entity.etag == "v1")
        }
    }
}
