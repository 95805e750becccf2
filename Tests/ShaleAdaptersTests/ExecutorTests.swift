import Dispatch
import Foundation
import Shale
import ShaleAdapters
import Testing

@Suite("The executor of a hit", .timeLimit(.minutes(30)))
struct ExecutorTests {
    private static let mainQueue = DispatchSpecificKey<Bool>()
    /// Whether this is the main actor's code. (Its thread need not be the main one.)
    private static var isMain: Bool { DispatchQueue.getSpecific(key: mainQueue) == true }

    /// Notes where it was decoded.
    private struct Value: Codable, Sendable {
        let isDecodedOnMain: Bool
        init() { isDecodedOnMain = false }
        init(from decoder: any Decoder) throws { isDecodedOnMain = ExecutorTests.isMain }
        func encode(to encoder: any Encoder) throws {
            var container = encoder.singleValueContainer()
            try container.encode(0)
        }
    }

    @MainActor @Test("ProviderCache and ViewClient serve it on the caller's executor")
    func hits() async throws {
        DispatchQueue.main.setSpecific(key: Self.mainQueue, value: true)
        let providers = try ProviderCache.inMemory(), provider = RxCacheSupport.Provider("values", seconds: 60)
        _ = try await providers.cache({ Value() }, provider: provider)
        #expect(try await providers.cache({ Value() }, provider: provider).isDecodedOnMain)
        #expect(try await providers.cacheWithReply({ Value() }, provider: provider).cacheables.isDecodedOnMain)

        let views = try Cache<ViewKey, Value>.inMemory(capacity: 4 << 20, memoryEntries: 0)
        let server = try #require(URL(string: "https://example.org"))
        let client = ViewClient(cache: views, networkClient: nil, urlBuilder: UrlBuilder(baseUrl: server))
        try views.insert(Value(), for: ViewKey(url: "/home"))
        #expect(try await client.fetch(url: "/home").isDecodedOnMain)
    }
}
