import Foundation

/// SplitMix64: every random choice of a test comes from one printed seed.
public struct RandomSource: RandomNumberGenerator, Sendable {
    public let seed: UInt64
    private var state: UInt64

    public init(_ seed: UInt64) {
        self.seed = seed
        state = seed
    }

    public mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var z = state
        z = (z ^ (z >> 30)) &* 0xBF58_476D_1CE4_E5B9
        z = (z ^ (z >> 27)) &* 0x94D0_49BB_1331_11EB
        return z ^ (z >> 31)
    }

    /// 0 ..< bound
    public mutating func below(_ bound: Int) -> Int {
        Int(truncatingIfNeeded: next().multipliedFullWidth(by: UInt64(bound)).high)
    }

    public mutating func within(_ range: ClosedRange<Int>) -> Int {
        range.lowerBound + below(range.upperBound - range.lowerBound + 1)
    }

    /// True in `percent` of a hundred cases.
    public mutating func chance(_ percent: Int) -> Bool { below(100) < percent }

    /// Sizes as caches see them: as many between 20 and 40 as between 20,000 and 40,000.
    public mutating func logUniform(_ range: ClosedRange<Int>) -> Int {
        let low = Foundation.log(Double(range.lowerBound))
        let high = Foundation.log(Double(range.upperBound))
        let fraction = Double(next() >> 11) / Double(1 << 53)
        return min(range.upperBound, max(range.lowerBound, Int(Foundation.exp(low + (high - low) * fraction))))
    }

    public mutating func bytes(_ count: Int) -> [UInt8] {
        [UInt8](unsafeUninitializedCapacity: count) { buffer, initialized in
            var position = 0
            while position < count {
                var word = next()
                let step = min(8, count - position)
                withUnsafeBytes(of: &word) { source in
                    UnsafeMutableRawBufferPointer(rebasing: UnsafeMutableRawBufferPointer(buffer)[position...])
                        .copyMemory(from: UnsafeRawBufferPointer(rebasing: source[..<step]))
                }
                position += step
            }
            initialized = count
        }
    }
}

/// The seed of every randomised test: SHALE_MODEL_SEED, or a fixed one so that a failure in CI repeats elsewhere.
public let testSeed: UInt64 = ProcessInfo.processInfo.environment["SHALE_MODEL_SEED"].flatMap { UInt64($0) } ?? 1
