#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif
import Shale

/// Encodes an entity without converting binary content to JSON:
///
///     entity = length of the head (4, little-endian), head (JSON), content
struct EntityCoder<Content: Sendable>: Sendable {
    let content: Coder<Content>

    private struct Head: Codable {
        let charset: String?
        let headers: [String: String]
        let timestamp: TimeInterval
    }

    func encode(_ entity: Resource.Entity<Content>) throws -> Data {
        let head = try JSONEncoder().encode(
            Head(charset: entity.charset, headers: entity.headers, timestamp: entity.timestamp))
        var bytes = withUnsafeBytes(of: UInt32(head.count).littleEndian) { Data($0) }
        bytes += head
        bytes += try content.encode(entity.content)
        return bytes
    }

    func decode(_ bytes: Data) throws -> Resource.Entity<Content> {
        let length = bytes.prefix(4).reversed().reduce(0) { $0 << 8 | Int($1) }
        let rest = bytes.dropFirst(4)
        let head = try JSONDecoder().decode(Head.self, from: Data(rest.prefix(length)))
        return Resource.Entity(
            content: try content.decode(Data(rest.dropFirst(length))), charset: head.charset, headers: head.headers,
            timestamp: head.timestamp)
    }
}
