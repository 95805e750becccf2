import Foundation
import Logging
import MetricsTestKit
import Shale
import ShaleObservability
import Synchronization
import Testing

@Suite("CacheMonitor", .timeLimit(.minutes(30)))
struct MonitorTests {
    struct Offline: Error {}

    /// Records log messages.
    struct Log: LogHandler {
        final class Lines: Sendable {
            private let lines = Mutex<[String]>([])
            var all: [String] { lines.withLock { $0 } }
            func add(_ line: String) { lines.withLock { $0.append(line) } }
        }
        let lines: Lines
        var metadata: Logger.Metadata = [:]
        var logLevel = Logger.Level.trace
        subscript(metadataKey key: String) -> Logger.Metadata.Value? {
            get { metadata[key] }
            set { metadata[key] = newValue }
        }
        func log(event: LogEvent) {
            let all = metadata.merging(event.metadata ?? [:]) { $1 }
            lines.add("\(event.level) \(all["cache"] ?? "") \(all["key"] ?? ""): \(event.message)")
        }
    }

    private let metrics = TestMetrics(), lines = Log.Lines()

    private func monitor(_ cache: Cache<String, Int>) -> CacheMonitor<String, Int> {
        CacheMonitor(
            cache, name: "c", logger: Logger(label: "test") { [lines] _ in Log(lines: lines) }, factory: metrics)
    }

    private func counted(_ label: String, _ more: (String, String)...) throws -> Int64 {
        try metrics.expectCounter("shale_\(label)", [("cache", "c")] + more).totalValue
    }

    @Test("counters report each event since the monitor was created once; gauges report the store's numbers")
    func numbers() async throws {
        let cache = try Cache<String, Int>.inMemory(capacity: 1 << 20)
        cache["before"] = 1
        _ = cache["before"]
        let monitor = monitor(cache)
        for _ in 0..<3 { _ = cache["before"] }
        _ = cache["none"]
        _ = try await cache.value(for: "loaded") { 1 }
        for _ in 0..<2 {
            monitor.report()
            #expect(try counted("hits", ("source", "memory")) == 3)
            #expect(try counted("hits", ("source", "store")) == 0)
            #expect(try counted("misses") == 2)
            #expect(try counted("loads") == 1)
            #expect(try counted("failed_loads") == 0)
        }
        _ = cache["before"]
        monitor.report()
        #expect(try counted("hits", ("source", "memory")) == 4)
        #expect(try metrics.expectGauge("shale_store_entries", [("cache", "c")]).lastValue == 2)
        #expect(try metrics.expectGauge("shale_store_bytes", [("cache", "c")]).lastValue ?? 0 > 0)
    }

    @Test("loads are timed and failures logged while it runs; the last counts are reported at its end")
    func running() async throws {
        let coder = Coder<Int>(
            encode: { number in
                if number == 13 { throw Offline() }
                return Data("\(number)".utf8)
            }, decode: { _ in throw Offline() })
        let cache = try Cache<String, Int>.inMemory(capacity: 1 << 20, memoryEntries: 0, coder: coder)
        let running = Task { await monitor(cache).run(every: .seconds(3600)) }
        // Waits until the monitor receives events: the timer then has a value.
        while (try? metrics.expectTimer("shale_load", [("cache", "c")]).values.isEmpty) != false {
            await #expect(throws: Offline.self) { try await cache.value(for: "failing") { throw Offline() } }
            await Task.yield()
        }
        cache["lost"] = 13
        cache["bad"] = 1
        _ = cache["bad"]
        _ = try await cache.value(for: "changed") {
            try cache.insert(2, for: "changed")
            return 3
        }
        while !lines.all.contains(where: { $0.hasPrefix("debug c changed") }) { await Task.yield() }
        running.cancel()
        await running.value
        for start in [
            "warning c failing: a load failed: Offline()", "error c lost:", "warning c bad:", "debug c changed:",
        ] {
            #expect(lines.all.contains { $0.hasPrefix(start) }, "\(start): \(lines.all)")
        }
        #expect(try counted("failed_writes") == 1)
        #expect(try counted("undecodable") == 1)
        #expect(try counted("conflicts") == 1)
        #expect(try counted("failed_loads") >= 1)
    }
}
