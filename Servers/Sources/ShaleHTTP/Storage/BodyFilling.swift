import AsyncHTTPClient
import NIOCore
import Synchronization

/// A body on its way from its server to the caller, which is stored as it passes, a chunk at a time. It becomes a stored response when
/// it has come whole; if it breaks off, or nobody reads it to its end, nothing of it stays.
final class BodyFilling: Sendable {
    private struct State {
        var pending = ByteBuffer()
        var size = 0
        var chunks = 0
        var isOver = false
    }

    private let state = Mutex(State())
    private let id = UInt64.random(in: 1 ... .max)
    private let responses: ResponseStore
    private let limit: Int
    /// What Content-Length says.
    private let expected: Int?
    private let end: @Sendable (StoredRecord.Body?) -> Void

    /// - Parameters:
    ///   - limit: Bytes. A longer body is not stored.
    ///   - end: Called once: with what is stored, or nil.
    init(
        _ responses: ResponseStore, limit: Int, expected: Int?, end: @escaping @Sendable (StoredRecord.Body?) -> Void
    ) {
        self.responses = responses
        self.limit = limit
        self.expected = expected
        self.end = end
    }

    deinit { abandon() }

    /// A task reads a body, one part after the other.
    func add(_ part: ByteBuffer) {
        let isLost = state.withLock { state in
            if state.isOver { return false }
            state.size += part.readableBytes
            if state.size > limit { return true }
            state.pending.writeImmutableBuffer(part)
            while state.pending.readableBytes > ResponseStore.chunkSize {
                let chunk = state.pending.readSlice(length: ResponseStore.chunkSize)!
                guard responses.storeChunk(chunk, id, state.chunks) else { return true }
                state.chunks += 1
            }
            state.pending.discardReadBytes()
            return false
        }
        if isLost { abandon() }
    }

    func finish() {
        let body: StoredRecord.Body? = state.withLock { state in
            if state.isOver || (expected ?? state.size) != state.size { return nil }
            if state.chunks == 0 {
                state.isOver = true
                return .inline(state.pending)
            }
            guard responses.storeChunk(state.pending, id, state.chunks) else { return nil }
            state.isOver = true
            return .chunks(id: id, count: state.chunks + 1)
        }
        if let body { end(body) } else { abandon() }
    }

    func abandon() {
        let chunks: Int? = state.withLock { state in
            if state.isOver { return nil }
            state.isOver = true
            state.pending = ByteBuffer()
            return state.chunks
        }
        guard let chunks else { return }
        responses.removeChunks(id, chunks)
        end(nil)
    }

    /// The same body, for the caller.
    func passing(_ body: HTTPClientResponse.Body) -> HTTPClientResponse.Body {
        .stream(Passing(body: body, filling: self))
    }

    private struct Passing: AsyncSequence, Sendable {
        let body: HTTPClientResponse.Body
        let filling: BodyFilling

        func makeAsyncIterator() -> Iterator { Iterator(parts: body.makeAsyncIterator(), filling: filling) }

        struct Iterator: AsyncIteratorProtocol {
            var parts: HTTPClientResponse.Body.AsyncIterator
            let filling: BodyFilling

            mutating func next() async throws -> ByteBuffer? {
                do {
                    if let part = try await parts.next() {
                        filling.add(part)
                        return part
                    }
                } catch {
                    filling.abandon()
                    throw error
                }
                // A body can end early without an error where its reader is cancelled.
                if Task.isCancelled { filling.abandon() } else { filling.finish() }
                return nil
            }
        }
    }
}

/// A stored body that is read a chunk at a time.
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
