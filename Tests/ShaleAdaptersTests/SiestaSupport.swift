import Dispatch
import Foundation
import Shale
import ShaleAdapters
import Synchronization

/// Support for the tests of Siesta's types.
enum SiestaSupport {
    struct Story: Codable, Sendable, Equatable { var title: String }
    struct Offline: Error, Equatable {}

    /// A directory that goes with its last reference.
    final class Directory: Sendable {
        let url = FileManager.default.temporaryDirectory.appendingPathComponent("shale-siesta-\(UUID().uuidString)")
        deinit { try? FileManager.default.removeItem(at: url) }

        func open() throws -> Store { try Store(at: url.path, options: .init(capacity: 4 << 20)) }
    }

    /// A clock that the test advances, in seconds since the reference date.
    final class Clock: Sendable {
        private let time = Mutex<TimeInterval>(1000)
        var seconds: TimeInterval { time.withLock { $0 } }
        func advance(_ seconds: TimeInterval) { time.withLock { $0 += seconds } }
        var now: @Sendable () -> Date { { Date(timeIntervalSinceReferenceDate: self.seconds) } }
    }

    /// A cache in front of another one. Records calls, and blocks those of one method until the test releases them;
    /// reads block after reading.
    final class Watched<Key: Hashable & Codable & Sendable>: EntityCache {
        let cache: ShaleEntityCache<Key, Story>
        private let calls = Mutex<[String]>([])
        private let heldUp: String?
        private let isHeldUp = DispatchSemaphore(value: 0)
        private let mayGo = DispatchSemaphore(value: 0)

        init(_ cache: ShaleEntityCache<Key, Story>, holdingUp method: String? = nil) {
            self.cache = cache
            heldUp = method
        }

        /// The names of the called methods, in order.
        var called: [String] { calls.withLock { $0 } }
        func letGo() { mayGo.signal() }
        /// Returns when a call is blocked.
        func waitForCall() async {
            await withCheckedContinuation { continuation in
                DispatchQueue.global().async {
                    self.isHeldUp.wait()
                    continuation.resume()
                }
            }
        }

        private func note(_ function: String = #function) {
            let method = String(function.prefix { $0 != "(" })
            calls.withLock { $0.append(method) }
            guard method == heldUp else { return }
            isHeldUp.signal()
            mayGo.wait()
        }

        func key(for resource: Resource) -> Key? { cache.key(for: resource) }
        var workQueue: DispatchQueue { cache.workQueue }
        func readEntity(forKey key: Key) -> Resource.Entity<Story>? {
            let entity = cache.readEntity(forKey: key)
            note()
            return entity
        }
        func writeEntity(_ entity: Resource.Entity<Story>, forKey key: Key) {
            note()
            cache.writeEntity(entity, forKey: key)
        }
        func updateEntityTimestamp(_ timestamp: TimeInterval, forKey key: Key) {
            note()
            cache.updateEntityTimestamp(timestamp, forKey: key)
        }
        func removeEntity(forKey key: Key) {
            note()
            cache.removeEntity(forKey: key)
        }
    }

    /// An observer that records each event with the resource's title at that time.
    final class Recorder: Sendable {
        private let lines = Mutex<[String]>([])
        var events: [String] { lines.withLock { $0 } }

        func observe(_ resource: Resource) async {
            await resource.addObserver(owner: self) { [weak self] resource, event in
                let name = if case .newData(let source) = event { "newData(\(source))" } else { "\(event)" }
                self?.lines.withLock { $0.append("\(name) \(resource.latestData?.title ?? "-")") }
            }
        }
    }
}

extension Resource.Entity where ContentType == any Sendable {
    static func story(_ title: String, etag: String? = nil, timestamp: TimeInterval = 1000) -> Self {
        Self(
            content: SiestaSupport.Story(title: title), headers: etag.map { ["ETag": $0] } ?? [:], timestamp: timestamp)
    }
    var title: String? { (content as? SiestaSupport.Story)?.title }
}

extension Resource.Entity where ContentType == SiestaSupport.Story {
    static func story(_ title: String, etag: String? = nil, timestamp: TimeInterval = 1000) -> Self {
        Self(
            content: SiestaSupport.Story(title: title), headers: etag.map { ["ETag": $0] } ?? [:], timestamp: timestamp)
    }
}
