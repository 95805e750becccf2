import Foundation
import Testing
import Shale
import ShaleAdapters

@Suite("Beagle: the view client", .timeLimit(.minutes(30)))
struct BeagleViewClientTests {
    private struct Screen: Codable, Sendable, Equatable {
        var title: String
    }
    private struct Offline: Error {}
    private typealias Network = BeagleSupport.Network
    private typealias Fetched = Result<Screen, ViewRequest.Error>

    private let clock = BeagleSupport.TestClock()
    private let url = "/home"

    private func cache(maxAge: Age = .seconds(60)) throws -> Cache<ViewKey, Screen> {
        try Cache.inMemory(maxAge: maxAge, capacity: 4 << 20, now: clock.now)
    }

    private func client(_ network: Network?, cache: Cache<ViewKey, Screen>? = nil) throws -> ViewClient<Screen> {
        let server = try #require(URL(string: "https://example.org"))
        return ViewClient(
            cache: try cache ?? self.cache(), networkClient: network, urlBuilder: UrlBuilder(baseUrl: server))
    }

    private func response(_ title: String, headers: [String: String] = [:]) throws -> NetworkResponse {
        NetworkResponse(data: try JSONEncoder().encode(Screen(title: title)), headers: headers)
    }

    /// A network that numbers its responses from 1.
    private func counting(headers: [String: String] = [:]) -> Network {
        let count = BeagleSupport.Record<Void>()
        return Network { _ in
            count.add(())
            return try self.response("\(count.all.count)", headers: headers)
        }
    }

    /// The result of a fetch with a completion, and whether there was a token.
    private func fetch(_ client: ViewClient<Screen>, _ url: String, additionalData: HttpAdditionalData? = nil)
        async throws -> (result: Fetched, hasToken: Bool)
    {
        let (results, continuation) = AsyncStream.makeStream(of: Fetched.self)
        let token = client.fetch(url: url, additionalData: additionalData) { continuation.yield($0) }
        var iterator = results.makeAsyncIterator()
        return (try #require(await iterator.next()), token != nil)
    }

    @Test("V1 A hit completes at once, without the network and without a token")
    func hit() async throws {
        let network = Network { _ in throw Offline() }
        let client = try client(network)
        try client.cache.insert(Screen(title: "stored"), for: ViewKey(url: url))
        let results = BeagleSupport.Record<Fetched>()
        let token = client.fetch(url: url) { results.add($0) }
        #expect(token == nil)
        #expect(try results.all.map { try $0.get() } == [Screen(title: "stored")])
        #expect(try await client.fetch(url: url) == Screen(title: "stored"))
        #expect(network.requests.isEmpty)
        // Does not build a URL.
        let alone = ViewClient(cache: client.cache, networkClient: nil)
        #expect(try await alone.fetch(url: url) == Screen(title: "stored"))
    }

    @Test("V2 A miss builds the URL, requests, decodes, stores, completes")
    func miss() async throws {
        let network = counting()
        let client = try client(network)
        let data = HttpAdditionalData(method: .post, headers: ["Accept": "text/json"], body: Data("body".utf8))
        let (result, hasToken) = try await fetch(client, "/home?q=a b", additionalData: data)
        #expect(hasToken)
        #expect(try result.get() == Screen(title: "1"))
        #expect(network.requests.map(\.url.absoluteString) == ["https://example.org/home?q=a%20b"])
        #expect(network.requests.map(\.additionalData) == [data])
        let entry = try #require(try client.cache.entry(for: ViewKey(url: "/home?q=a b", additionalData: data)))
        #expect(entry.value == Screen(title: "1") && entry.expiresAt == clock.date + 60)
        #expect(try await client.fetch(url: url) == Screen(title: "2"))
        #expect(network.requests.count == 2)
    }

    @Test("V2 The token cancels: the completion gets the error, the request is cancelled, nothing is stored")
    func cancelling() async throws {
        let never = BeagleSupport.Gate(), asked = BeagleSupport.Gate(), cancelled = BeagleSupport.Gate(),
            completed = BeagleSupport.Gate()
        let results = BeagleSupport.Record<Fetched>()
        let client = try client(
            Network { _ in
                asked.open()
                do { try await never.wait() } catch {
                    cancelled.open()
                    throw error
                }
                return NetworkResponse(data: Data())
            })
        let token = try #require(
            client.fetch(url: url) {
                results.add($0)
                completed.open()
            })
        try await asked.wait()
        token.cancel()
        token.cancel()
        try await completed.wait()
        try await cancelled.wait()
        #expect(results.all.count == 1)
        guard case .failure(.networkError(let failure)) = results.all.first else {
            Issue.record("no network error: \(results.all)")
            return
        }
        #expect(failure.error is CancellationError)
        #expect(failure.request.url.absoluteString == "https://example.org/home")
        #expect(try client.cache.allKeys() == [])
    }

    @Test("V2 A network client that responds twice, or not after a cancellation, does no harm")
    func badClient() async throws {
        struct Twice: NetworkClientProtocol {
            let answers: [NetworkResponse]
            func executeRequest(
                _: ViewRequest, completion: @escaping @Sendable (Result<NetworkResponse, NetworkError>) -> Void
            ) -> (any RequestToken)? {
                for answer in answers { completion(.success(answer)) }
                return nil
            }
        }
        let address = "https://example.org/home"
        let twice = ViewClient(
            cache: try cache(), networkClient: Twice(answers: [try response("first"), try response("second")]))
        #expect(try await twice.fetch(url: address) == Screen(title: "first"))

        let shared = try cache()
        let silent = ViewClient(cache: shared, networkClient: Twice(answers: []))
        let waiting = Task { try await silent.fetch(url: address) }
        while shared.statistics.loads == 0 { await Task.yield() }
        waiting.cancel()
        await #expect(throws: CancellationError.self) { try await waiting.value }
        // In the same cache object, so that this load waits for the end of the cancelled one.
        let next = ViewClient(cache: shared, networkClient: Twice(answers: [try response("next")]))
        #expect(try await next.fetch(url: address) == Screen(title: "next"))
    }

    @Test("V3 prefetch stores only successes; all later fetches are served from the cache")
    func prefetch() async throws {
        let isOnline = BeagleSupport.Record<Bool>()
        let network = Network { _ in
            if isOnline.all.isEmpty { throw Offline() }
            return try self.response("prefetched")
        }
        let client = try client(network)
        client.prefetch(url: url)
        while client.cache.statistics.loads < 1 { await Task.yield() }
        // Joins the load that fails, or begins the next.
        await #expect(throws: ViewRequest.Error.self) { try await client.fetch(url: url) }
        #expect(try client.cache.entry(for: ViewKey(url: url), includingStale: true) == nil)

        isOnline.add(true)
        var changes = client.cache.changes.makeAsyncIterator()
        client.prefetch(url: url)
        _ = await changes.next()
        let requests = network.requests.count
        for _ in 0..<3 {
            let (result, hasToken) = try await fetch(client, url)
            #expect(!hasToken)
            #expect(try result.get() == Screen(title: "prefetched"))
        }
        #expect(network.requests.count == requests)
    }

    @Test("V3 prefetch makes a request even if the component is fresh, and replaces it")
    func prefetchOfFresh() async throws {
        let network = counting()
        let client = try client(network)
        #expect(try await client.fetch(url: url) == Screen(title: "1"))
        var changes = client.cache.changes.makeAsyncIterator()
        client.prefetch(url: url)
        _ = await changes.next()
        #expect(network.requests.count == 2)
        #expect(try await client.fetch(url: url) == Screen(title: "2"))
        #expect(network.requests.count == 2)
    }

    @Test("V4 fetch while a prefetch of the same URL is under way waits for it")
    func fetchDuringPrefetch() async throws {
        let asked = BeagleSupport.Gate(), gate = BeagleSupport.Gate(), completed = BeagleSupport.Gate()
        let network = Network { _ in
            asked.open()
            try await gate.wait()
            return try self.response("once")
        }
        let client = try client(network), results = BeagleSupport.Record<Fetched>()
        client.prefetch(url: url)
        try await asked.wait()
        let token = client.fetch(url: url) {
            results.add($0)
            completed.open()
        }
        #expect(token != nil)
        // Its cancellation does not cancel the request of the others.
        let impatient = Task { try await client.fetch(url: url) }
        impatient.cancel()
        await #expect(throws: CancellationError.self) { try await impatient.value }
        #expect(results.all.isEmpty)
        gate.open()
        try await completed.wait()
        #expect(try results.all.map { try $0.get() } == [Screen(title: "once")])
        #expect(network.requests.count == 1)
    }

    @Test("V4 1,000 fetches of one URL are one request")
    func stampede() async throws {
        let network = counting()
        let client = try client(network)
        let titles = try await withThrowingTaskGroup(of: String.self) { group in
            for i in 0..<1_000 {
                group.addTask {
                    i.isMultiple(of: 2)
                        ? try await client.fetch(url: self.url).title
                        : try await self.fetch(client, self.url).result.get().title
                }
            }
            return try await group.reduce(into: Set()) { $0.insert($1) }
        }
        #expect(titles == ["1"])
        #expect(network.requests.count == 1)
    }

    @Test("V5 The key is the URL and the additional data")
    func keys() async throws {
        let network = counting()
        let client = try client(network)
        let different = [
            nil, HttpAdditionalData(method: .post), HttpAdditionalData(headers: ["Authorization": "a"]),
            HttpAdditionalData(headers: ["Authorization": "b"]),
            HttpAdditionalData(method: .post, body: Data("a".utf8)),
            HttpAdditionalData(method: .post, body: Data("b".utf8)),
        ]
        for _ in 0..<2 {
            for (i, data) in different.enumerated() {
                #expect(try await client.fetch(url: url, additionalData: data) == Screen(title: "\(i + 1)"))
            }
        }
        #expect(try await client.fetch(url: url, additionalData: HttpAdditionalData()) == Screen(title: "1"))
        #expect(try await client.fetch(url: "/other") == Screen(title: "7"))
        #expect(network.requests.count == 7)
    }

    @Test("V5 The function that makes keys can be replaced")
    func ownKeys() async throws {
        let network = counting()
        let client = ViewClient(cache: try cache(), networkClient: network) { url, data in
            ViewKey(url: url, additionalData: data.map { HttpAdditionalData(method: $0.method, body: $0.body) })
        }
        let address = "https://example.org/home"
        for request in ["a", "b"] {
            let data = HttpAdditionalData(headers: ["Request-Id": request])
            #expect(try await client.fetch(url: address, additionalData: data) == Screen(title: "1"))
            #expect(client.fetch(url: address, additionalData: data) { _ in } == nil)
        }
        #expect(
            try await client.fetch(url: address, additionalData: HttpAdditionalData(method: .post))
                == Screen(title: "2"))
        #expect(network.requests.map(\.additionalData?.headers) == [["Request-Id": "a"], [:]])
    }

    @Test("V6 urlBuilderError and networkClientWasNotConfigured complete at once, without a token")
    func notConfigured() async throws {
        let network = counting()
        let noClient = try client(nil), noBase = ViewClient(cache: try cache(), networkClient: network)
        for (client, cause) in [(noClient, "has no network client"), (noBase, #""/home" is not a valid URL"#)] {
            let results = BeagleSupport.Record<Fetched>()
            #expect(client.fetch(url: url) { results.add($0) } == nil)
            let error = try #require(throws: ViewRequest.Error.self) { try results.all.first?.get() }
            #expect("\(error)".contains(cause))
            switch error {
            case .networkClientWasNotConfigured: #expect(client.cache === noClient.cache)
            case .urlBuilderError: #expect(client.cache === noBase.cache)
            case .networkError, .decoding: Issue.record(error)
            }
            await #expect(throws: ViewRequest.Error.self) { try await client.fetch(url: url) }
        }
        #expect(network.requests.isEmpty)
    }

    @Test(
        "V6 networkError: client error or unexpected status; decoding: invalid component. None is cached",
        arguments: [
            .failure(Offline()), .success(NetworkResponse(data: Data(#"{"title":"oops"}"#.utf8), statusCode: 500)),
            .success(NetworkResponse(data: Data(#"{"title":"oops"}"#.utf8), statusCode: 304)),
            .success(NetworkResponse(data: Data("{}".utf8))),
        ]
            as [Result<NetworkResponse, any Error>])
    func failures(answer: Result<NetworkResponse, any Error>) async throws {
        let answers = BeagleSupport.Record<Bool>()
        let client = try client(
            Network { _ in
                answers.add(true)
                return try answers.all.count <= 2 ? answer.get() : self.response("well")
            })
        let viaCompletion = try await fetch(client, url)
        #expect(viaCompletion.hasToken)
        let first = try #require(throws: ViewRequest.Error.self) { try viaCompletion.result.get() }
        let second = try await #require(throws: ViewRequest.Error.self) { try await client.fetch(url: url) }
        for error in [first, second] {
            switch (error, answer) {
            case (.networkError(let failure), .failure): #expect(failure.error is Offline && failure.response == nil)
            case (.networkError(let failure), .success(let response)):
                #expect(failure.error as? NetworkError.UnexpectedStatus == .init(statusCode: response.statusCode))
                #expect(failure.response?.statusCode == response.statusCode)
            case (.decoding(let cause), .success(let response)):
                #expect(cause is DecodingError && response.statusCode == 200)
            default: Issue.record(error)
            }
        }
        #expect(try client.cache.allKeys() == [])
        #expect(try await client.fetch(url: url) == Screen(title: "well"))
    }

    @Test("V6 A component that the cache cannot store is still served")
    func cacheFailure() async throws {
        let network = counting()
        let client = try client(network)
        let large = HttpAdditionalData(method: .post, body: Data(count: 100_000))
        #expect(try await client.fetch(url: url, additionalData: large) == Screen(title: "1"))
        #expect(try await fetch(client, url, additionalData: large).result.get() == Screen(title: "2"))
    }

    @Test("V4 With refreshAhead a fresh component is reloaded before it is stale")
    func refreshAhead() async throws {
        let network = Network { [clock] _ in
            clock.advance(seconds: 1)
            return try self.response("loaded")
        }
        let client = try client(
            network,
            cache: Cache.inMemory(maxAge: .seconds(60), capacity: 4 << 20, refreshAhead: 1e12, now: clock.now))
        #expect(try await client.fetch(url: url) == Screen(title: "loaded"))
        var changes = client.cache.changes.makeAsyncIterator()
        #expect(try await client.fetch(url: url) == Screen(title: "loaded"))
        _ = await changes.next()
        #expect(network.requests.count == 2)
    }

    @Test("V7 A stale component's hash is sent; \"not modified\" serves the stored component, and renews its age")
    func validating() async throws {
        let network = Network { request in
            if request.additionalData?.headers["beagle-hash"] == "v1" {
                return NetworkResponse(data: Data(), statusCode: 304, headers: ["Cache-Control": "max-age=20"])
            }
            return try self.response("stored", headers: ["Beagle-Hash": "v1", "Cache-Control": "private, MAX-AGE=10"])
        }
        let client = try client(network)
        let data = HttpAdditionalData(headers: ["Accept": "text/json"])
        for additionalData in [nil, data] {
            let before = network.requests.count
            #expect(try await client.fetch(url: url, additionalData: additionalData) == Screen(title: "stored"))
            clock.advance(seconds: 9.999)
            #expect(client.fetch(url: url, additionalData: additionalData) { _ in } == nil)
            clock.advance(seconds: 0.001)
            let (revalidated, hasToken) = try await fetch(client, url, additionalData: additionalData)
            #expect(hasToken)
            #expect(try revalidated.get() == Screen(title: "stored"))
            let entry = try #require(try client.cache.entry(for: ViewKey(url: url, additionalData: additionalData)))
            #expect(entry.expiresAt == clock.date + 20 && entry.etag == "v1")
            clock.advance(seconds: 19.999)
            #expect(client.fetch(url: url, additionalData: additionalData) { _ in } == nil)

            let sent = network.requests.dropFirst(before).map { $0.additionalData?.headers ?? [:] }
            let own = additionalData?.headers ?? [:]
            #expect(sent == [own, own.merging(["beagle-hash": "v1"]) { $1 }])
        }
    }

    @Test(
        "V7 A modified stale component is replaced with its hash; the response or the cache sets the max age"
    )
    func modified() async throws {
        let hashes = BeagleSupport.Record<String?>()
        let headers = [
            ["beagle-hash": "1", "cache-control": "max-age=never"], ["beagle-hash": "2", "cache-control": "max-age=0"],
            ["cache-control": "max-age=-1"],
        ]
        let client = try client(
            Network { request in
                hashes.add(request.additionalData?.headers["beagle-hash"])
                return try self.response("\(hashes.all.count)", headers: headers[hashes.all.count - 1])
            })
        #expect(try await client.fetch(url: url) == Screen(title: "1"))
        #expect(try client.cache.entry(for: ViewKey(url: url))?.expiresAt == clock.date + 60)
        clock.advance(seconds: 60)
        #expect(try await client.fetch(url: url) == Screen(title: "2"))
        // Max age 0: requested again at once.
        #expect(try await client.fetch(url: url) == Screen(title: "3"))
        #expect(hashes.all == [nil, "1", "2"])
        let entry = try #require(try client.cache.entry(for: ViewKey(url: url)))
        #expect(entry.etag == nil && entry.expiresAt == clock.date + 60)
    }

    @Test("V7 A restart loses neither component nor hash")
    func restart() async throws {
        let directory = BeagleSupport.TemporaryDirectory()
        let network = Network { request in
            request.additionalData == nil
                ? try self.response("stored", headers: ["beagle-hash": "v1"])
                : NetworkResponse(data: Data(), statusCode: 304)
        }
        for round in 0..<3 {
            let client = try client(network, cache: Cache(at: directory.url, maxAge: .seconds(60), now: clock.now))
            #expect(try await client.fetch(url: url) == Screen(title: "stored"))
            #expect(network.requests.count == [1, 1, 2][round])
            if round == 1 { clock.advance(seconds: 60) }
        }
        #expect(network.requests.last?.additionalData == HttpAdditionalData(headers: ["beagle-hash": "v1"]))
    }

    @Test("the URL builder appends paths to the base, and accepts absolute URLs")
    func urlBuilder() {
        let builder = UrlBuilder(baseUrl: URL(string: "https://example.org/app/"))
        for (path, address) in [
            ("/", "https://example.org/app/"), ("/a/b?c=d", "https://example.org/app/a/b?c=d"),
            ("/a b", "https://example.org/app/a%20b"),
            ("/a%20b", "https://example.org/app/a%20b"), ("http://other.org/a", "http://other.org/a"), ("a/b", nil),
            ("", nil),
        ] as [(String, String?)] {
            #expect(builder.build(path: path)?.absoluteString == address, "\(path)")
        }
        #expect(
            UrlBuilder(baseUrl: URL(string: "https://example.org")).build(path: "/a")?.absoluteString
                == "https://example.org/a")
        #expect(UrlBuilder().build(path: "/a") == nil)
    }
}
