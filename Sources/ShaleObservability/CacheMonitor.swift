#if Observability
import Logging
import Metrics
import Shale

/// Reports a cache's statistics through swift-metrics and its failures through swift-log.
///
/// ```swift
/// let monitor = CacheMonitor(articles, name: "articles")
/// try await withThrowingDiscardingTaskGroup { group in
///     group.addTask { await monitor.run() }
///     …
/// }
/// ```
///
/// Every metric has the dimension `cache`. Counters and the timer cover this cache object: `shale_hits` (with
/// `source`), `shale_misses`, `shale_loads`, `shale_failed_loads`, `shale_unstored`, `shale_conflicts`,
/// `shale_failed_writes`, `shale_undecodable`; `shale_load`. Gauges cover its whole store, across all processes:
/// `shale_store_entries`, `shale_store_bytes`.
public final class CacheMonitor<Key: Hashable & Codable & Sendable, Value: Codable & Sendable>: Sendable {
    private let cache: Cache<Key, Value>
    private let logger: Logger
    private let metrics: Instruments
    private let reported: Reported

    /// - Parameters:
    ///   - cache: The monitor keeps it open.
    ///   - name: The value of the dimension `cache` and of the logger's metadata `cache`.
    ///   - logger: Gets failed loads and undecodable values as warnings, failed writes as errors, conflicts at the
    ///     level `debug`.
    ///   - factory: Receives the metrics.
    public init(
        _ cache: Cache<Key, Value>, name: String, logger: Logger = Logger(label: "shale"),
        factory: any MetricsFactory = MetricsSystem.factory
    ) {
        self.cache = cache
        var logger = logger
        logger[metadataKey: "cache"] = .string(name)
        self.logger = logger
        metrics = Instruments(name: name, factory: factory)
        reported = Reported(cache.statistics)
    }

    /// Reports until its task is cancelled: loads and failures as they happen, counters and gauges at each interval and
    /// at the end.
    public func run(every interval: Duration = .seconds(10)) async {
        let events = cache.events
        await withTaskGroup { group in
            group.addTask { for await event in events { self.log(event) } }
            group.addTask {
                while (try? await Task.sleep(for: interval)) != nil { self.report() }
            }
        }
        report()
    }

    /// Adds the counts since the last report, or since the monitor was created.
    public func report() {
        let (before, now) = reported.replace(with: cache.statistics)
        metrics.memoryHits.increment(by: now.memoryHits - before.memoryHits)
        metrics.storeHits.increment(by: now.storeHits - before.storeHits)
        metrics.misses.increment(by: now.misses - before.misses)
        metrics.loads.increment(by: now.loads - before.loads)
        metrics.failedLoads.increment(by: now.failedLoads - before.failedLoads)
        metrics.unstored.increment(by: now.unstored - before.unstored)
        metrics.conflicts.increment(by: now.conflicts - before.conflicts)
        metrics.failedWrites.increment(by: now.failedWrites - before.failedWrites)
        metrics.undecodable.increment(by: now.undecodable - before.undecodable)
        do {
            let store = try cache.store.statistics()
            metrics.entries.record(Double(store.entries))
            metrics.bytes.record(Double(store.dataBytes))
        } catch { logger.warning("the store's statistics cannot be read: \(error)") }
    }

    private func log(_ event: Cache<Key, Value>.Event) {
        switch event {
        case .loadEnded(let key, let time, let error):
            metrics.load.recordNanoseconds(Int64(clamping: Int128((time / .nanoseconds(1)).rounded())))
            if let error, !(error is CancellationError) {
                logger.warning("a load failed: \(error)", metadata: ["key": "\(key)"])
            }
        case .undecodable(let key):
            logger.warning("removed a stored value that does not decode", metadata: ["key": "\(key)"])
        case .writeFailed(let key, let error):
            logger.error("a write failed: \(error)", metadata: ["key": "\(key)"])
        case .conflict(let key):
            logger.debug("did not store a loaded value: its key changed in the meantime", metadata: ["key": "\(key)"])
        case .waiting(let sentence): logger.warning("\(sentence)")
        case .hit, .miss, .loadBegan: break
        }
    }
}
#endif
