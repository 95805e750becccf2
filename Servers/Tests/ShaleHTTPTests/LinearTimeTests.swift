import AsyncHTTPClient
import NIOHTTP1
import Testing

@testable import ShaleHTTP

/// Fields made to be slow. What counts is the bytes that the parsers examine, so no clock decides.
@Suite("Parsing takes time linear in the size of a message, and reads each message once", .timeLimit(.minutes(30)))
struct LinearTimeTests {
    /// Repeated to the wanted size.
    private static let pieces = [
        "\"", "\\\"", "\"\\", "\"\\\"", "a=\"", "\"a\"", ",", " ", "=", ";", "a ", "max-age=1;", "private=\"a",
        "no-cache=\"a, b\"", "a\",", "1", "\u{212A}", "W/\"a\",", "\0",
    ]
    private static let names = [
        "Cache-Control", "Vary", "Age", "Connection", "Date", "Expires", "Last-Modified", "If-None-Match",
        "If-Modified-Since", "ETag",
    ]

    private static func headers(_ name: String, _ piece: String, size: Int, lines: Int) -> HTTPHeaders {
        let line =
            (name == "Cache-Control" ? "max-age=60, \"" : "\"")
            + String(repeating: piece, count: size / lines / piece.utf8.count)
        return HTTPHeaders(Array(repeating: (name, line), count: lines))
    }

    /// The steps of one request.
    private func steps(_ site: Site, _ request: HTTPHeaders) async throws -> Int {
        let counter = Steps.Counter()
        try await Steps.$counter.withValue(counter) { _ = try await site.get(request) }
        return counter.value
    }

    private func check(_ steps: (Int) async throws -> Int, _ what: String) async throws {
        let small = try await steps(2 << 10), large = try await steps(4 << 10)
        // With what the limits and the division into lines round.
        #expect(2 * large <= 5 * small + 800, "\(what)")
        // A byte is examined a few times: to find where it belongs, and as what it is.
        #expect(large <= 6 * (4 << 10) + 1000, "\(what)")
    }

    @Test("a hit, whatever the request's fields", arguments: names)
    func request(_ name: String) async throws {
        let site = try Site(Origin(["Cache-Control": "max-age=60", "ETag": "\"a\"", "Vary": name]))
        for piece in Self.pieces {
            for lines in [1, 16] {
                try await check(
                    { size in
                        let headers = Self.headers(name, piece, size: size, lines: lines)
                        _ = try await site.get(headers)
                        return try await steps(site, headers)
                    }, "\(name): \(piece) in \(lines)")
            }
        }
    }

    @Test("a miss, a hit and a validation, whatever the response's fields", arguments: names)
    func response(_ name: String) async throws {
        for piece in Self.pieces {
            for lines in [1, 16] {
                for then in ["miss", "hit", "validation"] {
                    try await check(
                        { size in
                            let headers = Self.headers(name, piece, size: size, lines: lines)
                            let site = try Site(
                                Origin(
                                    HTTPHeaders([("Cache-Control", "max-age=60"), ("ETag", "\"a\"")] + Array(headers))))
                            let miss = try await steps(site, [:])
                            if then == "miss" { return miss }
                            if then == "validation" {
                                site.clock.advance(seconds: 61)
                                site.origin.answer { _ in HTTPClientResponse(status: .notModified, headers: headers) }
                            }
                            // Two messages in a validation.
                            return try await steps(site, [:]) / (then == "hit" ? 1 : 2)
                        }, "\(then) with \(name): \(piece) in \(lines)")
                }
            }
        }
    }
}
