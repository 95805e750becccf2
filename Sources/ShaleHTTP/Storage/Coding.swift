#if HTTP
import NIOCore
import NIOHTTP1

/// A response as stored: its head, and its body if that is short.
struct StoredRecord: Equatable {
    enum Body: Equatable {
        case inline(ByteBuffer)
        /// In chunks under separate keys.
        case chunks(id: UInt64, count: Int)
    }

    var response: StoredResponse
    var body: Body

    private static let version: UInt8 = 1

    var encoded: ByteBuffer {
        var buffer = ByteBuffer()
        buffer.writeInteger(Self.version)
        buffer.writeInteger(UInt16(clamping: response.status.code))
        buffer.writeText(response.status.reasonPhrase)
        buffer.writeInteger(response.requestedAt)
        buffer.writeInteger(response.receivedAt)
        buffer.writeInteger(UInt32(response.headers.count))
        for (name, value) in response.headers {
            buffer.writeText(name)
            buffer.writeText(value)
        }
        switch body {
        case .inline(let bytes):
            buffer.writeInteger(UInt64(0))
            buffer.writeImmutableBuffer(bytes)
        case .chunks(let id, let count):
            buffer.writeInteger(id)
            buffer.writeInteger(UInt32(count))
        }
        return buffer
    }

    init(_ response: StoredResponse, _ body: Body) {
        self.response = response
        self.body = body
    }

    /// Nil if the bytes are of another version or invalid.
    init?(_ buffer: ByteBuffer) {
        var buffer = buffer
        guard buffer.readInteger(as: UInt8.self) == Self.version, let code = buffer.readInteger(as: UInt16.self),
            let reason = buffer.readText(), let requestedAt = buffer.readInteger(as: Int64.self),
            let receivedAt = buffer.readInteger(as: Int64.self), let count = buffer.readInteger(as: UInt32.self)
        else { return nil }
        var fields: [(String, String)] = []
        for _ in 0..<count {
            guard let name = buffer.readText(), let value = buffer.readText() else { return nil }
            fields.append((name, value))
        }
        // Unlike `add`, this accepts any name.
        let headers = HTTPHeaders(fields)
        guard let id = buffer.readInteger(as: UInt64.self) else { return nil }
        if id == 0 {
            body = .inline(buffer.slice())
        } else {
            guard let count = buffer.readInteger(as: UInt32.self) else { return nil }
            body = .chunks(id: id, count: Int(count))
        }
        response = StoredResponse(
            status: HTTPResponseStatus(statusCode: Int(code), reasonPhrase: reason), headers: headers,
            requestedAt: requestedAt, receivedAt: receivedAt)
    }
}

extension Selector {
    var encoded: ByteBuffer {
        var buffer = ByteBuffer(integer: generation)
        for vary in varies { buffer.writeText(vary.names.joined(separator: ",")) }
        return buffer
    }

    init?(_ buffer: ByteBuffer) {
        var buffer = buffer, varies: [Vary] = []
        guard let generation = buffer.readInteger(as: UInt64.self) else { return nil }
        while buffer.readableBytes > 0 {
            guard let names = buffer.readText() else { return nil }
            varies.append(Vary(names: names.split(separator: ",").map(String.init)))
        }
        self.init(generation: generation, varies: varies)
    }
}

extension ByteBuffer {
    fileprivate mutating func writeText(_ text: String) {
        writeInteger(UInt32(text.utf8.count))
        writeString(text)
    }

    fileprivate mutating func readText() -> String? {
        readInteger(as: UInt32.self).flatMap { readString(length: Int($0)) }
    }
}
#endif
