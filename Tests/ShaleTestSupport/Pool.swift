/// Values for tests that store many megabytes: slices of a prepared block, so
/// that making one costs nothing and checking one is a comparison.
public final class Pool: Sendable {
    public let block: [UInt8]

    /// Bytes that no codec makes smaller.
    public static let random = Pool { source, size in source.bytes(size) }

    /// Words and digits: LZ4 makes roughly a half or a third of it.
    public static let text = Pool { source, size in
        let words = (0..<300).map { _ in
            (0..<source.within(3...9)).map { _ in UInt8(ascii: "a") + UInt8(source.below(26)) }
        }
        var text: [UInt8] = []
        text.reserveCapacity(size + 32)
        while text.count < size {
            if source.chance(15) {
                text += String(source.below(10_000)).utf8
            } else {
                text += words[source.below(words.count)]
            }
            text.append(UInt8(ascii: " "))
        }
        return Array(text.prefix(size))
    }

    private init(_ make: (inout RandomSource, Int) -> [UInt8]) {
        var source = RandomSource(0x5A1E)
        block = make(&source, 4 << 20)
    }

    /// Where a value with this identity starts. Two identities meet at the same
    /// place about once in four million pairs.
    private func start(_ identity: UInt64, _ size: Int) -> Int {
        var source = RandomSource(identity)
        return source.below(block.count - size + 1)
    }

    /// The value of `size` bytes that belongs to an identity; up to 4 MiB.
    public func withValue<R>(_ identity: UInt64, _ size: Int, _ body: (UnsafeRawBufferPointer) -> R) -> R {
        let start = start(identity, size)
        return block.withUnsafeBytes { body(UnsafeRawBufferPointer(rebasing: $0[start..<start + size])) }
    }

    public func value(_ identity: UInt64, _ size: Int) -> Blob {
        let start = start(identity, size)
        return Blob(copying: block[start..<start + size])
    }
}
