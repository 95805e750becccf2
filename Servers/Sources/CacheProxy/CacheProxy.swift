import AsyncHTTPClient
import Foundation
import HTTPTypes
import Hummingbird
import NIOCore
import NIOHTTP1
import ShaleCore
import ShaleHTTP

/// A reverse proxy that is nothing but `HTTPCache` between a server and a client, for tests:
///
///     CacheProxy http://127.0.0.1:8000 8080 [private]
///
/// It listens on the loopback interface. Its cache is in memory, and serves stale responses for a minute where the origin cannot be
/// reached.
@main
struct CacheProxy {
    static func main() async throws {
        let arguments = CommandLine.arguments
        guard arguments.count >= 3, let port = Int(arguments[2]) else {
            FileHandle.standardError.write(Data("usage: CacheProxy ORIGIN PORT [private]\n".utf8))
            exit(2)
        }
        let origin = arguments[1]
        var policy = HTTPCachePolicy(arguments.dropFirst(3).contains("private") ? .private : .shared)
        policy.staleIfUnreachable = .seconds(60)
        var configuration = HTTPClient.Configuration()
        configuration.redirectConfiguration = .disallow
        configuration.connectionPool.retryConnectionEstablishment = false
        let client = HTTPClient(configuration: configuration)
        let cache = HTTPCache(
            store: try Store(at: nil, options: .init(capacity: 256 << 20)), transport: client, policy: policy)
        let router = Router()
        router.addMiddleware { Forward(origin: origin, cache: cache) }
        let server = Application(
            router: router, configuration: .init(address: .hostname("127.0.0.1", port: port), serverName: nil))
        try await server.runService()
        try await client.shutdown()
    }
}

/// Answers each request with what the cache answers.
private struct Forward<Context: RequestContext>: RouterMiddleware {
    let origin: String
    let cache: HTTPCache

    func handle(_ request: Request, context: Context, next: (Request, Context) async throws -> Response) async throws
        -> Response
    {
        var outgoing = HTTPClientRequest(url: origin + request.uri.string)
        outgoing.method = .init(rawValue: request.method.rawValue)
        for field in request.headers where field.name != .contentLength && !connection.contains(field.name) {
            outgoing.headers.add(name: field.name.rawName, value: field.value)
        }
        let body = try await request.body.collect(upTo: 16 << 20)
        if body.readableBytes > 0 { outgoing.body = .bytes(body) }
        let response: HTTPClientResponse
        do { response = try await cache.execute(outgoing, timeout: .seconds(30)) } catch {
            return Response(status: .gatewayTimeout)
        }
        var headers = HTTPFields()
        for (name, value) in response.headers {
            guard let name = HTTPField.Name(name), !connection.contains(name) else { continue }
            headers.append(HTTPField(name: name, value: value))
        }
        let status = HTTPResponse.Status(
            code: Int(response.status.code), reasonPhrase: response.status.reasonPhrase)
        let length = response.headers.first(name: "Content-Length").flatMap { Int($0) }
        if request.method == .head || [204, 304].contains(status.code) {
            return Response(status: status, headers: headers)
        }
        return Response(
            status: status, headers: headers,
            body: ResponseBody(contentLength: length) { writer in
                for try await part in response.body { try await writer.write(part) }
                try await writer.finish(nil)
            })
    }

    /// Of one connection, which the server and the client make themselves.
    private var connection: [HTTPField.Name] {
        [.connection, .transferEncoding, .upgrade, .init("Keep-Alive")!]
    }
}
