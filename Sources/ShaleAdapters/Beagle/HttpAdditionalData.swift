#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Method, headers and body of a request.
public struct HttpAdditionalData: Hashable, Codable, Sendable {
    public enum Method: String, Codable, Sendable {
        case get = "GET", post = "POST", put = "PUT", delete = "DELETE", head = "HEAD", patch = "PATCH"
    }

    public var method: Method
    public var headers: [String: String]
    public var body: Data?

    public init(method: Method = .get, headers: [String: String] = [:], body: Data? = nil) {
        self.method = method
        self.headers = headers
        self.body = body
    }
}
