import NIOHTTP1
import Testing

@testable import ShaleHTTP

/// Tables of inputs and results; nothing is sent or stored.
@Suite("The policy: storing, freshness, validation")
struct PolicyTests {
    private static let now: Int64 = 784_111_777_000
    private static let shared = HTTPCachePolicy(.shared), own = HTTPCachePolicy(.private)

    private static func date(_ seconds: Int64) -> String { HTTPDate.format(now + seconds * 1000) }

    private static func response(
        _ headers: HTTPHeaders, _ status: Int = 200, requestedAt: Int64 = now, receivedAt: Int64 = now
    ) -> StoredResponse {
        StoredResponse(
            status: HTTPResponseStatus(statusCode: status), headers: headers, requestedAt: requestedAt,
            receivedAt: receivedAt)
    }

    private static func list(_ member: String, _ count: Int) -> String {
        Array(repeating: member, count: count).joined(separator: ", ")
    }

    // MARK: Storing

    struct Storing: Sendable {
        let response: HTTPHeaders
        var status = 200
        var request: HTTPHeaders = [:]
        let shared: Bool
        let own: Bool
    }

    @Test(
        "responses that a shared and a private cache may store",
        arguments: [
            Storing(response: ["Cache-Control": "max-age=1"], shared: true, own: true),
            Storing(response: ["Expires": "0"], shared: true, own: true),
            Storing(response: ["Cache-Control": "public"], shared: true, own: true),
            Storing(response: ["Cache-Control": "s-maxage=1"], shared: true, own: false),
            Storing(response: ["ETag": "\"a\""], shared: true, own: true),
            Storing(response: ["Last-Modified": date(-1)], shared: true, own: true),
            Storing(response: ["Last-Modified": "yesterday"], shared: false, own: false),
            Storing(response: [:], shared: false, own: false),
            Storing(response: ["Cache-Control": "no-cache"], shared: false, own: false),
            Storing(response: ["Cache-Control": "no-cache", "ETag": "\"a\""], shared: true, own: true),
            Storing(response: ["Cache-Control": "max-age=1, no-store"], shared: false, own: false),
            Storing(response: ["Cache-Control": "max-age=1, No-StOrE"], shared: false, own: false),
            Storing(response: ["Cache-Control": "max-age=1", "cache-control": "no-store"], shared: false, own: false),
            Storing(response: ["Cache-Control": "x=\"a, no-store", "ETag": "\"a\""], shared: false, own: false),
            Storing(response: ["Cache-Control": "x=\"no-store\", max-age=1"], shared: true, own: true),
            Storing(response: ["Cache-Control": "private, max-age=1"], shared: false, own: true),
            Storing(response: ["Cache-Control": "private=\"a\", max-age=1"], shared: true, own: true),
            Storing(response: ["Cache-Control": "max-age=1", "Vary": "*"], shared: false, own: false),
            Storing(response: ["Cache-Control": "max-age=1", "Vary": ", a, *"], shared: false, own: false),
            Storing(
                response: ["Cache-Control": "max-age=1", "Connection": "vary", "Vary": "a"], shared: false, own: false),
            Storing(response: ["Cache-Control": "max-age=1, no-cache=\"expires\""], shared: false, own: false),
            // What cannot be parsed has its strictest meaning.
            Storing(response: ["Cache-Control": "private=\"x, max-age=60"], shared: false, own: true),
            Storing(response: ["Cache-Control": "max-age=60, private=;"], shared: false, own: true),
            Storing(response: ["Cache-Control": "private; max-age=60"], shared: false, own: true),
            Storing(response: ["Cache-Control": "private=\"a b\", max-age=60"], shared: false, own: true),
            Storing(response: ["Cache-Control": "private=\"a\", private, max-age=60"], shared: false, own: true),
            Storing(response: ["Cache-Control": "private =\"a\", max-age=60"], shared: false, own: true),
            Storing(response: ["Cache-Control": "max-age=60; no-store"], shared: false, own: false),
            Storing(response: ["Cache-Control": "no-store=\"x, max-age=60"], shared: false, own: false),
            Storing(
                response: ["Cache-Control": "max-age=1, no-store, must-understand;"], shared: false, own: false),
            Storing(
                response: ["Cache-Control": "max-age=1; public"], request: ["Authorization": "x"], shared: false,
                own: true),
            Storing(
                response: ["Cache-Control": "s-maxage=x"], request: ["Authorization": "x"], shared: false, own: false),
            Storing(
                response: ["Cache-Control": "max-age=1, s-maxage"], request: ["Authorization": "x"], shared: false,
                own: true),
            Storing(
                response: ["Cache-Control": "max-age=1, public=1, must-revalidate=\"1\""],
                request: ["Authorization": "x"], shared: false, own: true),
            Storing(
                response: ["Cache-Control": "max-age=1, no-store, must-understand=1"], shared: false, own: false),
            Storing(response: ["Cache-Control": "max-age=1, no-store=1"], shared: false, own: false),
            Storing(response: ["Cache-Control": "max-age=1", "Vary": "a b"], shared: false, own: false),
            Storing(response: ["Cache-Control": "max-age=1", "Vary": "\"a"], shared: false, own: false),
            // Beyond the limits.
            Storing(response: ["Cache-Control": list("max-age=1", 64)], shared: true, own: true),
            Storing(response: ["Cache-Control": list("max-age=1", 65)], shared: false, own: false),
            Storing(
                response: ["Cache-Control": "private=\"\(list("a", 64))\", max-age=1"], shared: false, own: true),
            Storing(response: ["Cache-Control": "max-age=1", "Vary": list("a", 16)], shared: true, own: true),
            Storing(response: ["Cache-Control": "max-age=1", "Vary": list("a", 17)], shared: false, own: false),
            Storing(
                response: HTTPHeaders([("Cache-Control", "max-age=1")] + (1..<256).map { ("a\($0)", "") }),
                shared: true, own: true),
            Storing(
                response: HTTPHeaders([("Cache-Control", "max-age=1")] + (1...256).map { ("a\($0)", "") }),
                shared: false, own: false),
            Storing(
                response: ["Cache-Control": "max-age=1", "a": String(repeating: "a", count: 32 << 10)], shared: false,
                own: false),
            // Set-Cookie.
            Storing(response: ["Cache-Control": "max-age=1", "Set-Cookie": "a=1"], shared: false, own: true),
            Storing(response: ["Cache-Control": "public, max-age=1", "Set-Cookie": "a"], shared: false, own: true),
            Storing(
                response: ["Cache-Control": "max-age=1, no-cache=\"set-cookie\"", "Set-Cookie": "a=1"], shared: true,
                own: true),
            // Status codes.
            Storing(response: ["Cache-Control": "max-age=1"], status: 206, shared: false, own: false),
            Storing(response: ["Cache-Control": "max-age=1"], status: 304, shared: false, own: false),
            Storing(response: ["Cache-Control": "max-age=1"], status: 103, shared: false, own: false),
            Storing(response: ["Cache-Control": "max-age=1"], status: 302, shared: true, own: true),
            Storing(response: ["Cache-Control": "max-age=1"], status: 599, shared: true, own: true),
            Storing(response: ["ETag": "\"a\""], status: 404, shared: true, own: true),
            Storing(response: ["ETag": "\"a\""], status: 302, shared: false, own: false),
            Storing(response: ["ETag": "\"a\""], status: 503, shared: false, own: false),
            Storing(
                response: ["Cache-Control": "max-age=1, no-store, must-understand"], status: 200, shared: true,
                own: true),
            Storing(
                response: ["Cache-Control": "max-age=1, no-store, must-understand"], status: 599, shared: false,
                own: false
            ),
            Storing(response: ["Cache-Control": "max-age=1, must-understand"], status: 599, shared: false, own: false),
            // Authorization.
            Storing(
                response: ["Cache-Control": "max-age=1"], request: ["Authorization": "x"], shared: false, own: true),
            Storing(
                response: ["Cache-Control": "max-age=1, public"], request: ["Authorization": "x"], shared: true,
                own: true),
            Storing(
                response: ["Cache-Control": "s-maxage=1"], request: ["Authorization": "x"], shared: true, own: false),
            Storing(
                response: ["Cache-Control": "max-age=1, must-revalidate"], request: ["Authorization": "x"],
                shared: true,
                own: true),
            Storing(
                response: ["Cache-Control": "max-age=1, private=\"a\""], request: ["Authorization": "x"], shared: false,
                own: true),
        ])
    func storing(_ one: Storing) {
        let response = Self.response(one.response, one.status)
        #expect(Self.shared.mayStore(response, to: RequestHead(one.request)) == one.shared)
        #expect(Self.own.mayStore(response, to: RequestHead(one.request)) == one.own)
    }

    @Test("with storesSetCookie, a shared cache stores responses with Set-Cookie")
    func cookies() {
        var policy = Self.shared
        policy.storesSetCookie = true
        let response = Self.response(["Cache-Control": "max-age=1", "Set-Cookie": "a=1"])
        #expect(policy.mayStore(response, to: RequestHead([:])))
    }

    @Test("fields of the connection, and those named by Connection or by directives, are not stored; a Date is added")
    func fields() {
        let headers: HTTPHeaders = [
            "A": "1", "B": "2", "C": "3", "D": "4", "Connection": "a, Keep-Alive", "Keep-Alive": "x", "TE": "x",
            "Upgrade": "x", "Transfer-Encoding": "chunked", "Proxy-Authenticate": "x", "Set-Cookie": "s=1",
            "Cache-Control": "no-cache=\"b\", private=\"C\"",
        ]
        func stored(_ policy: HTTPCachePolicy, _ headers: HTTPHeaders) -> HTTPHeaders {
            policy.storedFields(headers, CacheControl(headers), receivedAt: Self.now)
        }
        let shared = stored(Self.shared, headers)
        #expect(shared.map(\.name) == ["D", "Set-Cookie", "Cache-Control", "Date"])
        #expect(shared.first(name: "Date") == Self.date(0))
        #expect(stored(Self.own, headers).contains(name: "C"))
        #expect(stored(Self.own, ["Date": "x"])["date"] == ["x"])
    }

    @Test("requests that the cache handles")
    func requests() {
        for method in [HTTPMethod.GET, .HEAD] { #expect(Self.shared.concerns(method, RequestHead([:]))) }
        for method in [HTTPMethod.POST, .PUT, .OPTIONS, .DELETE] {
            #expect(!Self.shared.concerns(method, RequestHead([:])))
        }
        for name in ["Range", "If-Range", "If-Match", "If-Unmodified-Since"] {
            #expect(!Self.shared.concerns(.GET, RequestHead([name: "x"])))
        }
        #expect(!Self.shared.concerns(.GET, RequestHead(["Cache-Control": "no-store"])))
        let headers: HTTPHeaders = ["If-None-Match": "x", "If-Modified-Since": "x", "Authorization": "x"]
        #expect(Self.shared.concerns(.GET, RequestHead(headers)))
        let many = HTTPHeaders((1...257).map { ("a\($0)", "") })
        #expect(!Self.shared.concerns(.GET, RequestHead(many)))
        #expect(!Self.shared.concerns(.GET, RequestHead(["a": String(repeating: "a", count: 32 << 10)])))
        #expect(!Self.shared.concerns(.GET, RequestHead(["Cache-Control": Self.list("a", 65)])))
    }

    @Test("a response without error to a method not known as safe invalidates its URL")
    func invalidation() {
        for method in [HTTPMethod.POST, .PUT, .DELETE, .PATCH, .RAW(value: "M-SEARCH")] {
            for (code, invalidates) in [
                (200, true), (204, true), (302, true), (404, false), (500, false), (100, false),
            ] {
                #expect(Self.shared.invalidates(method, HTTPResponseStatus(statusCode: code)) == invalidates)
            }
        }
        for method in [HTTPMethod.GET, .HEAD, .OPTIONS, .TRACE, .PROPFIND, .RAW(value: "QUERY")] {
            #expect(!Self.shared.invalidates(method, .ok))
        }
    }

    // MARK: Freshness

    @Test(
        "freshness lifetimes in seconds, in a shared and in a private cache",
        arguments: [
            (["Cache-Control": "max-age=60"], 60, 60), (["Cache-Control": "s-maxage=9, max-age=60"], 9, 60),
            (["Cache-Control": "s-maxage=60, max-age=9"], 60, 9),
            (["Cache-Control": "max-age=60", "Expires": date(5)], 60, 60), (["Expires": date(60)], 60, 60),
            (["Cache-Control": "max-age=0", "Expires": date(5)], 0, 0), (["Expires": date(-60)], 0, 0),
            (["Expires": "0"], 0, 0), (["Expires": date(60), "Date": date(20)], 40, 40),
            (["Expires": date(60), "Date": "x"], 60, 60), (["Cache-Control": "max-age=x", "Expires": date(60)], 0, 0),
            (["Last-Modified": date(-1000)], 100, 100), (["Last-Modified": date(-10_000_000)], 86_400, 86_400),
            (["Last-Modified": date(10)], 0, 0), (["ETag": "\"a\""], 0, 0),
        ] as [(HTTPHeaders, Int64, Int64)])
    func freshness(_ headers: HTTPHeaders, _ shared: Int64, _ own: Int64) {
        #expect(Self.shared.freshness(of: Self.response(headers)) == shared * 1000)
        #expect(Self.own.freshness(of: Self.response(headers)) == own * 1000)
    }

    @Test("heuristic freshness depends on the status and the policy; invalid fractions give none")
    func heuristics() {
        func freshness(
            _ status: Int, _ headers: HTTPHeaders = [:], _ fraction: Double = 0.1, _ longest: Duration = .seconds(99)
        ) -> Int64 {
            var policy = HTTPCachePolicy(.private), headers = headers
            policy.heuristicFraction = fraction
            policy.longestHeuristic = longest
            headers.add(name: "Last-Modified", value: Self.date(-100))
            return policy.freshness(of: Self.response(headers, status)) / 1000
        }
        for status in [200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501] { #expect(freshness(status) == 10) }
        for status in [201, 202, 302, 307, 403, 500, 502, 503, 504, 599] { #expect(freshness(status) == 0) }
        #expect(freshness(599, ["Cache-Control": "public"]) == 10)
        for fraction in [0, -1, .nan] { #expect(freshness(200, [:], fraction) == 0) }
        #expect(freshness(200, [:], .infinity) == 99)
        #expect(freshness(200, [:], 1, .seconds(-1)) == 0)
        #expect(freshness(200, [:], 1, .seconds(Int64.max)) == 100)
    }

    @Test(
        "ages in seconds, ten seconds after the response was received",
        arguments: [
            ([:], 0, 10), (["Age": "30"], 0, 40), (["Age": "30"], 5, 45), (["Date": date(-60)], 0, 70),
            (["Date": date(-60), "Age": "30"], 0, 70), (["Date": date(-60), "Age": "90"], 0, 100),
            (["Date": date(60)], 0, 10), (["Age": "30, 0"], 0, 40), (["Age": "0, 30"], 0, 10), (["Age": "x"], 0, 10),
            (["Age": "-30"], 0, 10), (["Age": "30.0"], 0, 10), (["Age": "30;a=b"], 0, 10),
            (["Age": "2147483649"], 0, (1 << 31) + 10),
        ] as [(HTTPHeaders, Int64, Int64)])
    func ages(_ headers: HTTPHeaders, _ delay: Int64, _ age: Int64) {
        let response = Self.response(headers, requestedAt: Self.now - delay * 1000)
        #expect(response.age(at: Self.now + 10_000) == age * 1000)
        // The clock was set back.
        #expect(response.age(at: Self.now - 10_000) == (age - 10) * 1000)
    }

    // MARK: Using

    struct Using: Sendable {
        let response: String
        var request = ""
        let age: Int64
        let result: HTTPCachePolicy.Evaluation
        /// The result of a private cache, if it differs.
        var own: HTTPCachePolicy.Evaluation?
    }

    @Test(
        "stored responses are used or validated",
        arguments: [
            Using(response: "max-age=10", age: 9, result: .use),
            Using(response: "max-age=10", age: 10, result: .validate),
            Using(response: "max-age=0", age: 0, result: .validate),
            Using(response: "max-age=10, no-cache", age: 0, result: .validate),
            Using(response: "max-age=10, no-cache=\"a\"", age: 0, result: .use),
            Using(response: "max-age=10, must-revalidate", age: 0, result: .use),
            Using(response: "no-cache=\"x, max-age=10", age: 0, result: .validate),
            Using(response: "no-cache=, max-age=10", age: 0, result: .validate),
            Using(response: "max-age=10; a", age: 0, result: .validate),
            Using(response: "a=\"b, max-age=10", age: 0, result: .validate),
            Using(response: "max-age=10, a=\"b", age: 9, result: .use),
            Using(response: "max-age=10, max-age=x", age: 0, result: .validate),
            // The request's directives.
            Using(response: "max-age=10", request: "no-cache", age: 0, result: .validate),
            Using(response: "max-age=10", request: "max-age=0", age: 0, result: .validate),
            Using(response: "max-age=10", request: "max-age=5", age: 5, result: .use),
            Using(response: "max-age=10", request: "max-age=5", age: 6, result: .validate),
            Using(response: "max-age=10", request: "max-age=x", age: 1, result: .validate),
            Using(response: "max-age=10", request: "min-fresh=5", age: 5, result: .use),
            Using(response: "max-age=10", request: "min-fresh=5", age: 6, result: .validate),
            Using(response: "max-age=10", request: "min-fresh=x", age: 0, result: .validate),
            Using(response: "max-age=10", request: "max-stale=x", age: 11, result: .validate),
            Using(response: "max-age=10", request: "max-stale=5", age: 15, result: .use),
            Using(response: "max-age=10", request: "max-stale=5", age: 16, result: .validate),
            Using(response: "max-age=10", request: "max-stale", age: 99_999, result: .use),
            Using(response: "max-age=10, must-revalidate", request: "max-stale", age: 11, result: .validate),
            Using(
                response: "max-age=10, proxy-revalidate", request: "max-stale", age: 11, result: .validate, own: .use),
            Using(
                response: "max-age=10, s-maxage=10", request: "max-stale", age: 11, result: .validate, own: .use),
            Using(response: "max-age=10", request: "max-age=20, max-stale", age: 15, result: .use),
            Using(response: "max-age=10", request: "max-age=12, max-stale", age: 15, result: .validate),
            // RFC 5861.
            Using(response: "max-age=10, stale-while-revalidate=5", age: 9, result: .use),
            Using(response: "max-age=10, stale-while-revalidate=5", age: 15, result: .useAndValidate),
            Using(response: "max-age=10, stale-while-revalidate=5", age: 16, result: .validate),
            Using(response: "max-age=10, stale-while-revalidate=x", age: 10, result: .validate),
            Using(response: "max-age=10, stale-while-revalidate=5", request: "max-age=20", age: 15, result: .validate),
            Using(response: "max-age=10, stale-while-revalidate=5, must-revalidate", age: 11, result: .validate),
            Using(
                response: "max-age=10, stale-while-revalidate=5, proxy-revalidate", age: 11, result: .validate,
                own: .useAndValidate),
        ])
    func using(_ one: Using) {
        let response = Self.response(["Cache-Control": one.response]),
            request = RequestHead(["Cache-Control": one.request])
        let now = Self.now + one.age * 1000
        #expect(Self.shared.evaluate(response, for: request, at: now) == one.result)
        #expect(Self.own.evaluate(response, for: request, at: now) == one.own ?? one.result)
    }

    struct Failing: Sendable {
        let response: String
        var request = ""
        let age: Int64
        /// Whether the response is served when the origin answers with an error, and when it cannot be reached.
        let error: Bool
        let unreachable: Bool
        var ownError: Bool?
    }

    @Test(
        "stale responses served when the origin fails; the policy permits 100 s when it cannot be reached",
        arguments: [
            Failing(response: "max-age=10, stale-if-error=5", age: 15, error: true, unreachable: true),
            Failing(response: "max-age=10, stale-if-error=5", age: 16, error: false, unreachable: false),
            Failing(response: "max-age=10", age: 110, error: false, unreachable: true),
            Failing(response: "max-age=10", age: 111, error: false, unreachable: false),
            Failing(response: "max-age=10", request: "stale-if-error=5", age: 15, error: true, unreachable: true),
            Failing(
                response: "max-age=10, stale-if-error=50", request: "stale-if-error=5", age: 16, error: false,
                unreachable: false),
            Failing(
                response: "max-age=10, stale-if-error=5, must-revalidate", age: 11, error: false, unreachable: false),
            Failing(response: "max-age=10, stale-if-error=x", age: 10, error: false, unreachable: false),
            Failing(response: "max-age=10, stale-if-error=5, no-cache", age: 11, error: false, unreachable: false),
            Failing(
                response: "max-age=10, stale-if-error=5, proxy-revalidate", age: 11, error: false, unreachable: false,
                ownError: true),
            Failing(
                response: "max-age=10, stale-if-error=5", request: "no-cache", age: 11, error: false, unreachable: false
            ),
            Failing(
                response: "max-age=10, stale-if-error=5", request: "max-age=9", age: 11, error: false,
                unreachable: false),
        ])
    func failing(_ one: Failing) {
        var policy = Self.shared
        policy.staleIfUnreachable = .seconds(100)
        let response = Self.response(["Cache-Control": one.response]),
            request = RequestHead(["Cache-Control": one.request])
        let now = Self.now + one.age * 1000
        #expect(policy.servesDespiteError(response, for: request, at: now, isUnreachable: false) == one.error)
        #expect(policy.servesDespiteError(response, for: request, at: now, isUnreachable: true) == one.unreachable)
        let own = Self.own.servesDespiteError(response, for: request, at: now, isUnreachable: false)
        #expect(own == one.ownError ?? one.error)
    }

    // MARK: Selecting and validating

    @Test("Vary: names in any case and order; lines and space in a request's fields are ignored; absent is not empty")
    func vary() throws {
        let vary = try #require(Vary(["Vary": "B, a", "vary": "A"]))
        #expect(vary.names == ["a", "b"])
        #expect(
            vary.selection(from: ["A": "1, 2", "b": "x"]) == vary.selection(from: ["B": " x ", "a": "1", "A": "2"]))
        #expect(vary.selection(from: ["A": "1"]) != vary.selection(from: ["A": "1", "B": ""]))
        #expect(vary.selection(from: ["A": "x"]) != vary.selection(from: ["A": "X"]))
        #expect(Vary([:])?.names == [])
    }

    @Test("a validating request carries the response's validators")
    func validators() {
        let modified = Self.date(-60)
        let both = Self.response(["ETag": "W/\"a\"", "Last-Modified": modified]).validators
        #expect(both["If-None-Match"] == ["W/\"a\""] && both["If-Modified-Since"] == [modified])
        #expect(Self.response(["Last-Modified": "x"]).validators.isEmpty)
    }

    @Test(
        "conditions that a stored response answers with 304",
        arguments: [
            (["If-None-Match": "\"a\""], true), (["If-None-Match": "W/\"a\""], true),
            (["If-None-Match": "\"b\""], false),
            (["If-None-Match": "\"b\", \"a\""], true), (["If-None-Match": "*"], true), (["If-None-Match": "a"], false),
            (["If-Modified-Since": date(-60)], true), (["If-Modified-Since": date(-61)], false),
            (["If-Modified-Since": "x"], false), ([:], false),
            (["If-None-Match": "\"b\"", "If-Modified-Since": date(0)], false),
            (["If-None-Match": "\"a\"", "If-Modified-Since": date(-90)], true),
        ] as [(HTTPHeaders, Bool)])
    func conditions(_ request: HTTPHeaders, _ isUnmodified: Bool) {
        let headers: HTTPHeaders = ["ETag": "\"a\"", "Last-Modified": Self.date(-60)]
        #expect(Self.response(headers).isUnmodified(for: request) == isUnmodified)
        #expect(!Self.response(headers, 404).isUnmodified(for: request))
    }

    @Test("without Last-Modified the Date counts; without ETag no tag matches")
    func conditionsWithoutValidators() {
        let response = Self.response(["Date": Self.date(-60)])
        #expect(response.isUnmodified(for: ["If-Modified-Since": Self.date(-60)]))
        #expect(!response.isUnmodified(for: ["If-Modified-Since": Self.date(-61)]))
        #expect(!response.isUnmodified(for: ["If-None-Match": "*"]))
    }

    @Test("tags that Unicode holds to be equivalent, but that have other bytes, differ")
    func equivalentTags() {
        let response = Self.response(["ETag": "\"q\u{307}\u{323}\""]), other = "\"q\u{323}\u{307}\""
        #expect(!response.isUnmodified(for: ["If-None-Match": other]))
        #expect(!response.isValidated(by: ["ETag": other]))
    }

    @Test("a 304 updates the fields and the age, except for fields that describe the body")
    func updates() {
        let stored = Self.response(["A": "1", "B": "1", "Age": "50", "Content-Length": "9", "Content-Encoding": "gzip"])
        let later = Self.now + 60_000
        let updated = stored.updated(
            with: ["a": "2", "A": "3", "Content-Length": "0", "Content-Encoding": "br"], requestedAt: later,
            receivedAt: later)
        #expect(updated.headers["A"] == ["2", "3"] && updated.headers["B"] == ["1"])
        #expect(updated.headers["Content-Length"] == ["9"] && updated.headers["Content-Encoding"] == ["gzip"])
        #expect(updated.age(at: later) == 0)
    }

    @Test("a 304 with another tag, or a HEAD response with other fields, refers to another response")
    func others() {
        let stored = Self.response(["ETag": "\"a\"", "Last-Modified": "x", "Content-Length": "9"])
        #expect(stored.isValidated(by: [:]) && stored.isValidated(by: ["ETag": "\"a\""]))
        #expect(!stored.isValidated(by: ["ETag": "\"b\""]))
        let same: HTTPHeaders = ["ETag": "\"a\"", "Last-Modified": "x"]
        #expect(stored.isDescribed(by: same) && !stored.isDescribed(by: [:]))
        #expect(stored.isDescribed(by: same.merged(["Content-Length": "9"])))
        #expect(!stored.isDescribed(by: same.merged(["Content-Length": "8"])))
        #expect(!stored.isDescribed(by: ["ETag": "\"a\"", "Last-Modified": "y"]))
    }
}

extension HTTPHeaders {
    fileprivate func merged(_ others: HTTPHeaders) -> HTTPHeaders { HTTPHeaders(Array(self) + Array(others)) }
}
