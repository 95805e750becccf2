import Benchmark
import Shale
import Synchronization

/// Tasks that ask for one missing key at once. The load ends when all tasks have begun; the count of loads must be 1.
func measureOneLoad(tasks: Int) {
    let loads = BenchmarkMetric.custom("loads")
    var directory: TemporaryDirectory?
    var cache: Cache<Int, Int>?
    var key = 0
    Benchmark("load once Shale", configuration: .init(metrics: [.throughput, .wallClock, loads], warmupIterations: 1)) {
        benchmark in
        guard let cache else { return }
        key += 1
        let began = Counter(), loaded = Counter()
        let sum = try await withThrowingTaskGroup(of: Int.self) { [key] group in
            for _ in 0..<tasks {
                group.addTask {
                    began.add()
                    return try await cache.value(for: key) {
                        loaded.add()
                        while began.count < tasks { await Task.yield() }
                        return key
                    }
                }
            }
            return try await group.reduce(0, +)
        }
        benchmark.measurement(loads, loaded.count)
        if loaded.count != 1 || sum != tasks * key { benchmark.error("\(loaded.count) loads for \(tasks) tasks") }
    } setup: {
        let created = try TemporaryDirectory()
        cache = try Cache(at: created.path)
        directory = created
    } teardown: {
        cache = nil
        directory = nil
    }
}

private final class Counter: Sendable {
    private let value = Atomic(0)
    var count: Int { value.load(ordering: .relaxed) }
    func add() { value.add(1, ordering: .relaxed) }
}
