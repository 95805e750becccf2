import FlyingFox
import Foundation
import Synchronization

/// Publishes changelogs with ETags and ages, slowly; every tenth request for an article fails.
final class NewsServer: HTTPHandler {
    private struct Page {
        let body: Data
        let etag: String
    }
    private let list: Data
    private let pages: [String: Page]
    private let maxAge: Int
    private let requests = Atomic(0)

    /// - Parameter maxAge: The max-age of articles, in seconds.
    init(_ changelogs: [Changelog], edition: Edition, maxAge: Int) throws {
        list = try JSONEncoder().encode(changelogs.map(\.name))
        pages = Dictionary(
            uniqueKeysWithValues: changelogs.map { changelog in
                let text = changelog.text(in: edition)
                return ("/articles/\(changelog.name)", Page(body: Data(text.utf8), etag: "\"\(fnv1a(text))\""))
            })
        self.maxAge = maxAge
    }

    func handleRequest(_ request: HTTPRequest) async throws -> HTTPResponse {
        try await Task.sleep(for: .milliseconds(.random(in: 2...20)))
        if request.path == "/articles" {
            return HTTPResponse(statusCode: .ok, headers: [.contentType: "application/json"], body: list)
        }
        guard let page = pages[request.path] else { return HTTPResponse(statusCode: .notFound) }
        if requests.add(1, ordering: .relaxed).newValue.isMultiple(of: 10) {
            return HTTPResponse(statusCode: .serviceUnavailable)
        }
        let headers: HTTPHeaders = [
            .eTag: page.etag, .cacheControl: "max-age=\(maxAge)", .contentType: "text/plain; charset=utf-8",
        ]
        if request.headers[.ifNoneMatch] == page.etag {
            return HTTPResponse(statusCode: .notModified, headers: headers)
        }
        return HTTPResponse(statusCode: .ok, headers: headers, body: page.body)
    }
}

/// A hash that, unlike the standard library's, is the same in every process.
private func fnv1a(_ text: String) -> String {
    String(text.utf8.reduce(0xcbf2_9ce4_8422_2325 as UInt64) { ($0 ^ UInt64($1)) &* 0x100_0000_01b3 }, radix: 16)
}
