import AsyncHTTPClient
import Foundation
import HTTPTypes
import HummingbirdCore
import Logging
import NIOCore
import NIOHTTP1
import NIOPosix
import ShaleCore
import ShaleHTTP

/// A reverse proxy whose only component is an `HTTPCache`, for tests:
///
///     CacheProxy http://127.0.0.1:8000 8080
///
/// It listens on the loopback interface. Its cache is shared and in memory, and serves stale responses for a minute
/// while the origin cannot be reached. It answers 504 if it cannot serve a response.
@main
struct CacheProxy {
    static func main() async throws {
        let arguments = CommandLine.arguments
        guard arguments.count == 3, let port = Int(arguments[2]) else {
            FileHandle.standardError.write(Data("usage: CacheProxy ORIGIN PORT\n".utf8))
            exit(2)
        }
        var policy = HTTPCachePolicy(.shared)
        policy.staleIfUnreachable = .seconds(60)
        // The suite expects it.
        policy.storesSetCookie = true
        var configuration = HTTPClient.Configuration()
        configuration.redirectConfiguration = .disallow
        let cache = HTTPCache(
            store: try Store(at: nil, options: .init(capacity: 256 << 20)),
            transport: HTTPClient(configuration: configuration), policy: policy)
        let proxy = Proxy(origin: arguments[1], cache: cache)
        // Without a framework, which would add its own Date.
        let server = Server(
            childChannelSetup: HTTP1Channel { request, writer, _ in try await proxy.answer(request, writer) },
            configuration: .init(address: .hostname("127.0.0.1", port: port)),
            eventLoopGroup: MultiThreadedEventLoopGroup.singleton, logger: Logger(label: "proxy"))
        try await server.run()
    }
}

private struct Proxy: Sendable {
    let origin: String
    let cache: HTTPCache

    func answer(_ request: Request, _ writer: consuming ResponseWriter) async throws {
        var outgoing = HTTPClientRequest(url: origin + request.uri.string)
        // SwiftNIO's name of the method.
        outgoing.method = request.method.rawValue == "MSEARCH" ? .RAW(value: "M-SEARCH") : .init(request.method)
        for field in request.headers where field.name != .contentLength && !Self.ofTheConnection.contains(field.name) {
            outgoing.headers.add(name: field.name.rawName, value: field.value)
        }
        let body = try await request.body.collect(upTo: 16 << 20)
        if body.readableBytes > 0 { outgoing.body = .bytes(body) }
        guard let response = try? await cache.execute(outgoing, timeout: .seconds(30)) else {
            return try await writer.writeResponse(HTTPResponse(status: .gatewayTimeout))
        }
        var head = HTTPResponse(
            status: .init(code: Int(response.status.code), reasonPhrase: response.status.reasonPhrase))
        for (name, value) in response.headers {
            guard let name = HTTPField.Name(name), !Self.ofTheConnection.contains(name) else { continue }
            head.headerFields.append(HTTPField(name: name, value: value))
        }
        if request.method == .head || [.noContent, .notModified].contains(head.status) {
            return try await writer.writeResponse(head)
        }
        var parts = try await writer.writeHead(head)
        do {
            for try await part in response.body { try await parts.write(part) }
        } catch {
            // Closes the connection. To the origin's parser error the server would answer 400, within this body.
            throw BodyError(cause: error)
        }
        try await parts.finish(nil)
    }

    private struct BodyError: Error {
        let cause: any Error
    }

    /// Fields that the server and the client set themselves.
    private static let ofTheConnection: [HTTPField.Name] = [
        .connection, .transferEncoding, .upgrade, .init("Keep-Alive")!,
    ]
}

extension HTTPMethod {
    fileprivate init(_ method: HTTPRequest.Method) { self.init(rawValue: method.rawValue) }
}
