import Foundation
import Synchronization
import Testing
@testable import Shale

/// Waits for a held lock: reported once, and bounded.
@Suite("Waits", .timeLimit(.minutes(30)))
struct WaitTests {
    /// Runs `body` while this thread, which the body treats as another one, holds the lock of the only shard.
    private func holdingLock(of directory: String, _ body: () throws -> Void) throws {
        let held = try HeldLock(of: directory)
        defer { held.release() }
        try body()
    }

    @Test("a call that has waited for lockTimeout fails with busy, names the holder, and has changed nothing")
    func busy() throws {
        let directory = TemporaryDirectory()
        var options = Store.Options(capacity: 4 << 20)
        for timeout in [Duration.milliseconds(30), .zero] {
            options.lockTimeout = timeout
            let store = try Store(at: directory.path, options: options)
            try store.insert("before", for: "key")
            try holdingLock(of: directory.path) {
                let error = #expect(throws: ShaleError.self) { try store.insert("after", for: "key") }
                #expect(error?.code == .busy)
                let said = try #require(error?.message)
                #expect(said.hasPrefix("\(directory.path)/shale.index: a call has waited "))
                #expect(
                    said.hasSuffix("another thread of this process holds; continue or end it, or raise lockTimeout"))
                #expect(try store.value(for: "key") == Array("before".utf8))
            }
            try store.insert("after", for: "key")
        }
        options.lockTimeout = .milliseconds(-1)
        let error = #expect(throws: ShaleError.self) { try Store(at: directory.path, options: options) }
        #expect(error?.code == .invalid && error?.message.contains("lockTimeout is negative") == true)
    }

    @Test("after a second the wait is reported, once")
    func reported() async throws {
        let directory = TemporaryDirectory()
        let sentences = Mutex<[String]>([])
        var options = Store.Options(capacity: 4 << 20)
        options.lockTimeout = .milliseconds(1001)
        options.onWait = { sentence in sentences.withLock { $0.append(sentence) } }
        let store = try Store(at: directory.path, options: options)
        var cache: Cache<String, Int>? = try Cache(in: store, named: "numbers")
        let events = try #require(cache?.events)
        try holdingLock(of: directory.path) {
            for _ in 0..<2 { #expect(throws: ShaleError.self) { try cache?.insert(1, for: "key") } }
        }
        cache = nil
        var seen: [String] = []
        for await event in events { if case .waiting(let sentence) = event { seen.append(sentence) } }
        #expect(seen.count == 1)
        #expect(sentences.withLock { $0 } == seen)
        #expect(seen.first?.hasPrefix("\(directory.path)/shale.index: a call has waited ") == true)
        #expect(seen.first?.hasSuffix("another thread of this process holds; continue or end it") == true)
    }

    @Test("without a lockTimeout, a wait ends after ten seconds")
    func byDefault() throws {
        let directory = TemporaryDirectory()
        let cache = try Cache<String, Int>(at: directory.path, capacity: 4 << 20)
        try holdingLock(of: directory.path) {
            let error = #expect(throws: ShaleError.self) { try cache.insert(1, for: "key") }
            #expect(error?.code == .busy)
        }
        #expect(Store.Options().lockTimeout == .seconds(10))
    }

    @Test("a cache passes lockTimeout to its store, and a cache in a store has none of its own")
    func ofCache() throws {
        let directory = TemporaryDirectory()
        let cache = try Cache<String, Int>(at: directory.path, capacity: 4 << 20, lockTimeout: .milliseconds(30))
        try holdingLock(of: directory.path) {
            let error = #expect(throws: ShaleError.self) { try cache.insert(1, for: "key") }
            #expect(error?.code == .busy)
        }
        var options = Cache<String, Int>.Options()
        options.lockTimeout = .seconds(1)
        #expect(throws: ShaleError.self) { try Cache<String, Int>(in: cache.store, named: "other", options: options) }
    }
}
