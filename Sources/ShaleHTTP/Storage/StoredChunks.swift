#if HTTP
import NIOCore

/// A stored body, read chunk by chunk.
struct StoredChunks: AsyncSequence, Sendable {
    let responses: ResponseStore
    let id: UInt64
    let count: Int

    func makeAsyncIterator() -> Iterator { Iterator(chunks: self) }

    struct Iterator: AsyncIteratorProtocol {
        let chunks: StoredChunks
        var index = 0

        mutating func next() async throws -> ByteBuffer? {
            guard index < chunks.count else { return nil }
            defer { index += 1 }
            guard let chunk = try chunks.responses.chunk(chunks.id, index) else { throw HTTPCacheError.bodyLost }
            return chunk
        }
    }
}
#endif
