import AsyncHTTPClient
import Foundation
import Shale

/// The client of a news server.
struct NewsClient: Sendable {
    private let server: String
    private let http: HTTPClient

    init(server: String) {
        self.server = server
        var configuration = HTTPClient.Configuration()
        // Fails at once if the server is not running.
        configuration.connectionPool.retryConnectionEstablishment = false
        http = HTTPClient(eventLoopGroupProvider: .singleton, configuration: configuration)
    }

    func shutdown() async throws { try await http.shutdown() }

    func articleNames() async throws -> [String] {
        let response = try await get("/articles", etag: nil)
        return try JSONDecoder().decode([String].self, from: Data(try await body(of: response).utf8))
    }

    /// Loads the article, or `.notModified` if the stored one is current.
    func article(_ name: String, unless stored: Cache<String, Article>.Entry?) async throws
        -> Cache<String, Article>.Loaded
    {
        let response = try await get("/articles/\(name)", etag: stored?.etag)
        let maxAge = response.headers.first(name: "Cache-Control").flatMap { $0.wholeMatch(of: /max-age=(\d+)/) }
            .flatMap { Int($0.1) }
        if response.status == .notModified { return .notModified(maxAge: maxAge.map { .seconds($0) }) }
        return .value(
            Article(text: try await body(of: response)), maxAge: maxAge.map { .seconds($0) },
            etag: response.headers.first(name: "ETag"))
    }

    private func get(_ path: String, etag: String?) async throws -> HTTPClientResponse {
        var request = HTTPClientRequest(url: server + path)
        if let etag { request.headers.add(name: "If-None-Match", value: etag) }
        let response = try await http.execute(request, timeout: .seconds(5))
        guard response.status == .ok || response.status == .notModified else {
            throw Failure(description: "\(path): \(response.status)")
        }
        return response
    }

    private func body(of response: HTTPClientResponse) async throws -> String {
        String(buffer: try await response.body.collect(upTo: 16 << 20))
    }
}
