import AsyncHTTPClient
import Foundation
import Logging
import NIOCore
import NIOHTTP1
import ShaleCore
import ShaleHTTP
import Synchronization

final class TestClock: Sendable {
    /// Sun, 06 Nov 1994 08:49:37 GMT
    static let start: Int64 = 784_111_777_000
    private let milliseconds = Mutex(start)
    var now: Int64 { milliseconds.withLock { $0 } }
    func advance(seconds: Int64) { milliseconds.withLock { $0 += seconds * 1000 } }
}

/// A server without a network: answers each request as the test says, and records it.
final class Origin: HTTPTransport {
    typealias Answer = @Sendable (HTTPClientRequest) async throws -> HTTPClientResponse

    private let answer: Mutex<Answer>
    private let seen = Mutex<[HTTPClientRequest]>([])

    init(_ answer: @escaping Answer) { self.answer = Mutex(answer) }

    /// Answers with these headers and the number of the request as body.
    convenience init(status: HTTPResponseStatus = .ok, _ headers: HTTPHeaders) {
        self.init { _ in HTTPClientResponse(status: status, headers: headers) }
        answerWith(status: status, headers)
    }

    var requests: [HTTPClientRequest] { seen.withLock { $0 } }
    var count: Int { requests.count }

    func answer(_ answer: @escaping Answer) { self.answer.withLock { $0 = answer } }

    func answerWith(status: HTTPResponseStatus = .ok, _ headers: HTTPHeaders) {
        answer { [weak self] _ in text("\(self?.count ?? 0)", status: status, headers) }
    }

    func fail(_ error: any Error = Unreachable()) { answer { _ in throw error } }

    func execute(_ request: HTTPClientRequest, deadline: NIODeadline, logger: Logger?) async throws
        -> HTTPClientResponse
    {
        seen.withLock { $0.append(request) }
        return try await answer.withLock { $0 }(request)
    }
}

struct Unreachable: Error {}
struct BrokenOff: Error {}

/// A response with its Content-Length.
func text(_ body: String, status: HTTPResponseStatus = .ok, _ headers: HTTPHeaders = [:]) -> HTTPClientResponse {
    var headers = headers
    headers.add(name: "Content-Length", value: String(body.utf8.count))
    return HTTPClientResponse(status: status, headers: headers, body: .bytes(ByteBuffer(string: body)))
}

/// A cache, by default with a store in memory.
struct Site: Sendable {
    static let url = "https://example.org/news"

    let origin: Origin
    let clock: TestClock
    let store: Store
    let cache: HTTPCache

    init(
        _ origin: Origin, _ policy: HTTPCachePolicy = .init(.shared), options: HTTPCache.Options = .init(),
        directory: URL? = nil, clock: TestClock = TestClock()
    ) throws {
        self.origin = origin
        self.clock = clock
        var ofStore = Store.Options(capacity: 32 << 20)
        ofStore.now = { clock.now }
        store = try Store(at: directory?.path, options: ofStore)
        cache = HTTPCache(store: store, transport: origin, policy: policy, options: options)
    }

    func response(
        _ headers: HTTPHeaders = [:], _ method: HTTPMethod = .GET, url: String = Self.url
    ) async throws -> HTTPClientResponse {
        var request = HTTPClientRequest(url: url)
        request.method = method
        request.headers = headers
        return try await cache.execute(request, timeout: .hours(1))
    }

    /// The body.
    @discardableResult
    func get(_ headers: HTTPHeaders = [:], url: String = Self.url) async throws -> String {
        String(buffer: try await response(headers, url: url).body.collect(upTo: 64 << 20))
    }

    /// Waits for the condition; the suite's time limit bounds it.
    func until(_ condition: @Sendable () async throws -> Bool) async throws {
        while !(try await condition()) { try await Task.sleep(for: .milliseconds(1)) }
    }
}

/// A gate that a test opens.
final class Gate: Sendable {
    private let isOpen = Mutex(false)

    func open() { isOpen.withLock { $0 = true } }

    func pass() async throws {
        while !isOpen.withLock({ $0 }) { try await Task.sleep(for: .milliseconds(1)) }
    }
}
