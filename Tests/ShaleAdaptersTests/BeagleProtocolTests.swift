import Foundation
import Shale
import ShaleAdapters
import Synchronization
import Testing

/// Protocols that an application declares and a view client satisfies.
private protocol Screens: Sendable {
    func fetch(
        url: String, additionalData: HttpAdditionalData?,
        completion: @escaping @Sendable (Result<String, ViewRequest.Error>) -> Void
    ) -> (any RequestToken)?
    func prefetch(url: String, additionalData: HttpAdditionalData?)
}
extension ViewClient: Screens where Component == String {}

@Suite("Beagle: the view client's protocol", .timeLimit(.minutes(30)))
struct BeagleProtocolTests {
    /// A client for tests: the first fetch of a URL waits until it is cancelled.
    private final class Mock: ViewClientProtocol {
        struct Token: RequestToken {
            let completion: @Sendable (Result<String, ViewRequest.Error>) -> Void
            func cancel() { completion(.failure(.urlBuilderError("cancelled"))) }
        }
        let asked = AsyncStream.makeStream(of: String.self)

        func fetch(
            url: String, additionalData: HttpAdditionalData?,
            completion: @escaping @Sendable (Result<String, ViewRequest.Error>) -> Void
        ) -> (any RequestToken)? {
            asked.continuation.yield(url)
            if url == "/never" { return Token(completion: completion) }
            completion(url == "/home" ? .success("home") : .failure(.urlBuilderError(url)))
            return nil
        }
        func prefetch(url: String, additionalData: HttpAdditionalData?) {}
    }

    @Test("a custom client only has to implement fetch with a completion")
    func mock() async throws {
        let mock = Mock(), client: any ViewClientProtocol<String> = mock
        #expect(try await client.fetch(url: "/home") == "home")
        await #expect(throws: ViewRequest.Error.self) { try await client.fetch(url: "/other") }
        let task = Task { try await client.fetch(url: "/never") }
        for await url in mock.asked.stream where url == "/never" { break }
        task.cancel()
        await #expect(throws: (any Error).self) { try await task.value }
    }

    @Test("a view client satisfies the protocol, and those of an application")
    func conforms() async throws {
        let cache = try Cache<ViewKey, String>.inMemory()
        try cache.insert("stored", for: ViewKey(url: "/home"))
        let client = ViewClient(cache: cache, networkClient: nil)
        let offered: any ViewClientProtocol<String> = client
        #expect(try await offered.fetch(url: "/home", additionalData: nil) == "stored")
        let declared: any Screens = client
        let got = Mutex<String?>(nil)
        #expect(
            declared.fetch(url: "/home", additionalData: nil) { result in got.withLock { $0 = try? result.get() } }
                == nil)
        #expect(got.withLock { $0 } == "stored")
    }
}
