import Benchmark
import Foundation

/// In a sample: so many that reading the clock costs nothing.
private let operations = 100

/// Gets of keys that are there, chosen at random. Each answer is checked, in the clock's time.
func measure<S: Subject>(
    gets values: String, _ name: String, entries: Int = 100_000, _ make: @escaping (TemporaryDirectory) throws -> S
) {
    measure("get \(values) \(name)", entries, make) { subject, number, key in
        guard try subject.value(for: key)?.number == number else { throw Wrong(key: key) }
    }
}

/// Sets of keys that are there, chosen at random, to values that were made before.
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
        let place = try TemporaryDirectory()
        // Longer than what a String holds without memory of its own, as keys are.
        keys = (0..<entries).map { "org.example.articles.\($0)" }
        let filled = try make(place)
        try filled.fill(keys)
        directory = place
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
