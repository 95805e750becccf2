import CShalePlatform

/// The stored form of a value.
struct Encoded {
    var codec: UInt8
    var dictionary: UInt16
    var bytes: UnsafeRawPointer
    var count: Int
}

/// LZ4 for each value by itself, kept only where it saves at least an eighth.
enum Compressor {
    /// Below this LZ4 finds nothing.
    private static let least = 48
    /// Larger values hardly gain from a dictionary.
    static let mostWithDictionary = 16 << 10

    /// The result may point to `value` or into the scratch's buffer.
    static func encode(_ engine: EngineRef, _ value: UnsafeRawPointer, _ count: Int, uncompressed: Bool, _ scratch: Scratch) -> Encoded {
        let raw = Encoded(codec: RecordHeader.Codec.raw, dictionary: 0, bytes: value, count: count)
        if uncompressed || count < least || engine.pointee.compression == .none { return raw }
        // The bound, not the limit, is LZ4's room: a stream that ran out of room is undefined afterwards.
        let limit = count - count / 8
        let usesDictionary = engine.pointee.compression == .dictionary && count <= mostWithDictionary && engine.pointee.geometry.dictionaryPlaces > 0
        if usesDictionary {
            let prepared = engine.pointee.dictionaries.current(engine)
            if let prepared {
                let n = Int(shim_lz4_compress_with(scratch.stream, prepared.stream, value, scratch.buffer, Int32(count), shim_lz4_bound(Int32(count))))
                engine.pointee.dictionaries.observe(engine, value, count, stored: min(n, count), scratch)
                return n > 0 && n <= limit ? Encoded(codec: RecordHeader.Codec.dictionary, dictionary: prepared.number, bytes: UnsafeRawPointer(scratch.buffer), count: n) : raw
            }
        }
        let n = Int(shim_lz4_compress(scratch.stream, value, scratch.buffer, Int32(count), shim_lz4_bound(Int32(count))))
        if usesDictionary { engine.pointee.dictionaries.observe(engine, value, count, stored: min(n, count), scratch) }
        return n > 0 && n <= limit ? Encoded(codec: RecordHeader.Codec.lz4, dictionary: 0, bytes: UnsafeRawPointer(scratch.buffer), count: n) : raw
    }
}
