import ArgumentParser
import Glibc
import ShaleCore

extension Statistics {
    var found: UInt64 { hits + staleHits }
    var reads: UInt64 { found + misses }
    var diskBytes: UInt64 { dataBytes + indexBytes }
}

extension AgeArgument {
    /// Validates the time between two samples of the counters.
    func checkInterval() throws {
        guard let duration, duration >= .milliseconds(10) else {
            throw ValidationError("--interval must be at least 10ms")
        }
    }
}

/// The change between two samples of the counters.
struct Change {
    let last, now: Statistics
    let seconds: Double

    init(from last: Statistics, to now: Statistics, in time: Duration) {
        self.last = last
        self.now = now
        seconds = time / .seconds(1)
    }

    func rise(_ of: (Statistics) -> UInt64) -> UInt64 { of(now) >= of(last) ? of(now) - of(last) : of(now) }
    func rate(_ of: (Statistics) -> UInt64) -> Double { Double(rise(of)) / seconds }
}

/// Samples the counters in intervals, until the body returns false.
func watch(
    _ path: CachePath, every interval: AgeArgument,
    _ body: (_ last: Statistics, _ now: Statistics, _ time: Duration) throws -> Bool
) throws {
    guard let pause = interval.duration else { return }
    let clock = ContinuousClock()
    var store = try path.openToRead()
    var last = try store.statistics(), lastTime = clock.now
    while true {
        usleep(UInt32(clamping: Int64(pause / .microseconds(1))))
        let now = clock.now
        let current: Statistics
        do { current = try store.statistics() } catch {
            if error.code != .busy { throw error }
            // A writer has rebuilt the index, which resets the counters.
            store = try path.openToRead()
            last = try store.statistics()
            continue
        }
        if !(try body(last, current, now - lastTime)) { return }
        (last, lastTime) = (current, now)
    }
}
