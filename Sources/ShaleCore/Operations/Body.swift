import CShalePlatform

extension ShardReader {
    /// Copies or decompresses value and meta, and checks them. Returns false if they are damaged or recycled.
    @inline(__always)
    func readBody(_ record: RecordHeader, _ p: Memory, _ address: RecordAddress, into buffer: ValueBuffer)
        -> Bool
    {
        let size = record.rawLength
        let out = buffer.start
        let stored = p + record.storedOffset
        let expected = record.bodyCheck ^ address.mix(secret: secret)
        let metaLength = record.metaLength
        if metaLength > 0 { memcpy(out + size, p + record.metaOffset, metaLength) }
        let seed = metaLength == 0 ? secret : shim_hash(out + size, metaLength, secret)
        if record.codec == RecordHeader.Codec.raw {
            // (Checked before it is copied: checking a copy just written would wait for its stores.)
            guard record.storedLength == size, shim_hash_short(stored, size, seed) == expected else { return false }
            memcpy(out, stored, size)
            return true
        }
        guard shim_hash(stored, record.storedLength, seed) == expected else { return false }
        return decompress(record, stored, into: out, size)
    }

    @inline(__always)
    private func decompress(_ record: RecordHeader, _ stored: Memory, into out: Memory, _ size: Int) -> Bool {
        if record.codec == RecordHeader.Codec.lz4 {
            return Int(
                shim_lz4_decompress(
                    stored, out, Int32(truncatingIfNeeded: record.storedLength), Int32(truncatingIfNeeded: size)))
                == size
        }
        return engine.pointee.dictionaries.decompress(number: record.dictionary, stored, record.storedLength, out, size)
    }

    /// Copies and checks meta. One check covers it and the value. (Takes words, as `readLarge` does.)
    @inline(never)
    func readMeta(
        _ meta: Memory, _ metaLength: Int, _ stored: Memory, _ storedLength: Int, check: UInt64, into out: Memory
    ) -> Bool {
        memcpy(out, meta, metaLength)
        return bodyHash(meta: out, metaLength: metaLength, stored: stored, storedLength: storedLength, secret: secret)
            == check
    }
}
