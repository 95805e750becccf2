import CShalePlatform

public enum Compression: Int32, Sendable {
    case dictionary = 0, lz4 = 1, none = 2
    /// As `dictionary`, by a longer search: smaller, faster to read, several times slower to set.
    case dense = 3

    @inline(__always) var usesDictionaries: Bool { self == .dictionary || self == .dense }
}

/// The stored form of a value.
struct Encoded {
    var codec: UInt8
    var dictionary: UInt16
    var bytes: UnsafeRawPointer
    var count: Int
    /// Whether it is to be a sample for a new dictionary.
    var isSample = false

    @inline(__always) static func raw(_ bytes: UnsafeRawPointer, _ count: Int) -> Encoded {
        Encoded(codec: RecordHeader.Codec.raw, dictionary: 0, bytes: bytes, count: count)
    }
}

/// LZ4 for each value by itself, kept only where it saves at least an eighth.
enum Compressor {
    /// Below this LZ4 finds nothing.
    private static let least = 48
    /// Larger values hardly gain from a dictionary.
    static let mostWithDictionary = 16 << 10

    /// The result may point to `value` or into the scratch's buffer.
    static func encode(
        _ value: UnsafeRawPointer, _ count: Int, _ compression: Compression, _ dictionaries: DictionaryCache,
        _ scratch: Scratch
    ) -> Encoded {
        var raw = Encoded.raw(value, count)
        if count < least || compression == .none { return raw }
        // LZ4's room is the bound, not the limit: a stream that ran out of room is undefined afterwards.
        let limit = count - count / 8, bound = shim_lz4_bound(Int32(count))
        let usesDictionary =
            compression.usesDictionaries && count <= mostWithDictionary && dictionaries.frames.count > 0
        var codec = RecordHeader.Codec.lz4, number: UInt16 = 0, n = 0
        if usesDictionary, let prepared = dictionaries.current() {
            (codec, number) = (RecordHeader.Codec.dictionary, prepared.number)
            n = Int(
                shim_lz4_compress_with(
                    scratch.stream, scratch.isDense, prepared.stream, value, scratch.buffer, Int32(count), bound))
        } else {
            n = Int(shim_lz4_compress(scratch.stream, scratch.isDense, value, scratch.buffer, Int32(count), bound))
        }
        raw.isSample = usesDictionary && dictionaries.observe(count, stored: min(n, count))
        guard n > 0, n <= limit else { return raw }
        return Encoded(
            codec: codec, dictionary: number, bytes: UnsafeRawPointer(scratch.buffer), count: n, isSample: raw.isSample)
    }
}
