import AsyncHTTPClient
import Foundation
import NIOCore
import NIOHTTP1
import ShaleCore
import ShaleHTTP
import Testing

@Suite("HTTPCache", .timeLimit(.minutes(30)))
struct CacheTests {
    // MARK: Storing and answering

    @Test("a fresh response comes from the store, with its age and its own Date; a stale one does not")
    func fresh() async throws {
        let site = try Site(Origin(["Cache-Control": "max-age=60", "A": "1", "Date": HTTPDates.start]))
        #expect(try await site.get() == "1")
        site.clock.advance(seconds: 59)
        let stored = try await site.response()
        #expect(String(buffer: try await stored.body.collect(upTo: 99)) == "1")
        #expect(stored.status == .ok && stored.headers["A"] == ["1"] && stored.headers["Age"] == ["59"])
        #expect(stored.headers["Date"] == [HTTPDates.start] && stored.headers["Content-Length"] == ["1"])
        #expect(try await site.get(url: "HTTPS://EXAMPLE.org:443/news#top") == "1")
        #expect(site.origin.count == 1)
        #expect(try await site.get(url: Site.url + "?") == "2")
        site.clock.advance(seconds: 1)
        #expect(try await site.get() == "3")
    }

    @Test("a shared cache does not store private responses; a private cache does")
    func kinds() async throws {
        for (kind, second) in [(HTTPCachePolicy.Kind.shared, "2"), (.private, "1")] {
            let site = try Site(Origin(["Cache-Control": "private, max-age=60"]), .init(kind))
            _ = try await site.get()
            #expect(try await site.get() == second)
        }
    }

    @Test("a request with no-store neither reads nor writes the store")
    func noStore() async throws {
        let site = try Site(Origin(["Cache-Control": "max-age=60"]))
        #expect(try await site.get(["Cache-Control": "no-store"]) == "1")
        #expect(try await site.get() == "2")
        #expect(try await site.get(["Cache-Control": "no-store"]) == "3")
        #expect(try await site.get() == "2")
    }

    @Test("only-if-cached sends no request")
    func onlyIfCached() async throws {
        let site = try Site(Origin(["Cache-Control": "max-age=60"])),
            only: HTTPHeaders = ["Cache-Control": "only-if-cached"]
        #expect(try await site.response(only).status == .gatewayTimeout)
        #expect(try await site.response(["Cache-Control": "only-if-cached, no-store"]).status == .gatewayTimeout)
        #expect(site.origin.count == 0)
        _ = try await site.get()
        #expect(try await site.get(only) == "1")
        site.clock.advance(seconds: 60)
        #expect(try await site.response(only).status == .gatewayTimeout)
        #expect(site.origin.count == 1)
    }

    @Test("ranges and conditions that only the origin can evaluate are passed through, and their responses not stored")
    func passing() async throws {
        let site = try Site(Origin(["Cache-Control": "max-age=60"]))
        _ = try await site.get()
        for name in ["Range", "If-Range", "If-Match", "If-Unmodified-Since"] {
            #expect(try await site.get([name: "bytes=0-1"]) == "\(site.origin.count)")
            #expect(site.origin.requests.last?.headers[name] == ["bytes=0-1"])
        }
        #expect(try await site.get() == "1")
        site.origin.answerWith(status: .partialContent, ["Cache-Control": "max-age=60"])
        _ = try await site.get(url: Site.url + "/part")
        #expect(try await site.get(url: Site.url + "/part") == "\(site.origin.count)")
    }

    @Test("Vary: each selection has its own response; * matches none")
    func vary() async throws {
        let site = try Site(Origin(["Cache-Control": "max-age=60", "Vary": "Accept-Language"]))
        #expect(try await site.get(["Accept-Language": "en"]) == "1")
        #expect(try await site.get(["Accept-Language": "de"]) == "2")
        #expect(try await site.get() == "3")
        #expect(try await site.get(["accept-language": "en", "Cookie": "x"]) == "1")
        #expect(try await site.get(["Accept-Language": "de"]) == "2")
        #expect(try await site.get() == "3")
        site.origin.answerWith(["Cache-Control": "max-age=60", "Vary": "*"])
        #expect(try await site.get(url: Site.url + "/all") == "4")
        #expect(try await site.get(url: Site.url + "/all") == "5")
    }

    @Test("responses of a URL with different Vary do not displace each other; of those that match, the latest is used")
    func varyChanges() async throws {
        let site = try Site(Origin(["Cache-Control": "max-age=60", "Vary": "A"]))
        #expect(try await site.get(["A": "1"]) == "1")
        site.origin.answerWith(["Cache-Control": "max-age=60", "Vary": "B"])
        site.clock.advance(seconds: 1)
        #expect(try await site.get(["A": "2", "B": "1"]) == "2")
        #expect(try await site.get(["A": "1", "B": "2"]) == "1")
        #expect(try await site.get(["A": "2", "B": "1"]) == "2")
        #expect(try await site.get(["A": "1", "B": "1"]) == "2")
        #expect(site.origin.count == 2)
        // Beyond four sets, the oldest is forgotten.
        for name in ["C", "D", "E"] {
            site.origin.answerWith(["Cache-Control": "max-age=60", "Vary": name])
            _ = try await site.get(HTTPHeaders(["A", "B", "C", "D", "E"].map { ($0, name) }))
        }
        let before = site.origin.count
        #expect(try await site.get(["A": "2", "B": "1", "C": "2", "D": "2", "E": "2"]) == "2")
        #expect(try await site.get(["A": "1", "B": "2", "C": "2", "D": "2", "E": "2"]) != "1")
        #expect(site.origin.count == before + 1)
    }

    @Test("the response to a request with Authorization is not shared")
    func authorization() async throws {
        let site = try Site(Origin(["Cache-Control": "max-age=60"])), authorized: HTTPHeaders = ["Authorization": "x"]
        #expect(try await site.get(authorized) == "1")
        #expect(try await site.get(authorized) == "2")
        #expect(try await site.get() == "3")
        #expect(try await site.get(authorized) == "3")
    }

    @Test("a redirected response is not stored under the original URL")
    func redirected() async throws {
        let site = try Site(Origin([:]))
        site.origin.answer { request in
            var response = text("there", ["Cache-Control": "max-age=60"])
            let step = HTTPClientRequestResponse(
                request: request, responseHead: .init(version: .http1_1, status: .found))
            response.history = [step, step]
            return response
        }
        _ = try await site.get()
        _ = try await site.get()
        #expect(site.origin.count == 2)
    }

    @Test("HEAD is answered from a stored GET response; its own response updates or removes that")
    func head() async throws {
        let site = try Site(Origin(["Cache-Control": "max-age=60", "ETag": "\"a\""]))
        _ = try await site.get()
        let stored = try await site.response([:], .HEAD)
        #expect(stored.headers["Content-Length"] == ["1"] && site.origin.count == 1)
        #expect(try await stored.body.collect(upTo: 99).readableBytes == 0)
        site.clock.advance(seconds: 60)
        site.origin.answer { _ in
            HTTPClientResponse(headers: ["Cache-Control": "max-age=60", "ETag": "\"a\"", "Content-Length": "1"])
        }
        _ = try await site.response([:], .HEAD)
        #expect(try await site.get() == "1")
        #expect(site.origin.count == 2)
        site.clock.advance(seconds: 60)
        site.origin.answer { _ in HTTPClientResponse(headers: ["ETag": "\"b\"", "Content-Length": "1"]) }
        _ = try await site.response([:], .HEAD)
        site.origin.answerWith([:])
        #expect(try await site.get() == "4")
        #expect(!site.origin.requests[3].headers.contains(name: "If-None-Match"))
    }

    @Test("requests with different Host fields do not share a response, nor is it invalidated for all of them")
    func host() async throws {
        let site = try Site(Origin(["Cache-Control": "max-age=60"]))
        #expect(try await site.get(["Host": "a.example"]) == "1")
        #expect(try await site.get(["Host": "b.example"]) == "2")
        #expect(try await site.get() == "3")
        #expect(try await site.get(["Host": "A.example"]) == "1")
        #expect(try await site.get(["Host": "b.example"]) == "2")
        for same in ["example.org", "EXAMPLE.org:443"] { #expect(try await site.get(["Host": same]) == "3") }
        _ = try await site.response(["Host": "a.example"], .POST)
        #expect(try await site.get(["Host": "a.example"]) == "5")
        #expect(try await site.get(["Host": "b.example"]) == "2")
        #expect(try await site.get(["Host": "example.org#"]) == "6")
        #expect(try await site.get() == "3")
    }

    @Test("a request with a TLS configuration of its own, which may not verify the server, is passed through")
    func ownTLS() async throws {
        let site = try Site(Origin(["Cache-Control": "max-age=60"]))
        var request = HTTPClientRequest(url: Site.url)
        request.tlsConfiguration = .makeClientConfiguration()
        for number in 1...2 {
            let response = try await site.cache.execute(request, timeout: .minutes(1))
            #expect(String(buffer: try await response.body.collect(upTo: 99)) == "\(number)")
        }
        #expect(try await site.get() == "3")
    }

    // MARK: Validation

    @Test("a stale response is validated with ETag and Last-Modified; a 304 updates it")
    func validation() async throws {
        let validators: HTTPHeaders = ["ETag": "\"a\"", "Last-Modified": HTTPDates.start]
        let site = try Site(Origin(HTTPHeaders(Array(validators) + [("Cache-Control", "max-age=60"), ("A", "1")])))
        _ = try await site.get()
        site.clock.advance(seconds: 60)
        site.origin.answer { _ in
            HTTPClientResponse(
                status: .notModified, headers: ["ETag": "\"a\"", "Cache-Control": "max-age=10", "A": "2"])
        }
        let renewed = try await site.response()
        #expect(renewed.status == .ok && renewed.headers["A"] == ["2"] && renewed.headers["Age"] == ["0"])
        #expect(String(buffer: try await renewed.body.collect(upTo: 99)) == "1")
        #expect(site.origin.requests[1].headers["If-None-Match"] == ["\"a\""])
        #expect(site.origin.requests[1].headers["If-Modified-Since"] == [HTTPDates.start])
        site.clock.advance(seconds: 9)
        #expect(try await site.response().headers["A"] == ["2"])
        #expect(site.origin.count == 2)
        site.clock.advance(seconds: 1)
        site.origin.answerWith(["Cache-Control": "max-age=60"])
        #expect(try await site.get() == "3")
    }

    /// A client's conditions: 304 from the store, and after a validation with the cache's own; forwarded if nothing is
    /// stored.
    @Test("conditional requests")
    func conditions() async throws {
        let site = try Site(Origin(["Cache-Control": "max-age=60", "ETag": "\"a\"", "Content-Type": "text/plain"]))
        let known: HTTPHeaders = ["If-None-Match": "\"z\", \"a\""]
        site.origin.answer { _ in HTTPClientResponse(status: .notModified, headers: ["ETag": "\"a\""]) }
        #expect(try await site.response(known).status == .notModified)
        #expect(site.origin.requests[0].headers["If-None-Match"] == ["\"z\", \"a\""])
        site.origin.answerWith(["Cache-Control": "max-age=60", "ETag": "\"a\"", "Content-Type": "text/plain"])
        #expect(try await site.get() == "2")
        let unmodified = try await site.response(known)
        #expect(unmodified.status == .notModified && unmodified.headers["ETag"] == ["\"a\""])
        #expect(
            !unmodified.headers.contains(name: "Content-Type") && !unmodified.headers.contains(name: "Content-Length"))
        #expect(try await unmodified.body.collect(upTo: 99).readableBytes == 0)
        #expect(try await site.get(["If-None-Match": "\"z\""]) == "2")
        site.clock.advance(seconds: 60)
        site.origin.answer { _ in HTTPClientResponse(status: .notModified) }
        #expect(try await site.response(["If-None-Match": "\"z\""]).status == .ok)
        #expect(site.origin.requests[2].headers["If-None-Match"] == ["\"a\""])
        #expect(try await site.response(known).status == .notModified)
        #expect(site.origin.count == 3)
    }

    @Test("after a 304 for another response, the request is sent again without conditions")
    func otherTag() async throws {
        let site = try Site(Origin(["Cache-Control": "max-age=60", "ETag": "\"a\""]))
        _ = try await site.get()
        site.clock.advance(seconds: 60)
        site.origin.answer { request in
            request.headers.contains(name: "If-None-Match")
                ? HTTPClientResponse(status: .notModified, headers: ["ETag": "\"b\""])
                : text("new", ["Cache-Control": "max-age=60", "ETag": "\"b\""])
        }
        #expect(try await site.get() == "new")
        #expect(try await site.get() == "new")
        #expect(site.origin.count == 3)
    }

    @Test("a stored response is removed by a 304 with no-store and by a response that must not be stored")
    func noLongerStored() async throws {
        for isValidated in [true, false] {
            let site = try Site(Origin(["Cache-Control": "max-age=60", "ETag": "\"a\""]))
            _ = try await site.get()
            site.clock.advance(seconds: 60)
            site.origin.answer { _ in
                HTTPClientResponse(status: isValidated ? .notModified : .ok, headers: ["Cache-Control": "no-store"])
            }
            _ = try await site.response()
            site.origin.fail()
            #expect(try await site.response(["Cache-Control": "only-if-cached, max-stale"]).status == .gatewayTimeout)
        }
    }

    // MARK: Invalidation

    @Test("an unsafe request that succeeds removes all variants of its URL, of Location and of Content-Location")
    func invalidation() async throws {
        let site = try Site(Origin(["Cache-Control": "max-age=60", "Vary": "A"]))
        let others = ["https://example.org/a", "https://example.org/b", "https://other.org/c"]
        for url in [Site.url] + others { _ = try await site.get(url: url) }
        _ = try await site.get(["A": "1"])
        site.origin.answer { _ in text("", status: .internalServerError) }
        _ = try await site.response([:], .POST)
        #expect(try await site.get() == "1")
        site.origin.answer { _ in
            text("", ["Location": "/a", "Content-Location": others[1], "Content-Location": others[2]])
        }
        _ = try await site.response([:], .POST)
        site.origin.answerWith(["Cache-Control": "max-age=60", "Vary": "A"])
        #expect(try await site.get() == "8")
        #expect(try await site.get(["A": "1"]) == "9")
        #expect(try await site.get(url: others[0]) == "10")
        #expect(try await site.get(url: others[1]) == "11")
        #expect(try await site.get(url: others[2]) == "4")
    }

    @Test("a response in flight while its URL is invalidated is not stored", arguments: [true, false])
    func invalidatedMeanwhile(_ isKnown: Bool) async throws {
        let site = try Site(Origin(["Cache-Control": "max-age=60", "Vary": "A"]))
        if isKnown { _ = try await site.get(["A": "other"]) }
        let gate = Gate()
        site.origin.answer { request in
            if request.method == .POST { return text("") }
            try await gate.pass()
            return text("old", ["Cache-Control": "max-age=60", "Vary": "A"])
        }
        let before = site.origin.count
        async let old = site.get()
        try await site.until { site.origin.count > before }
        _ = try await site.response([:], .POST)
        gate.open()
        #expect(try await old == "old")
        site.origin.answer { _ in text("new", ["Cache-Control": "max-age=60"]) }
        #expect(try await site.get() == "new")
    }

    @Test("invalidate(_:) removes the responses of a URL")
    func byHand() async throws {
        let site = try Site(Origin(["Cache-Control": "max-age=60"]))
        _ = try await site.get()
        site.cache.invalidate("https://EXAMPLE.org/news")
        #expect(try await site.get() == "2")
    }

    // MARK: Stale

    @Test("stale-while-revalidate answers at once, and validates once for all requests in the meantime")
    func staleWhileRevalidate() async throws {
        let site = try Site(Origin(["Cache-Control": "max-age=60, stale-while-revalidate=60", "ETag": "\"a\""]))
        _ = try await site.get()
        site.clock.advance(seconds: 61)
        let gate = Gate()
        site.origin.answer { _ in
            try await gate.pass()
            return text("new", ["Cache-Control": "max-age=60"])
        }
        for _ in 0..<5 { #expect(try await site.get(["If-None-Match": "\"z\""]) == "1") }
        try await site.until { site.origin.count == 2 }
        gate.open()
        try await site.until { try await site.get() == "new" }
        #expect(site.origin.count == 2)
        #expect(site.origin.requests[1].headers["If-None-Match"] == ["\"a\""])
        site.clock.advance(seconds: 121)
        #expect(try await site.get() == "new")
        #expect(site.origin.count == 3)
    }

    @Test("a failed validation in the background leaves the stored response")
    func failedInBackground() async throws {
        let site = try Site(Origin(["Cache-Control": "max-age=60, stale-while-revalidate=60"]))
        _ = try await site.get()
        site.clock.advance(seconds: 61)
        site.origin.fail()
        #expect(try await site.get() == "1")
        try await site.until { site.origin.count == 2 }
        // The next validation follows after a pause.
        for _ in 0..<20 { #expect(try await site.get() == "1") }
        #expect(site.origin.count == 2)
        site.clock.advance(seconds: 1)
        try await site.until {
            _ = try await site.get()
            return site.origin.count == 3
        }
        #expect(try await site.get() == "1")
    }

    @Test("stale-if-error covers errors of the server; a request with max-age gets the error itself")
    func staleIfError() async throws {
        let site = try Site(Origin(["Cache-Control": "max-age=60, stale-if-error=60"]))
        _ = try await site.get()
        site.clock.advance(seconds: 90)
        for status in [HTTPResponseStatus.internalServerError, .badGateway, .serviceUnavailable, .gatewayTimeout] {
            site.origin.answerWith(status: status, [:])
            #expect(try await site.get() == "1")
        }
        site.origin.answerWith(status: .notImplemented, [:])
        #expect(try await site.response(["Cache-Control": "max-age=9"]).status == .notImplemented)
    }

    @Test(
        "while the server cannot be reached, a stale response is served for staleIfUnreachable unless it forbids that")
    func unreachable() async throws {
        var policy = HTTPCachePolicy()
        policy.staleIfUnreachable = .seconds(60)
        for (directive, serves) in [("max-age=60", true), ("max-age=60, must-revalidate", false)] {
            let site = try Site(Origin(["Cache-Control": directive]), policy)
            _ = try await site.get()
            site.origin.fail()
            site.clock.advance(seconds: 120)
            if serves {
                #expect(try await site.get() == "1")
            } else {
                await #expect(throws: Unreachable.self) { try await site.get() }
            }
            site.clock.advance(seconds: 1)
            await #expect(throws: Unreachable.self) { try await site.get() }
        }
        let strict = try Site(Origin(["Cache-Control": "max-age=60"]))
        _ = try await strict.get()
        strict.clock.advance(seconds: 60)
        strict.origin.fail()
        await #expect(throws: Unreachable.self) { try await strict.get() }
    }

    @Test("HEAD is answered from a stale response as GET is, and the failing server is asked after pauses")
    func staleHead() async throws {
        for isUnreachable in [true, false] {
            let site = try Site(Origin(["Cache-Control": "max-age=60, stale-if-error=600"]))
            _ = try await site.get()
            site.clock.advance(seconds: 61)
            if isUnreachable { site.origin.fail() } else { site.origin.answerWith(status: .serviceUnavailable, [:]) }
            for _ in 0..<5 { #expect(try await site.response([:], .HEAD).status == .ok) }
            #expect(site.origin.count == 2)
        }
    }

    @Test("a Date in the future does not let a stale response hide later ones")
    func future() async throws {
        let site = try Site(
            Origin(["Cache-Control": "max-age=60", "Vary": "A", "Date": "Fri, 31 Dec 9999 23:59:59 GMT"]))
        #expect(try await site.get() == "1")
        site.clock.advance(seconds: 61)
        site.origin.answerWith(["Cache-Control": "max-age=60", "Vary": "B"])
        #expect(try await site.get() == "2")
        #expect(try await site.get() == "2")
    }

    // MARK: The store

    @Test("responses survive a restart and are visible to another cache of the same directory")
    func restart() async throws {
        let directory = FileManager.default.temporaryDirectory.appendingPathComponent("shale-\(UUID().uuidString)")
        defer { try? FileManager.default.removeItem(at: directory) }
        let origin = Origin(["Cache-Control": "max-age=60", "Vary": "A"])
        do {
            let one = try Site(origin, directory: directory), other = try Site(origin, directory: directory)
            #expect(try await one.get(["A": "1"]) == "1")
            #expect(try await other.get(["A": "1"]) == "1")
        }
        #expect(try await Site(origin, directory: directory).get(["A": "1"]) == "1")
        var options = HTTPCache.Options()
        options.prefix = "other/"
        #expect(try await Site(origin, options: options, directory: directory).get(["A": "1"]) == "2")
    }

    @Test("a store that fails, or contains invalid bytes, counts as empty")
    func failingStore() async throws {
        let site = try Site(Origin(["Cache-Control": "max-age=60"]))
        _ = try await site.get()
        var keys: [[UInt8]] = []
        try site.store.forEach { key, _, _ in
            keys.append(Array(key))
            return true
        }
        #expect(keys.count == 2)
        for key in keys { try site.store.insert([UInt8](repeating: 9, count: 3), for: key) }
        #expect(try await site.get() == "2")
        #expect(try await site.get() == "2")
        try site.store.close()
        #expect(try await site.get() == "3")
        #expect(try await site.response([:], .POST).status == .ok)
    }
}

enum HTTPDates {
    /// `TestClock.start`
    static let start = "Sun, 06 Nov 1994 08:49:37 GMT"
}
