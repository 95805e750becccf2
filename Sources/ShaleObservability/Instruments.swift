#if Observability
import Metrics
import Shale
import Synchronization

/// A monitor's metrics.
struct Instruments: Sendable {
    let memoryHits, storeHits, misses, loads, failedLoads, unstored, conflicts, failedWrites, undecodable: Counter
    let entries, bytes: Gauge
    let load: Timer

    init(name: String, factory: any MetricsFactory) {
        let dimensions = [("cache", name)]
        func counter(_ label: String, _ more: (String, String)...) -> Counter {
            Counter(label: "shale_\(label)", dimensions: dimensions + more, factory: factory)
        }
        memoryHits = counter("hits", ("source", "memory"))
        storeHits = counter("hits", ("source", "store"))
        misses = counter("misses")
        loads = counter("loads")
        failedLoads = counter("failed_loads")
        unstored = counter("unstored")
        conflicts = counter("conflicts")
        failedWrites = counter("failed_writes")
        undecodable = counter("undecodable")
        entries = Gauge(label: "shale_store_entries", dimensions: dimensions, factory: factory)
        bytes = Gauge(label: "shale_store_bytes", dimensions: dimensions, factory: factory)
        load = Timer(label: "shale_load", dimensions: dimensions, preferredDisplayUnit: .milliseconds, factory: factory)
    }
}

/// The statistics at the last report.
final class Reported: Sendable {
    private let statistics: Mutex<CacheStatistics>

    init(_ statistics: CacheStatistics) { self.statistics = Mutex(statistics) }

    func replace(with now: CacheStatistics) -> (before: CacheStatistics, now: CacheStatistics) {
        statistics.withLock { last in
            defer { last = now }
            return (last, now)
        }
    }
}
#endif
