import AsyncHTTPClient
import NIOCore
import NIOHTTP1
import Synchronization
import Testing

@testable import ShaleHTTP

/// Many requests at once. What counts is how many of them reach the server.
@Suite("Herds", .timeLimit(.minutes(30)))
struct HerdTests {
    private static let cacheable: HTTPHeaders = ["Cache-Control": "max-age=60"]

    /// No wait times out.
    private static var options: HTTPCache.Options {
        var options = HTTPCache.Options()
        options.longestWait = .seconds(3600)
        options.leaseTime = .seconds(3600)
        return options
    }

    /// Answers every request alike, once the gate is open.
    private static func answer(behind gate: Gate) -> Origin.Answer {
        { _ in
            try await gate.pass()
            return text("all", cacheable)
        }
    }

    private static func origin(behind gate: Gate) -> Origin { Origin(answer(behind: gate)) }

    /// Starts requests of which one is sent and the others wait, unless the wait is too long for them. `answers` are the bodies; nil for those that fail.
    private func herd(
        _ site: Site, _ count: Int, _ headers: HTTPHeaders = [:],
        then: @Sendable ([Task<String?, Never>]) async throws -> Void
    ) async throws -> [String?] {
        let before = site.origin.count
        let first = Task { try? await site.get(headers) }
        try await site.until { site.origin.count > before }
        let others = (1..<count).map { _ in Task { try? await site.get(headers) } }
        try await site.until { site.cache.loads.followers + site.origin.count - before >= count }
        try await then([first] + others)
        var answers: [String?] = []
        for task in [first] + others { answers.append(await task.value) }
        return answers
    }

    @Test("after one cancelled caller, two hundred waiting ones send one request")
    func disconnected() async throws {
        let gate = Gate()
        let site = try Site(Self.origin(behind: gate), options: Self.options)
        let answers = try await herd(site, 201) { tasks in
            tasks[0].cancel()
            _ = await tasks[0].value
            try await site.until { site.origin.count >= 2 }
            gate.open()
        }
        #expect(answers[1...].allSatisfy { $0 == "all" })
        #expect(site.origin.count == 2)
    }

    @Test("a thousand requests of which the first fails become two; if the second fails too, all fail")
    func failing() async throws {
        for failures in [1, 2] {
            let gate = Gate()
            let site = try Site(Origin([:]), options: Self.options)
            site.origin.answer { [origin = site.origin] _ in
                let number = origin.count
                try await gate.pass()
                if number <= failures { throw Unreachable() }
                return text("all", Self.cacheable)
            }
            let answers = try await herd(site, 1000) { _ in gate.open() }
            #expect(answers.count { $0 == "all" } == (failures == 1 ? 999 : 0))
            #expect(site.origin.count == 2)
            guard failures == 2 else { continue }
            await #expect(throws: Unreachable.self) { try await site.get() }
            #expect(site.origin.count == 2)
            site.clock.advance(seconds: 1)
            #expect(try await site.get() == "all")
            #expect(site.origin.count == 3)
        }
    }

    @Test("errors that a request causes itself, and time limits, do not end the requests of others")
    func ownErrors() async throws {
        let site = try Site(Origin(Self.cacheable), options: Self.options)
        for error in [HTTPClientError.invalidHeaderFieldValues(["a"]), .deadlineExceeded, .invalidURL] {
            site.origin.fail(error)
            for _ in 0..<3 { await #expect(throws: error) { try await site.get() } }
            #expect(site.origin.count % 3 == 0)
        }
        site.origin.answerWith(Self.cacheable)
        #expect(try await site.get() == "10")
    }

    @Test("while the server fails, stale responses are served without delay, and it is asked after pauses")
    func stale() async throws {
        var policy = HTTPCachePolicy()
        policy.staleIfUnreachable = .seconds(3600)
        let site = try Site(Origin(Self.cacheable), policy, options: Self.options)
        _ = try await site.get()
        site.clock.advance(seconds: 61)
        site.origin.fail()
        for _ in 0..<200 { #expect(try await site.get() == "1") }
        #expect(site.origin.count == 2)
        // The server hangs: one request waits for it, in the background.
        let gate = Gate()
        site.origin.answer { _ in
            try await gate.pass()
            throw Unreachable()
        }
        site.clock.advance(seconds: 1)
        for _ in 0..<200 { #expect(try await site.get() == "1") }
        try await site.until { site.origin.count == 3 }
        gate.open()
        // Pauses double, up to five seconds.
        for _ in 0..<100 {
            site.clock.advance(seconds: 1)
            let answers = await withTaskGroup { group in
                for _ in 0..<5 { group.addTask { try? await site.get() } }
                return await group.reduce(into: []) { $0.append($1) }
            }
            #expect(answers.allSatisfy { $0 == "1" })
            for _ in 0..<50 { await Task.yield() }
        }
        #expect(site.origin.count <= 3 + 30)
        site.origin.answerWith(Self.cacheable)
        site.clock.advance(seconds: 6)
        try await site.until { try await site.get() != "1" }
    }

    @Test("errors of the server: stale-if-error serves at once too")
    func staleIfError() async throws {
        let site = try Site(Origin(["Cache-Control": "max-age=60, stale-if-error=600"]), options: Self.options)
        _ = try await site.get()
        site.clock.advance(seconds: 61)
        site.origin.answerWith(status: .serviceUnavailable, [:])
        for _ in 0..<200 { #expect(try await site.get() == "1") }
        #expect(site.origin.count == 2)
    }

    @Test("a server that takes longer than longestWait gets one more request at a time")
    func slow() async throws {
        var options = HTTPCache.Options()
        options.longestWait = .milliseconds(200)
        let gate = Gate()
        let site = try Site(Self.origin(behind: gate), options: options)
        let clock = ContinuousClock(), start = clock.now
        let answers = try await herd(site, 500) { _ in
            try await site.until { site.origin.count >= 3 }
            gate.open()
        }
        #expect(answers.allSatisfy { $0 == "all" })
        // However slow the machine is, each needed its own wait.
        #expect(site.origin.count <= 1 + Int((clock.now - start) / .milliseconds(200)))
    }

    @Test("requests that ask for validation share one that is sent after they arrived")
    func reloads() async throws {
        let gate = Gate()
        let site = try Site(Self.origin(behind: gate), options: Self.options)
        let answers = try await herd(site, 200, ["Cache-Control": "no-cache"]) { _ in gate.open() }
        #expect(answers.allSatisfy { $0 == "all" })
        #expect(site.origin.count <= 2)
    }

    @Test("requests for a response that each has to validate do not wait for each other")
    func unshareable() async throws {
        let first = Gate(), others = Gate()
        let site = try Site(Origin([:]), options: Self.options)
        site.origin.answer { [origin = site.origin] _ in
            try await origin.count == 1 ? first.pass() : others.pass()
            return text("own", ["Cache-Control": "no-cache", "ETag": "\"a\""])
        }
        let answers = try await herd(site, 20) { _ in
            first.open()
            try await site.until { site.origin.count == 20 }
            others.open()
        }
        #expect(answers.allSatisfy { $0 == "own" })
    }

    @Test("a request with credentials does not keep others from sharing a response")
    func credentials() async throws {
        let site = try Site(Origin(Self.cacheable), options: Self.options)
        _ = try await site.get(["Authorization": "x"])
        let gate = Gate()
        site.origin.answer(Self.answer(behind: gate))
        let answers = try await herd(site, 20) { _ in gate.open() }
        #expect(answers.allSatisfy { $0 == "all" })
        #expect(site.origin.count == 2)
    }

    @Test("five thousand tasks on five URLs send five requests, and one more for each caller that is cancelled")
    func many() async throws {
        let gate = Gate()
        let site = try Site(
            Origin { request in
                try await gate.pass()
                return text(request.url, Self.cacheable)
            }, options: Self.options)
        let tasks = (0..<5000).map { i in
            Task { try await site.get(["Number": "\(i)"], url: Site.url + "/\(i % 5)") }
        }
        try await site.until { site.cache.loads.followers == 4995 }
        var cancelled: Set<Int> = []
        for round in 1...10 {
            #expect(site.origin.count == 5 * round)
            let leaders = site.origin.requests.suffix(5).compactMap {
                $0.headers.first(name: "Number").flatMap { Int($0) }
            }
            for leader in leaders { tasks[leader].cancel() }
            cancelled.formUnion(leaders)
            try await site.until { site.origin.count >= 5 * (round + 1) }
        }
        gate.open()
        for (i, task) in tasks.enumerated() where !cancelled.contains(i) {
            #expect(try await task.value == Site.url + "/\(i % 5)")
        }
        #expect(site.origin.count == 55)
    }

    @Test("requests that arrive while the first response does send none of their own")
    func arriving() async throws {
        let site = try Site(
            Origin { request in
                await Task.yield()
                return text(request.url, ["Cache-Control": "max-age=60", "Vary": "A"])
            }, options: Self.options)
        let tasks = (0..<4000).map { i in Task { try await site.get(url: Site.url + "/\(i / 20)") } }
        for (i, task) in tasks.enumerated() { #expect(try await task.value == Site.url + "/\(i / 20)") }
        #expect(site.origin.count == 200)
    }

    // MARK: Bodies

    /// A body of 64 KiB parts, each sent when the test permits.
    private final class Parts: Sendable {
        private let permitted = Mutex(0)
        private let next = Mutex(0)
        let total: Int

        init(total: Int) { self.total = total }

        func permit(_ count: Int) { permitted.withLock { $0 = count } }

        var body: HTTPClientResponse.Body {
            .stream(
                AsyncThrowingStream<ByteBuffer, any Error> {
                    let number = self.next.withLock { next in
                        defer { next += 1 }
                        return next
                    }
                    if number >= self.total { return nil }
                    while self.permitted.withLock({ $0 }) <= number { try await Task.sleep(for: .milliseconds(1)) }
                    return ByteBuffer(repeating: UInt8(number % 256), count: 64 << 10)
                })
        }
    }

    private func size(_ body: HTTPClientResponse.Body, atLeast wanted: Int) async throws -> Int {
        var size = 0
        for try await part in body {
            size += part.readableBytes
            if size >= wanted { break }
        }
        return size
    }

    @Test("a large body flows to those who wait before it is complete, and to all if its first reader is cancelled")
    func flowing() async throws {
        let parts = Parts(total: 8)
        let site = try Site(
            Origin { _ in HTTPClientResponse(headers: Self.cacheable, body: parts.body) }, options: Self.options)
        let first = Task { try await site.get() }
        try await site.until { site.origin.count == 1 }
        let others = (0..<9).map { _ in Task { try await site.response() } }
        try await site.until { site.cache.loads.followers == 9 }
        parts.permit(5)
        for other in others { #expect(try await size(other.value.body, atLeast: 64 << 10) >= 64 << 10) }
        let last = try await site.response()
        first.cancel()
        await #expect(throws: (any Error).self) { try await first.value }
        parts.permit(8)
        #expect(try await last.body.collect(upTo: .max).readableBytes == 8 * 64 << 10)
        #expect(try await site.get().utf8.count == 8 * 64 << 10)
        #expect(site.origin.count == 1)
    }

    @Test("requests that ask for validation share a large body too, and send one request if they came later")
    func largeReloads() async throws {
        let reload: HTTPHeaders = ["Cache-Control": "no-cache"], body = ByteBuffer(repeating: 65, count: 300 << 10)
        for isLater in [false, true] {
            let gate = Gate()
            let site = try Site(
                Origin { _ in
                    try await gate.pass()
                    return HTTPClientResponse(headers: Self.cacheable, body: .bytes(body))
                }, options: Self.options)
            let first = Task { try? await site.get(reload) }
            try await site.until { site.origin.count == 1 }
            if isLater { site.clock.advance(seconds: 1) }
            let others = (0..<100).map { _ in Task { try? await site.get(reload) } }
            try await site.until { site.cache.loads.followers == 100 }
            gate.open()
            for task in [first] + others { #expect(await task.value?.utf8.count == 300 << 10) }
            #expect(site.origin.count <= 2)
        }
    }

    @Test("a request that follows an invalidation does not get a body that was requested before it")
    func invalidatedMeanwhile() async throws {
        let parts = Parts(total: 8)
        let site = try Site(
            Origin { _ in HTTPClientResponse(headers: Self.cacheable, body: parts.body) }, options: Self.options)
        let first = Task { try await site.get() }
        try await site.until { site.origin.count == 1 }
        parts.permit(5)
        // It flows by now.
        #expect(try await size(site.response().body, atLeast: 4 * 64 << 10) >= 4 * 64 << 10)
        #expect(site.origin.count == 1)
        site.origin.answerWith(["Cache-Control": "max-age=60", "New": "1"])
        _ = try await site.response([:], .POST)
        let answers = await withTaskGroup { group in
            for _ in 0..<20 { group.addTask { try? await site.response() } }
            return await group.reduce(into: []) { $0.append($1) }
        }
        #expect(answers.allSatisfy { $0?.headers["New"] == ["1"] })
        #expect(site.origin.count == 3)
        parts.permit(8)
        #expect(try await first.value.utf8.count == 8 * 64 << 10)
        #expect(try await site.get() == "3")
    }

    @Test("a body that turns out to be too long is passed on to all its readers, at their own pace")
    func tooLong() async throws {
        var options = Self.options
        options.maxBodySize = 300 << 10
        let parts = Parts(total: 20)
        let site = try Site(
            Origin { _ in HTTPClientResponse(headers: Self.cacheable, body: parts.body) }, options: options)
        let first = try await site.response()
        let second = Task { try await site.response() }
        try await site.until { site.cache.loads.followers == 1 }
        parts.permit(4)
        async let fast = second.value.body.collect(upTo: .max)
        // Both are readers by now, and one has read nothing.
        parts.permit(20)
        #expect(try await first.body.collect(upTo: .max).readableBytes == 20 * 64 << 10)
        #expect(try await fast.readableBytes == 20 * 64 << 10)
        #expect(site.origin.count == 1)
        _ = try await site.get()
        #expect(site.origin.count == 2)
    }
}
