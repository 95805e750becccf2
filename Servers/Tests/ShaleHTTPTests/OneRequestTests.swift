import AsyncHTTPClient
import Foundation
import NIOCore
import NIOHTTP1
import ShaleCore
import Testing

@testable import ShaleHTTP

@Suite("Coalesced requests", .timeLimit(.minutes(30)))
struct OneRequestTests {
    private static let cacheable: HTTPHeaders = ["Cache-Control": "max-age=60"]

    /// No wait times out.
    private var options: HTTPCache.Options {
        var options = HTTPCache.Options()
        options.longestWait = .seconds(3600)
        options.leaseTime = .seconds(3600)
        return options
    }

    private func ask(_ count: Int, _ ask: @escaping @Sendable (Int) async throws -> String) async throws -> [String] {
        try await withThrowingTaskGroup { group in
            for i in 0..<count { group.addTask { try await ask(i) } }
            return try await group.reduce(into: []) { $0.append($1) }
        }
    }

    @Test("a hundred tasks send one request", arguments: [true, false])
    func many(_ isStreamed: Bool) async throws {
        let gate = Gate()
        let site = try Site(
            Origin { _ in
                try await gate.pass()
                let bytes = ByteBuffer(repeating: 65, count: 300 << 10)
                return isStreamed
                    ? HTTPClientResponse(headers: Self.cacheable, body: .bytes(bytes)) : text("AAA", Self.cacheable)
            }, options: options)
        async let answers = ask(100) { _ in try await site.get() }
        try await site.until { site.cache.loads.followers == 99 }
        gate.open()
        #expect(Set(try await answers).count == 1)
        #expect(try await answers.count == 100)
        #expect(site.origin.count == 1)
    }

    @Test("one request for each variant")
    func variants() async throws {
        let site = try Site(
            Origin { request in
                for _ in 0..<1000 { await Task.yield() }
                return text(request.headers["A"].first ?? "", ["Cache-Control": "max-age=60", "Vary": "A"])
            }, options: options)
        let answers = try await ask(60) { i in try await site.get(["A": "\(i % 3)"]) }
        #expect(answers.sorted() == (0..<60).map { "\($0 % 3)" }.sorted())
        #expect(site.origin.count == 3)
    }

    @Test("several caches of one directory, as in several processes, send one request")
    func processes() async throws {
        let directory = FileManager.default.temporaryDirectory.appendingPathComponent("shale-\(UUID().uuidString)")
        defer { try? FileManager.default.removeItem(at: directory) }
        let origin = Origin { _ in
            for _ in 0..<20 { await Task.yield() }
            return text("once", Self.cacheable)
        }
        let sites = try (0..<4).map { _ in try Site(origin, options: options, directory: directory) }
        let answers = try await ask(40) { i in try await sites[i % 4].get() }
        #expect(answers == Array(repeating: "once", count: 40))
        #expect(origin.count == 1)
    }

    @Test(
        "if the response cannot be stored, all followers send their own requests concurrently, and others for some seconds"
    )
    func unstorable() async throws {
        let first = Gate(), others = Gate()
        let site = try Site(Origin([:]), options: options)
        site.origin.answer { [origin = site.origin] _ in
            try await origin.count == 1 ? first.pass() : others.pass()
            return text("own", ["Cache-Control": "no-store"])
        }
        async let answers = ask(20) { _ in try await site.get() }
        try await site.until { site.cache.loads.followers == 19 }
        first.open()
        try await site.until { site.origin.count > 1 && site.origin.count + site.cache.loads.followers == 20 }
        async let later = ask(20) { _ in try await site.get() }
        try await site.until { site.origin.count + site.cache.loads.followers == 40 }
        #expect(site.origin.count == 40)
        others.open()
        #expect(try await answers.count + later.count == 40)
        site.clock.advance(seconds: 5)
        let last = Gate()
        site.origin.answer { _ in
            try await last.pass()
            return text("stored", Self.cacheable)
        }
        async let waiting = ask(20) { _ in try await site.get() }
        try await site.until { site.cache.loads.followers == 19 }
        last.open()
        #expect(Set(try await waiting) == ["stored"])
        #expect(site.origin.count == 41)
    }

    @Test("another process waits for a response whose head has arrived")
    func arrivedHead() async throws {
        let directory = FileManager.default.temporaryDirectory.appendingPathComponent("shale-\(UUID().uuidString)")
        defer { try? FileManager.default.removeItem(at: directory) }
        let (stream, more) = AsyncStream.makeStream(of: ByteBuffer.self)
        let origin = Origin { _ in HTTPClientResponse(headers: Self.cacheable, body: .stream(stream)) }
        let one = try Site(origin, options: options, directory: directory)
        let other = try Site(origin, options: options, directory: directory)
        let response = try await one.response()
        let waiting = (0..<2).map { _ in Task { try await other.get() } }
        try await other.until { other.cache.loads.followers == 1 || origin.count == 2 }
        more.yield(ByteBuffer(string: "once"))
        more.finish()
        #expect(String(buffer: try await response.body.collect(upTo: 99)) == "once")
        for task in waiting { #expect(try await task.value == "once") }
        #expect(origin.count == 1)
    }

    @Test("requests do not wait for each other if the store fails, before or while one of them is sent")
    func failingStore() async throws {
        for (isEarly, size) in [(true, 9), (false, 9), (false, 300 << 10)] {
            let first = Gate(), others = Gate()
            let site = try Site(Origin([:]), options: options)
            site.origin.answer { [origin = site.origin] _ in
                try await origin.count == 1 ? first.pass() : others.pass()
                return text(String(repeating: "A", count: size), Self.cacheable)
            }
            if isEarly { try site.store.close() }
            async let answers = ask(20) { _ in try await site.get() }
            if !isEarly {
                try await site.until { site.cache.loads.followers == 19 }
                try site.store.close()
            }
            first.open()
            try await site.until { site.origin.count > 1 && site.origin.count + site.cache.loads.followers == 20 }
            #expect(site.origin.count == 20)
            others.open()
            #expect(try await answers.allSatisfy { $0.utf8.count == size })
        }
    }

    @Test("while the server cannot be reached, requests for what could not be stored wait for each other too")
    func unstorableAndUnreachable() async throws {
        let site = try Site(Origin(["Cache-Control": "no-store"]), options: options)
        _ = try await site.get()
        site.origin.fail()
        await #expect(throws: Unreachable.self) { try await site.get() }
        await #expect(throws: Unreachable.self) { try await ask(20) { _ in try await site.get() } }
        #expect(site.origin.count == 3)
    }

    @Test("fields that Unicode holds to be equivalent, but that have other bytes, are of different variants")
    func equivalent() async throws {
        let parts = Gate()
        let site = try Site(
            Origin { request in
                let headers: HTTPHeaders = ["Cache-Control": "max-age=60", "Vary": "A"]
                let value = request.headers["A"].first ?? ""
                if Array(value.utf8) != Array("q\u{307}\u{323}".utf8) { return text("other", headers) }
                let (body, more) = AsyncStream.makeStream(of: ByteBuffer.self)
                try await parts.pass()
                more.yield(ByteBuffer(repeating: 1, count: 300 << 10))
                more.finish()
                return HTTPClientResponse(headers: headers, body: .stream(body))
            }, options: options)
        _ = try await site.get()
        let first = Task { try await site.get(["A": "q\u{307}\u{323}"]) }
        try await site.until { site.origin.count == 2 }
        let second = Task { try await site.get(["A": "q\u{323}\u{307}"]) }
        try await site.until { site.origin.count == 3 || site.cache.loads.followers == 1 }
        parts.open()
        #expect(try await first.value.utf8.count == 300 << 10)
        #expect(try await second.value == "other")
    }

    @Test(
        "a leader that fails, breaks off or is cancelled does not block its followers",
        arguments: ["fails", "breaks off", "is cancelled"])
    func failing(_ how: String) async throws {
        let gate = Gate()
        let site = try Site(Origin([:]), options: options)
        site.origin.answer { [origin = site.origin] _ in
            if origin.count > 1 { return text("second", Self.cacheable) }
            try await gate.pass()
            if how == "fails" { throw Unreachable() }
            let body = AsyncThrowingStream<ByteBuffer, any Error> { throw BrokenOff() }
            return HTTPClientResponse(headers: Self.cacheable, body: .stream(body))
        }
        let first = Task { try await site.get() }
        try await site.until { site.origin.count == 1 }
        async let others = ask(10) { _ in try await site.get() }
        try await site.until { site.cache.loads.followers == 10 }
        if how == "is cancelled" { first.cancel() } else { gate.open() }
        await #expect(throws: (any Error).self) { try await first.value }
        #expect(try await others == Array(repeating: "second", count: 10))
        #expect(site.origin.count == 2)
    }

    @Test("a caller that does not read its body delays no others", arguments: [4, 400 << 10])
    func slowReader(_ size: Int) async throws {
        let site = try Site(
            Origin { _ in
                HTTPClientResponse(headers: Self.cacheable, body: .bytes(ByteBuffer(repeating: 65, count: size)))
            },
            options: options)
        let unread = try await site.response()
        #expect(try await site.get().utf8.count == size)
        #expect(try await site.get().utf8.count == size)
        #expect(site.origin.count == 1)
        #expect(try await unread.body.collect(upTo: .max).readableBytes == size)
    }

    @Test("a follower does not wait past its deadline")
    func deadline() async throws {
        let gate = Gate()
        let site = try Site(
            Origin { _ in
                try await gate.pass()
                return text("late", Self.cacheable)
            }, options: options)
        async let first = site.get()
        try await site.until { site.origin.count == 1 }
        await #expect(throws: HTTPClientError.deadlineExceeded) {
            try await site.cache.execute(HTTPClientRequest(url: Site.url), timeout: .milliseconds(20))
        }
        #expect(site.origin.count == 1)
        gate.open()
        #expect(try await first == "late")
    }

    @Test("a cancelled follower stops waiting")
    func cancelledWaiter() async throws {
        let gate = Gate()
        let site = try Site(
            Origin { _ in
                try await gate.pass()
                return text("late", Self.cacheable)
            }, options: options)
        let first = Task { try await site.get() }
        try await site.until { site.origin.count == 1 }
        let waiter = Task { try await site.get() }
        try await site.until { site.cache.loads.followers == 1 }
        waiter.cancel()
        await #expect(throws: (any Error).self) { try await waiter.value }
        gate.open()
        #expect(try await first.value == "late")
    }
}
