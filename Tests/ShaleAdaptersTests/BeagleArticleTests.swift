import Foundation
#if canImport(FoundationNetworking)
import FoundationNetworking
#endif
import Testing
import Shale
import ShaleAdapters

/// The code of the page for users of Beagle.
@Suite("Beagle: the article", .timeLimit(.minutes(30)))
struct BeagleArticleTests {
    private let temporary = BeagleSupport.TemporaryDirectory()
    private var directory: URL { temporary.url }

    @Test("migrating/beagle.md: every line of code that is not from before is in this file")
    func isComplete() throws {
        let file = URL(fileURLWithPath: #filePath)
        func lines(_ text: String) -> [String] {
            text.split(separator: "\n").map { $0.trimmingCharacters(in: .whitespaces) }
        }
        let page = try String(
            contentsOf: file.appendingPathComponent("../../../Documentation/migrating/beagle.md").standardizedFileURL,
            encoding: .utf8)
        let here = Set(lines(try String(contentsOf: file, encoding: .utf8)))
        let parts = page.components(separatedBy: "```")
        var shown = 0
        for i in stride(from: 1, to: parts.count, by: 2) where !parts[i - 1].hasSuffix("Before:\n\n") {
            for line in lines(parts[i]).dropFirst() {
                #expect(here.contains(line))
                shown += 1
            }
        }
        #expect(shown >= 15)
    }

    @Test("migrating/beagle.md: the cache manager")
    func cacheManager() throws {
        let data = Data("{}".utf8), hash = "h"
        let shown = BeagleSupport.Record<Data>()
        func show(_ data: Data) { shown.add(data) }

        let cacheManager = try CacheManager(
            at: directory, config: .init(diskMaximumCapacity: 500), onError: { print($0) })

        cacheManager.addToCache(CacheReference(identifier: "/home", data: data, hash: hash, maxAge: 60))
        if let reference = cacheManager.getReference(identifiedBy: "/home"),
            cacheManager.isValid(reference: reference)
        {
            show(reference.data)
        }
        #expect(shown.all == [data])
    }

    @Test("migrating/beagle.md: the network client and the view client")
    func viewClient() async throws {
        struct Screen: Codable, Sendable {
            var title: String
        }
        #expect(URLProtocol.registerClass(StubServer.self))
        let server = try #require(URL(string: "http://\(StubServer.host)"))
        let shown = BeagleSupport.Record<String>(), isShown = BeagleSupport.Gate()
        @Sendable func show(_ result: Result<Screen, ViewRequest.Error>) {
            shown.add((try? result.get().title) ?? "failed")
            isShown.open()
        }

        let screens = try Cache<ViewKey, Screen>(at: directory, maxAge: .seconds(300), maxEntries: 150)
        let viewClient = ViewClient(
            cache: screens, networkClient: AppNetwork(), urlBuilder: UrlBuilder(baseUrl: server))

        viewClient.prefetch(url: "/home")
        let home = try await viewClient.fetch(url: "/home")
        viewClient.fetch(url: "/home") { result in
            Task { @MainActor in show(result) }
        }
        try await isShown.wait()
        #expect(home.title == "GET /home")
        #expect(shown.all == ["GET /home"])

        let byBody = ViewClient(
            cache: screens, networkClient: AppNetwork(), urlBuilder: UrlBuilder(baseUrl: server)
        ) { url, data in
            ViewKey(url: url, additionalData: data.map { HttpAdditionalData(method: $0.method, body: $0.body) })
        }
        for id in ["1", "2"] {
            let post = HttpAdditionalData(method: .post, headers: ["X-Id": id], body: Data("body".utf8))
            #expect(try await byBody.fetch(url: "/form", additionalData: post).title == "POST /form 1")
        }
        // The stub's headers, and its response to other paths.
        #expect(try screens.entry(for: ViewKey(url: "/home"))?.etag == "v1")
        let error = try await #require(throws: ViewRequest.Error.self) { try await viewClient.fetch(url: "/missing") }
        guard case .networkError(let failure) = error else {
            Issue.record(error)
            return
        }
        #expect(failure.response?.statusCode == 404)
    }
}

struct AppNetwork: NetworkClientProtocol {
    func executeRequest(
        _ request: ViewRequest, completion: @escaping @Sendable (Result<NetworkResponse, NetworkError>) -> Void
    ) -> (any RequestToken)? {
        var http = URLRequest(url: request.url)
        http.httpMethod = request.additionalData?.method.rawValue ?? "GET"
        http.allHTTPHeaderFields = request.additionalData?.headers
        http.httpBody = request.additionalData?.body
        let task = URLSession.shared.dataTask(with: http) { data, response, error in
            if let data, let response = response as? HTTPURLResponse {
                let headers = response.allHeaderFields as? [String: String] ?? [:]
                completion(.success(NetworkResponse(data: data, statusCode: response.statusCode, headers: headers)))
            } else {
                completion(.failure(NetworkError(error: error ?? URLError(.badServerResponse), request: request)))
            }
        }
        task.resume()
        return AppRequest(task: task)
    }
}

struct AppRequest: RequestToken {
    let task: URLSessionDataTask
    func cancel() { task.cancel() }
}

/// A stub of the network: returns a screen that describes the request, or 404 for "/missing".
private final class StubServer: URLProtocol {
    static let host = "stub.invalid"

    override class func canInit(with request: URLRequest) -> Bool { request.url?.host == host }
    override class func canonicalRequest(for request: URLRequest) -> URLRequest { request }
    override func stopLoading() {}

    override func startLoading() {
        guard let url = request.url, let method = request.httpMethod,
            let response = HTTPURLResponse(
                url: url, statusCode: url.path == "/missing" ? 404 : 200, httpVersion: nil,
                headerFields: ["Beagle-Hash": "v1"])
        else { return }
        let title = [method, url.path, request.value(forHTTPHeaderField: "X-Id")].compactMap(\.self).joined(
            separator: " ")
        client?.urlProtocol(self, didReceive: response, cacheStoragePolicy: .notAllowed)
        client?.urlProtocol(self, didLoad: Data(#"{"title":"\#(title)"}"#.utf8))
        client?.urlProtocolDidFinishLoading(self)
    }
}
