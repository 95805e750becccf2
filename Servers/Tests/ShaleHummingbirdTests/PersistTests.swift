import Foundation
import Hummingbird
import HummingbirdTesting
import Shale
import ShaleHummingbird
import Synchronization
import Testing

/// The cases of Hummingbird's own tests of its drivers, under the same names, with a clock instead of waiting; then
/// tests specific to this driver.
@Suite("Hummingbird's persisted values", .timeLimit(.minutes(30)))
struct PersistTests {
    final class TestClock: Sendable {
        private let milliseconds = Mutex<Int64>(1_800_000_000_000)
        var now: Int64 { milliseconds.withLock { $0 } }
        func advance(by time: Int64) { milliseconds.withLock { $0 += time } }
    }

    struct Note: Codable, Equatable { var text: String }

    private let clock = TestClock()
    private let directory = FileManager.default.temporaryDirectory.appendingPathComponent("shale-\(UUID().uuidString)")

    private func store(at directory: URL? = nil) throws -> Store {
        var options = Store.Options(capacity: 4 << 20)
        options.now = { [clock] in clock.now }
        return try Store(at: directory?.path, options: options)
    }

    /// A site that sets, gets and removes the value of the key in the path.
    private func site() throws -> (any ApplicationProtocol, ShalePersistDriver) {
        let router = Router(), persist = ShalePersistDriver(store: try store())
        router.put("/persist/:tag") { request, context in
            let text = String(buffer: try await request.body.collect(upTo: .max))
            try await persist.set(key: try context.parameters.require("tag"), value: text)
            return HTTPResponse.Status.ok
        }
        router.put("/persist/:tag/:time") { request, context in
            let text = String(buffer: try await request.body.collect(upTo: .max))
            try await persist.set(
                key: try context.parameters.require("tag"), value: text,
                expires: .seconds(try context.parameters.require("time", as: Int.self)))
            return HTTPResponse.Status.ok
        }
        router.put("/create/:tag") { request, context in
            let text = String(buffer: try await request.body.collect(upTo: .max))
            do { try await persist.create(key: try context.parameters.require("tag"), value: text) } catch let error
                as PersistError where error == .duplicate
            { throw HTTPError(.conflict) }
            return HTTPResponse.Status.ok
        }
        router.get("/persist/:tag") { _, context -> String? in
            try await persist.get(key: try context.parameters.require("tag"), as: String.self)
        }
        router.get("/persist/:tag/ttl") { _, context -> String? in
            try await persist.getWithTTL(key: try context.parameters.require("tag"), as: String.self)?.ttl.map {
                "\($0.components.seconds)"
            }
        }
        router.delete("/persist/:tag") { _, context in
            try await persist.remove(key: try context.parameters.require("tag"))
            return HTTPResponse.Status.noContent
        }
        return (Application(responder: router.buildResponder(), services: [persist]), persist)
    }

    /// Sends requests in order: method, path, request body, and the expected response body or status. A number instead
    /// of a path advances the clock by that many seconds.
    private func expect(_ steps: [(HTTPRequest.Method, String, String?, String)], then: () throws -> Void = {})
        async throws
    {
        let (app, _) = try site()
        try await app.test(.router) { client in
            for (method, path, body, expected) in steps {
                if let seconds = Int64(path) {
                    clock.advance(by: seconds * 1000)
                    continue
                }
                try await client.execute(uri: path, method: method, body: body.map { ByteBuffer(string: $0) }) {
                    response in
                    let got =
                        response.body.readableBytes > 0 && response.status == .ok
                        ? String(buffer: response.body) : "\(response.status.code)"
                    #expect(got == expected, "\(method) \(path)")
                }
            }
        }
    }

    @Test func testSetGet() async throws {
        try await expect([(.put, "/persist/a", "Persist", "200"), (.get, "/persist/a", nil, "Persist")])
    }

    @Test func testCreateGet() async throws {
        try await expect([(.put, "/create/a", "Persist", "200"), (.get, "/persist/a", nil, "Persist")])
    }

    @Test func testDoubleCreateFail() async throws {
        try await expect([
            (.put, "/create/a", "Persist", "200"), (.put, "/create/a", "Other", "409"),
            (.get, "/persist/a", nil, "Persist"),
        ])
    }

    @Test func testSetTwice() async throws {
        try await expect([
            (.put, "/persist/a", "test1", "200"), (.put, "/persist/a", "test2", "200"),
            (.get, "/persist/a", nil, "test2"),
        ])
    }

    @Test func testExpires() async throws {
        try await expect([
            (.put, "/persist/a/0", "one", "200"), (.put, "/persist/b/10", "two", "200"), (.get, "9", nil, ""),
            (.get, "/persist/a", nil, "204"), (.get, "/persist/b", nil, "two"), (.get, "1", nil, ""),
            (.get, "/persist/b", nil, "204"),
        ])
    }

    @Test func testTTL() async throws {
        try await expect([
            (.put, "/persist/a/10", "one", "200"), (.get, "/persist/a/ttl", nil, "10"), (.get, "3", nil, ""),
            (.get, "/persist/a/ttl", nil, "7"), (.put, "/persist/b", "for ever", "200"),
            (.get, "/persist/b/ttl", nil, "204"),
        ])
    }

    @Test func testCodable() async throws {
        let (_, persist) = try site()
        try await persist.set(key: "a", value: Note(text: "Persist"))
        #expect(try await persist.get(key: "a", as: Note.self) == Note(text: "Persist"))
    }

    @Test func testInvalidGetAs() async throws {
        let (_, persist) = try site()
        try await persist.set(key: "a", value: Note(text: "hello"))
        let error = await #expect(throws: PersistError.self) { try await persist.get(key: "a", as: String.self) }
        #expect(error == .invalidConversion)
        await #expect(throws: PersistError.self) { try await persist.getWithTTL(key: "a", as: [Int].self) }
        #expect(try await persist.get(key: "a", as: Note.self) != nil)
    }

    @Test func testRemove() async throws {
        try await expect([
            (.put, "/persist/a", "one", "200"), (.delete, "/persist/a", nil, "204"), (.get, "/persist/a", nil, "204"),
        ])
    }

    @Test func testExpireAndAdd() async throws {
        try await expect([
            (.put, "/persist/a/1", "one", "200"), (.get, "1", nil, ""), (.get, "/persist/a", nil, "204"),
            (.put, "/persist/a/10", "two", "200"), (.get, "/persist/a", nil, "two"),
        ])
    }

    /// No tidying is needed: expired entries make room for new ones.
    @Test func testTidy() async throws {
        let persist = ShalePersistDriver(store: try store())
        let noise = (0..<20_000).map { _ in UInt8.random(in: 0 ... .max) }
        try await persist.set(key: "kept", value: "kept", expires: .seconds(1000))
        for i in 0..<500 {
            try await persist.set(key: "\(i)", value: noise, expires: .seconds(1))
            clock.advance(by: 1000)
            if i < 400 { #expect(try await persist.get(key: "kept", as: String.self) == "kept", "\(i)") }
        }
    }

    // MARK: Specific to this driver

    @Test(
        "set without expires keeps the expiry time to the millisecond, however often; after expiry there is none")
    func keepsTime() async throws {
        // This clock advances with every fifth reading.
        let looks = Mutex(0), clock = clock
        var options = Store.Options(capacity: 4 << 20)
        options.now = {
            let moves = looks.withLock { looks in
                looks += 1
                return looks % 5 == 0
            }
            if moves { clock.advance(by: 1) }
            return clock.now
        }
        let store = try Store(at: nil, options: options), persist = ShalePersistDriver(store: store, prefix: "p/")
        try await persist.set(key: "a", value: 0, expires: .seconds(100))
        let expiry = try #require(try store.entry(for: "p/a")?.expiresAt)
        for i in 1...100 {
            try await persist.set(key: "a", value: i)
            #expect(try store.entry(for: "p/a")?.expiresAt == expiry)
        }
        #expect(try await persist.get(key: "a", as: Int.self) == 100)
        clock.advance(by: 100_000)
        #expect(try await persist.get(key: "a", as: Int.self) == nil)
        try await persist.set(key: "a", value: 5)
        #expect(try await persist.getWithTTL(key: "a", as: Int.self)?.ttl == nil)
        #expect(try await persist.get(key: "a", as: Int.self) == 5)
        try await persist.create(key: "b", value: 1, expires: .seconds(-1))
        #expect(try await persist.get(key: "b", as: Int.self) == nil)
        try await persist.create(key: "b", value: 2, expires: .seconds(1))
        #expect(try await persist.get(key: "b", as: Int.self) == 2)
    }

    @Test("of concurrent creates of a key, through several drivers, one succeeds; values survive a restart")
    func shared() async throws {
        defer { try? FileManager.default.removeItem(at: directory) }
        do {
            let drivers = try (0..<4).map { _ in ShalePersistDriver(store: try store(at: directory)) }
            let created = await withTaskGroup { group in
                for i in 0..<40 {
                    group.addTask { (try? await drivers[i % 4].create(key: "", value: i, expires: nil)) != nil }
                }
                return await group.reduce(0) { $0 + ($1 ? 1 : 0) }
            }
            #expect(created == 1)
            try await drivers[0].set(key: "note", value: Note(text: "kept"), expires: .seconds(60))
            try await drivers[1].shutdown()
        }
        let again = ShalePersistDriver(store: try store(at: directory))
        #expect(try await again.get(key: "note", as: Note.self) == Note(text: "kept"))
        #expect(try await again.get(key: "", as: Int.self) != nil)
        try await ShalePersistDriver(store: try store(at: directory), prefix: "other/").remove(key: "note")
        #expect(try await again.get(key: "note", as: Note.self) != nil)
    }
}
