import Foundation
import Synchronization
import ShaleAdapters

/// Support for the tests of Beagle's types.
enum BeagleSupport {
    /// A directory that goes with its last reference.
    final class TemporaryDirectory: Sendable {
        let url = FileManager.default.temporaryDirectory.appendingPathComponent("shale-beagle-\(UUID().uuidString)")
        deinit { try? FileManager.default.removeItem(at: url) }
    }

    /// A clock that moves when told to.
    final class TestClock: Sendable {
        private let seconds = Mutex<Double>(1_800_000_000)
        func advance(seconds by: Double) { seconds.withLock { $0 += by } }
        var date: Date { Date(timeIntervalSince1970: seconds.withLock { $0 }) }
        var now: @Sendable () -> Date { { self.date } }
    }

    /// The recorded values, in order.
    final class Record<Element: Sendable>: Sendable {
        private let elements = Mutex<[Element]>([])
        func add(_ element: Element) { elements.withLock { $0.append(element) } }
        var all: [Element] { elements.withLock { $0 } }
    }

    /// Opens once, for one waiting task.
    struct Gate: Sendable {
        private let opening = AsyncStream.makeStream(of: Void.self)
        func open() { opening.continuation.finish() }
        /// Throws in a cancelled task.
        func wait() async throws {
            for await _ in opening.stream {}
            try Task.checkCancellation()
        }
    }

    /// A network whose responses come from a function, each in a task that its token cancels.
    final class Network: NetworkClientProtocol {
        struct Token: RequestToken {
            let task: Task<Void, Never>
            func cancel() { task.cancel() }
        }
        private let record = Record<ViewRequest>()
        private let answer: @Sendable (ViewRequest) async throws -> NetworkResponse
        init(_ answer: @escaping @Sendable (ViewRequest) async throws -> NetworkResponse) { self.answer = answer }

        /// The requests that have begun.
        var requests: [ViewRequest] { record.all }

        func executeRequest(
            _ request: ViewRequest, completion: @escaping @Sendable (Result<NetworkResponse, NetworkError>) -> Void
        ) -> (any RequestToken)? {
            record.add(request)
            return Token(
                task: Task {
                    do { completion(.success(try await self.answer(request))) } catch {
                        completion(.failure(NetworkError(error: error, request: request)))
                    }
                })
        }
    }

    /// SplitMix64: the same numbers for the same seed.
    struct Random: RandomNumberGenerator {
        var state: UInt64
        mutating func next() -> UInt64 {
            state &+= 0x9E37_79B9_7F4A_7C15
            var z = state
            z = (z ^ z >> 30) &* 0xBF58_476D_1CE4_E5B9
            z = (z ^ z >> 27) &* 0x94D0_49BB_1331_11EB
            return z ^ z >> 31
        }
    }
}
