import Benchmark
import CountAllocations
import Shale

/// Counts the allocations of a hit in memory, for values that are classes and for values that fit into a register.
func measureAllocations() {
    measure("class", (0..<1000).map(Box.init)) { $0.number }
    measure("small", Array(0..<1000)) { $0 }
}

private final class Box: Codable, Sendable {
    let number: Int
    init(_ number: Int) { self.number = number }
}

private func measure<Value: Codable & Sendable>(_ kind: String, _ values: [Value], _ number: @escaping (Value) -> Int) {
    let keys = values.indices.map { "org.example.articles.\($0)" }
    measure("hit \(kind) Shale", keys, number) {
        let cache = try Cache<String, Value>.inMemory(memoryEntries: .max)
        for (key, value) in zip(keys, values) { try cache.insert(value, for: key) }
        return { try cache.value(for: $0) }
    }
    measure("hit \(kind) MemoryCache", keys, number) {
        let cache = MemoryCache<String, Value>(maximumEntryCount: .max)
        for (key, value) in zip(keys, values) { cache.insert(value, for: key) }
        return { cache.value(for: $0) }
    }
}

private func measure<Value>(
    _ name: String, _ keys: [String], _ number: @escaping (Value) -> Int,
    _ make: @escaping () throws -> (String) throws -> Value?
) {
    let allocations = BenchmarkMetric.custom("allocations")
    var get: ((String) throws -> Value?)?
    Benchmark(name, configuration: .init(metrics: [.throughput, .wallClock, allocations], warmupIterations: 3)) {
        benchmark in
        guard let get else { return }
        let before = count_allocations()
        for (position, key) in keys.enumerated() {
            guard try get(key).map(number) == position else { throw Wrong(key: key) }
        }
        benchmark.measurement(allocations, Int(count_allocations() - before))
    } setup: {
        get = try make()
    } teardown: {
        get = nil
    }
}
