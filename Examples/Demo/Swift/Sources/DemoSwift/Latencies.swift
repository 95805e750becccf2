import Glibc

/// The monotonic clock, in nanoseconds.
func nanoseconds() -> UInt64 {
    var now = timespec()
    clock_gettime(CLOCK_MONOTONIC, &now)
    return UInt64(now.tv_sec) * 1_000_000_000 + UInt64(now.tv_nsec)
}

/// Times of calls: all samples are kept, so that the percentiles are exact.
struct Latencies {
    private var samples: [UInt64] = []

    init(capacity: Int) {
        samples.reserveCapacity(capacity)
    }

    mutating func add(from start: UInt64, to end: UInt64) {
        samples.append(end - start)
    }

    /// The result line of a measured step.
    func summary() -> String {
        let ordered = samples.sorted()
        func percentile(_ share: Double) -> UInt64 {
            ordered.isEmpty ? 0 : ordered[min(Int(share * Double(ordered.count)), ordered.count - 1)]
        }
        return #"{"calls": \#(ordered.count), "total_ns": \#(ordered.reduce(0, +)), "#
            + #""p50_ns": \#(percentile(0.5)), "p99_ns": \#(percentile(0.99))}"#
    }
}
