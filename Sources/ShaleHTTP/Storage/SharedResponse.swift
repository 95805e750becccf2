#if HTTP
import AsyncHTTPClient
import NIOCore
import Synchronization

/// A response that is stored while it arrives, and read meanwhile by its callers, each at its own pace. The body is
/// received as far as the reader that is furthest asks for, and one chunk ahead. It is discarded if it breaks off, or if
/// all readers leave before its end, unless it is short.
///
/// A body that cannot be stored, because it is longer than the limit or than announced, is passed on. It is then
/// received at the pace of the slowest reader. One that reads nothing for some time while others wait gets an error.
final class SharedResponse: Sendable {
    enum Outcome {
        case stored(StoredRecord.Body)
        /// The body cannot be stored.
        case unstorable
        /// It broke off, or all readers left.
        case broken
    }

    private struct State {
        /// The bytes received since `pendingStart`, the end of the last chunk. Readers copy them, so that the buffer
        /// has one owner and grows in place.
        var pending = ByteBuffer()
        var pendingStart = 0
        var chunks = 0
        var size = 0
        /// How far each has read.
        var readers: [Int: Int] = [:]
        var nextReader = 0
        /// Those that held up others.
        var stalled: Set<Int> = []
        var waiting: [Int: CheckedContinuation<Void, Never>] = [:]
        /// Continues receiving.
        var receiver: CheckedContinuation<Void, Never>?
        var task: Task<Void, Never>?
        var unreadUntil: NIODeadline?
        /// Cancels `task` then.
        var timer: Task<Void, Never>?
        var isStorable = true
        var hasOutcome = false
        var end: Result<Void, any Error>?

        var furthest: Int { readers.values.max() ?? 0 }
        var slowest: Int { readers.values.min() ?? size }
        var wantsMore: Bool {
            isStorable ? size - furthest <= ResponseStore.chunkSize : slowest == size
        }

        mutating func takeWaiting() -> [CheckedContinuation<Void, Never>] {
            defer { waiting = [:] }
            return Array(waiting.values)
        }

        mutating func takeReceiver() -> CheckedContinuation<Void, Never>? {
            defer { receiver = nil }
            return receiver
        }
    }

    let head: StoredResponse
    /// Its key in the store.
    let place: String
    private let state = Mutex(State())
    private let id = UInt64.random(in: 1 ... .max)
    private let responses: ResponseStore
    private let limit: Int
    /// From Content-Length.
    private let expected: Int?
    private let patience: Duration
    private let flows: @Sendable (SharedResponse) -> Void
    private let ends: @Sendable (Outcome) -> Void

    /// - Parameters:
    ///   - limit: In bytes. A longer body is not stored.
    ///   - patience: How long a reader can hold up others if the body is not stored.
    ///   - flows: Called at most once, when the body is too long to wait for its end.
    ///   - ends: Called once, when the body is stored or certain not to be.
    init(
        _ head: StoredResponse, _ place: String, _ responses: ResponseStore, limit: Int, expected: Int?,
        patience: Duration, flows: @escaping @Sendable (SharedResponse) -> Void,
        ends: @escaping @Sendable (Outcome) -> Void
    ) {
        self.head = head
        self.place = place
        self.responses = responses
        self.limit = limit
        self.expected = expected
        self.patience = patience
        self.flows = flows
        self.ends = ends
    }

    /// Starts to receive the body, in a task of its own: a reader that is cancelled does not break it off for others.
    /// Returns the first reader.
    /// - Parameter deadline: Until when it is also received without readers. Nil: it is not.
    func receive(_ body: HTTPClientResponse.Body, unreadUntil deadline: NIODeadline?) -> SharedBody {
        state.withLock { $0.unreadUntil = deadline }
        let first = reader()!
        let task = Task {
            do {
                for try await part in body {
                    add(part)
                    await demand()
                }
                // A cancelled body can end early without an error.
                if Task.isCancelled { throw CancellationError() }
                finish()
            } catch { fail(error) }
        }
        state.withLock { $0.task = task }
        return first
    }

    /// Nil if the beginning of the body is lost.
    func reader() -> SharedBody? {
        let id: Int? = state.withLock { state in
            if case .failure = state.end { return nil }
            if !state.isStorable { return nil }
            defer { state.nextReader += 1 }
            state.readers[state.nextReader] = 0
            return state.nextReader
        }
        return id.map { SharedBody(response: self, id: $0) }
    }

    // MARK: Receiving

    private func add(_ part: ByteBuffer) {
        var isFlowing = false, isLost = false
        let waiting = state.withLock { state in
            let wasStorable = state.isStorable
            if !wasStorable {
                // All readers have read it.
                state.pendingStart = state.size
                state.pending.clear()
            }
            state.size += part.readableBytes
            if state.size > min(limit, expected ?? .max) { state.isStorable = false }
            state.pending.writeImmutableBuffer(part)
            while state.isStorable, state.pending.readableBytes > ResponseStore.chunkSize {
                state.isStorable = storeChunk(&state)
                isFlowing = isFlowing || state.chunks == 1
            }
            isLost = wasStorable && !state.isStorable
            return state.takeWaiting()
        }
        if isLost { resolve(.unstorable) } else if isFlowing { flows(self) }
        waiting.forEach { $0.resume() }
    }

    /// The first chunk of the pending bytes.
    private func storeChunk(_ state: inout State) -> Bool {
        let length = min(state.pending.readableBytes, ResponseStore.chunkSize)
        guard
            responses.storeChunk(
                state.pending.getSlice(at: state.pending.readerIndex, length: length)!, id, state.chunks)
        else { return false }
        state.chunks += 1
        state.pendingStart += length
        state.pending.moveReaderIndex(forwardBy: length)
        state.pending.discardReadBytes()
        return true
    }

    /// Returns when a reader wants more, or when the task is cancelled.
    private func demand() async {
        let holdsUp = state.withLock { !$0.isStorable && $0.readers.count > 1 && !$0.wantsMore }
        let timer = holdsUp ? Task { try await dropStalled() } : nil
        defer { timer?.cancel() }
        await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                let goesOn = state.withLock { state in
                    if state.wantsMore || Task.isCancelled { return true }
                    state.receiver = continuation
                    return false
                }
                if goesOn { continuation.resume() }
            }
        } onCancel: {
            state.withLock { $0.takeReceiver() }?.resume()
        }
    }

    private func dropStalled() async throws {
        while true {
            let before = state.withLock { $0.readers }
            try await Task.sleep(for: patience)
            let receiver = state.withLock { state in
                if state.furthest < state.size { return nil as CheckedContinuation<Void, Never>? }
                for (reader, offset) in before where offset < state.size && state.readers[reader] == offset {
                    state.readers[reader] = nil
                    state.stalled.insert(reader)
                }
                return state.wantsMore ? state.takeReceiver() : nil
            }
            receiver?.resume()
            removeUnneeded()
        }
    }

    private func finish() {
        let body: StoredRecord.Body? = state.withLock { state in
            guard state.isStorable, (expected ?? state.size) == state.size else { return nil }
            if state.chunks == 0 { return .inline(state.pending) }
            return responses.storeChunk(state.pending, id, state.chunks)
                ? .chunks(id: id, count: state.chunks + 1) : nil
        }
        // The response is stored before a reader reaches the end. A body shorter than announced is whole: the next
        // would be no different.
        resolve(body.map(Outcome.stored) ?? .unstorable)
        end(.success(()))
    }

    private func fail(_ error: any Error) {
        resolve(.broken)
        end(.failure(error))
    }

    private func end(_ result: Result<Void, any Error>) {
        let (waiting, timer) = state.withLock { state in
            state.end = result
            state.task = nil
            return (state.takeWaiting(), state.timer)
        }
        timer?.cancel()
        waiting.forEach { $0.resume() }
        removeUnneeded()
    }

    private func resolve(_ outcome: Outcome) {
        let isFirst = state.withLock { state in
            if case .stored = outcome {} else { state.isStorable = false }
            defer { state.hasOutcome = true }
            return !state.hasOutcome
        }
        if isFirst { ends(outcome) }
        removeUnneeded()
    }

    /// Removes the chunks of a body that is not stored, once no reader needs them.
    private func removeUnneeded() {
        let chunks = state.withLock { state in
            if state.isStorable || !state.hasOutcome || state.slowest < state.pendingStart { return 0 }
            defer { state.chunks = 0 }
            return state.chunks
        }
        if chunks > 0 { responses.removeChunks(id, chunks) }
    }

    // MARK: Reading

    fileprivate enum Step {
        case bytes(ByteBuffer)
        case stored(chunk: Int, from: Int)
        case end
        case failed(any Error)
        case wait
    }

    fileprivate func step(_ reader: Int) -> Step {
        var receiver: CheckedContinuation<Void, Never>?
        let step: Step = state.withLock { state in
            guard let offset = state.readers[reader] else {
                return .failed(state.stalled.contains(reader) ? HTTPCacheError.bodyLost : CancellationError())
            }
            if offset < state.pendingStart {
                return .stored(chunk: offset / ResponseStore.chunkSize, from: offset % ResponseStore.chunkSize)
            }
            if offset < state.size {
                let start = offset - state.pendingStart
                let bytes = ByteBuffer(bytes: state.pending.readableBytesView.dropFirst(start))
                state.readers[reader] = state.size
                if state.wantsMore { receiver = state.takeReceiver() }
                return .bytes(bytes)
            }
            switch state.end {
            case .success: return .end
            case .failure(let error): return .failed(error)
            case nil: return .wait
            }
        }
        receiver?.resume()
        return step
    }

    fileprivate func next(_ reader: Int) async throws -> ByteBuffer? {
        while true {
            switch step(reader) {
            case .bytes(let bytes): return bytes
            case .end: return nil
            case .failed(let error): throw error
            case .stored(let index, let start):
                guard let chunk = try responses.chunk(id, index) else { throw HTTPCacheError.bodyLost }
                let length = chunk.readableBytes - start
                let receiver = state.withLock { state in
                    state.readers[reader]? += length
                    return state.wantsMore ? state.takeReceiver() : nil
                }
                receiver?.resume()
                removeUnneeded()
                return chunk.getSlice(at: chunk.readerIndex + start, length: length)
            case .wait:
                await wait(reader) { $0.end != nil || $0.readers[reader].map { [size = $0.size] in $0 < size } ?? true }
                if Task.isCancelled {
                    leave(reader)
                    throw CancellationError()
                }
            }
        }
    }

    /// Returns at the next change, or when the task is cancelled.
    private func wait(_ reader: Int, unless isReady: @escaping @Sendable (State) -> Bool) async {
        await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                let goesOn = state.withLock { state in
                    if Task.isCancelled || isReady(state) { return true }
                    state.waiting[reader] = continuation
                    return false
                }
                if goesOn { continuation.resume() }
            }
        } onCancel: {
            state.withLock { $0.waiting.removeValue(forKey: reader) }?.resume()
        }
    }

    fileprivate func leave(_ reader: Int) {
        let (receiver, task, deadline) = state.withLock { state in
            let none = (nil as CheckedContinuation<Void, Never>?, nil as Task<Void, Never>?, nil as NIODeadline?)
            guard state.readers.removeValue(forKey: reader) != nil else { return none }
            guard state.readers.isEmpty, state.end == nil else {
                return (state.wantsMore ? state.takeReceiver() : nil, nil, nil)
            }
            if state.isStorable, let deadline = state.unreadUntil { return (nil, state.task, deadline) }
            // Others may come before the task is cancelled.
            state.isStorable = false
            return (nil, state.task, nil)
        }
        receiver?.resume()
        guard let task else { return removeUnneeded() }
        guard let deadline else {
            task.cancel()
            return resolve(.broken)
        }
        let timer = Task {
            try? await Task.sleep(for: .nanoseconds((deadline - .now()).nanoseconds))
            task.cancel()
        }
        let hasEnded = state.withLock { state in
            state.timer = timer
            return state.end != nil
        }
        if hasEnded { timer.cancel() }
    }
}

/// The body of a shared response, for one reader, which leaves when this object is released.
final class SharedBody: AsyncSequence, Sendable {
    typealias Element = ByteBuffer

    private let response: SharedResponse
    private let id: Int

    fileprivate init(response: SharedResponse, id: Int) {
        self.response = response
        self.id = id
    }

    deinit { response.leave(id) }

    func makeAsyncIterator() -> Iterator { Iterator(body: self) }

    struct Iterator: AsyncIteratorProtocol {
        let body: SharedBody

        mutating func next() async throws -> ByteBuffer? { try await body.response.next(body.id) }
    }
}
#endif
