import Benchmark
import Foundation

/// Operations per sample, so many that the cost of reading the clock is negligible.
private let operations = 100

/// Gets of present keys, chosen at random. The time includes the check of each result.
func measure<S: Subject>(
    gets values: String, _ name: String, entries: Int = 100_000, _ make: @escaping (TemporaryDirectory) throws -> S
) {
    measure("get \(values) \(name)", entries, make) { subject, number, key in
        guard try subject.value(for: key)?.number == number else { throw Wrong(key: key) }
    }
}

/// Sets of present keys, chosen at random, to values created in advance.
func measure<S: Subject>(
    sets values: String, _ name: String, entries: Int = 100_000, _ make: @escaping (TemporaryDirectory) throws -> S
) {
    let samples = (0..<1000).map(S.Value.init)
    measure("set \(values) \(name)", entries, make) { subject, number, key in
        try subject.set(samples[number % samples.count], for: key)
    }
}

private func measure<S: Subject>(
    _ name: String, _ entries: Int, _ make: @escaping (TemporaryDirectory) throws -> S,
    _ operation: @escaping (S, Int, String) throws -> Void
) {
    var random = SplitMix64(state: 1)
    var keys: [String] = []
    var directory: TemporaryDirectory?
    var subject: S?
    Benchmark(name) { _ in
        guard let subject else { return }
        for _ in 0..<operations {
            let number = Int(random.next() % UInt64(keys.count))
            try operation(subject, number, keys[number])
        }
    } setup: {
        let created = try TemporaryDirectory()
        // Too long for String's inline storage, like typical keys.
        keys = (0..<entries).map { "org.example.articles.\($0)" }
        let filled = try make(created)
        try filled.fill(keys)
        directory = created
        subject = filled
    } teardown: {
        subject = nil
        directory = nil
    }
}

struct Wrong: Error {
    let key: String
}

final class TemporaryDirectory {
    let path = FileManager.default.temporaryDirectory.appendingPathComponent("shale-benchmark-\(UUID().uuidString)")
        .path
    init() throws { try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true) }
    deinit { try? FileManager.default.removeItem(atPath: path) }
}

/// S. Steele, G. Lea, C. Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014.
struct SplitMix64: RandomNumberGenerator {
    var state: UInt64
    mutating func next() -> UInt64 {
        state &+= 0x9e37_79b9_7f4a_7c15
        var z = state
        z = (z ^ (z >> 30)) &* 0xbf58_476d_1ce4_e5b9
        z = (z ^ (z >> 27)) &* 0x94d0_49bb_1331_11eb
        return z ^ (z >> 31)
    }
}
