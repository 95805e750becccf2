import NIOHTTP1
import Testing

@testable import ShaleHTTP

@Suite("Parsing of fields, dates and URLs")
struct ParsingTests {
    private static let sunday: Int64 = 784_111_777_000

    @Test(
        "dates in the three formats, in any case",
        arguments: [
            "Sun, 06 Nov 1994 08:49:37 GMT", "SUN, 06 nov 1994 08:49:37 gmt", "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
        ])
    func dates(_ text: String) { #expect(HTTPDate.parse(text, now: Self.sunday) == Self.sunday) }

    @Test(
        "invalid dates",
        arguments: [
            "", "0", "foo", "Sun, 06 Nov 1994 08:49:37 UTC", "Sun, 06 Nov 1994 08:49:37", "Sun, 06 Nov 94 08:49:37 GMT",
            "Sun 06 Nov 1994 08:49:37 GMT", "Sun, 06  Nov  1994 08:49:37 GMT", "Sun, 06-Nov-1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08.49.37 GMT", "Sun, 06 Nov 1994 8:49:37 GMT", "Sun, 31 Feb 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:49:37 GMT", "Sun, 06 Nov 1994 08:60:37 GMT", "Son, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 GMT ", "Sun Nov 6 08:49:37 1994", "Sun, ٠٦ Nov 1994 08:49:37 GMT",
            "Sun, 00 Nov 1994 08:49:37 GMT",
        ])
    func noDates(_ text: String) { #expect(HTTPDate.parse(text, now: Self.sunday) == nil) }

    @Test(
        "dates format and parse to the same time: leap years, centuries, before 1970",
        arguments: [
            (784_111_777_000, "Sun, 06 Nov 1994 08:49:37 GMT"), (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (-1000, "Wed, 31 Dec 1969 23:59:59 GMT"), (951_782_400_000, "Tue, 29 Feb 2000 00:00:00 GMT"),
            (4_107_542_400_000, "Mon, 01 Mar 2100 00:00:00 GMT"),
            (253_402_300_799_000, "Fri, 31 Dec 9999 23:59:59 GMT"),
        ] as [(Int64, String)])
    func written(_ time: Int64, _ text: String) {
        #expect(HTTPDate.format(time) == text)
        #expect(HTTPDate.parse(text, now: 0) == time)
    }

    @Test("a year of two digits is at most 50 years ahead")
    func shortYears() throws {
        let now = try #require(HTTPDate.parse("Mon, 23 Nov 2026 00:00:00 GMT", now: 0))
        for (short, year) in [("76", "2076"), ("77", "1977"), ("26", "2026"), ("00", "2000")] {
            let date = HTTPDate.parse("Monday, 01-Jan-\(short) 00:00:00 GMT", now: now)
            #expect(date == HTTPDate.parse("Mon, 01 Jan \(year) 00:00:00 GMT", now: now))
        }
    }

    @Test(
        "lists: a comma in a string is no separator; an unclosed quotation mark begins no string",
        arguments: [
            (["a, b"], ["a", "b"]), ([" a\t,, b ,"], ["a", "b"]), (["a", "b,c"], ["a", "b", "c"]), ([""], []), ([], []),
            ([#"a="x, y", b"#], [#"a="x, y""#, "b"]), ([#"a="x\", y", b"#], [#"a="x\", y""#, "b"]),
            ([#"a="x, no-store"#], [#"a="x"#, "no-store"]), ([#"a="x"#, "no-store"], [#"a="x"#, "no-store"]),
            ([#""a, b", W/"c,d""#], [#""a, b""#, #"W/"c,d""#]),
        ] as [([String], [String])])
    func lists(_ lines: [String], _ members: [String]) { #expect(FieldList(lines).members == members) }

    @Test(
        "durations of directives, in seconds",
        arguments: [
            ("max-age=60", 60), ("MaX-aGe=60", 60), ("max-age=\"60\"", 60), ("max-age=0060", 60), ("a, max-age=60", 60),
            ("max-age=60, max-age=1", 60), ("max-age=99999999999", 1 << 31), ("max-age=99999999999999999999", 1 << 31),
            ("max-age=-60", 0), ("max-age='60'", 0), ("max-age=60.0", 0), ("max-age=60a", 0), ("max-age=", 0),
            ("max-age", 0), ("max-age =60", 0), ("max-age= 60", 0), ("max-age=+60", 0), ("x=\"max-age=60\"", nil),
            ("x=\"max-age=60\", max-age=1", 1), ("max-age=1, x=\"max-age=60\"", 1), ("xmax-age=60", nil), ("", nil),
        ] as [(String, Int64?)])
    func durations(_ field: String, _ seconds: Int64?) {
        #expect(CacheControl(["Cache-Control": field]).duration(.maxAge) == seconds.map { $0 * 1000 })
    }

    @Test("directives with field names apply only to these; several lines form one list")
    func directives() {
        let control = CacheControl([
            "Cache-Control": #"No-Cache="Set-Cookie, a", private"#, "cache-control": "must-revalidate",
        ])
        #expect(control.fields(.noCache) == ["set-cookie", "a"])
        #expect(control.has(.noCache) && !control.hasUnqualified(.noCache))
        #expect(control.hasUnqualified(.private) && control.permits(.mustRevalidate) && !control.has(.public))
        #expect(CacheControl(["Cache-Control": "max-stale"]).durationOrForever(.maxStale) == DeltaSeconds.largest)
        #expect(CacheControl(["Cache-Control": "max-stale=1"]).durationOrForever(.maxStale) == 1000)
    }

    @Test(
        "equivalent URLs are normalised to one",
        arguments: [
            ("HTTP://Example.ORG:80/a?B#c", "http://example.org/a?B"), ("https://example.org", "https://example.org/"),
            ("https://example.org:443/", "https://example.org/"), ("http://a:443/", "http://a:443/"),
            ("https://example.org/A", "https://example.org/A"),
            ("http+unix://%2Ftmp%2FA/b", "http+unix://%2Ftmp%2FA/b"),
        ])
    func urls(_ url: String, _ normal: String) { #expect(Keys.normalised(url) == normal) }

    @Test(
        "references of the same origin",
        arguments: [
            ("b", "http://a/x/b"), ("/b", "http://a/b"), ("http://A:80/b", "http://a/b"), ("http://other/b", nil),
            ("https://a/b", nil), ("http://a:81/b", nil), ("//other/b", nil),
        ] as [(String, String?)])
    func references(_ reference: String, _ url: String?) {
        #expect(Keys.sameOrigin(reference, as: "http://a/x/y") == url)
    }

    @Test("a stored record is read as it was written, whatever its names")
    func records() {
        let response = StoredResponse(
            status: .ok, headers: HTTPHeaders([("\u{e9}", "\u{0}"), ("", "a"), ("a", "")]), requestedAt: 1,
            receivedAt: 2)
        let record = StoredRecord(response, .chunks(id: 7, count: 8))
        #expect(StoredRecord(record.encoded) == record)
    }

    @Test("different selections have different keys")
    func selections() {
        let keys = Keys(prefix: "p/"), vary = Vary(names: ["a", "b"])
        let selections: [[String?]] = [
            ["1", "2"], ["12", nil], [nil, "12"], ["", "12"], ["12", ""], [nil, nil], ["", ""], ["1:2", ""],
            ["-", nil],
        ]
        let requests = selections.map { values in
            HTTPHeaders(zip(vary.names, values).compactMap { name, value in value.map { (name, $0) } })
        }
        #expect(Set(requests.map { keys.response(7, vary, to: $0) }).count == selections.count)
        #expect(
            keys.response(7, Vary(names: ["a"]), to: ["a": "1"]) != keys.response(7, Vary(names: ["b"]), to: ["b": "1"])
        )
    }
}
