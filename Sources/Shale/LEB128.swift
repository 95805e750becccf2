/// LEB128: seven bits in each byte, the lowest first.
extension [UInt8] {
    mutating func append(leb128 number: UInt64) {
        var rest = number
        while rest >= 0x80 {
            append(UInt8(truncatingIfNeeded: rest) | 0x80)
            rest >>= 7
        }
        append(UInt8(rest))
    }
}

extension ArraySlice<UInt8> {
    /// Nil if the bytes end early or the number exceeds 64 bits.
    mutating func popLEB128() -> UInt64? {
        var number: UInt64 = 0
        for shift in stride(from: 0, to: 64, by: 7) {
            guard let byte = popFirst(), shift < 63 || byte < 2 else { return nil }
            number |= UInt64(byte & 0x7F) << UInt64(shift)
            if byte < 0x80 { return number }
        }
        return nil
    }

    mutating func popText(_ length: UInt64) -> String? {
        guard length <= count else { return nil }
        defer { removeFirst(Int(length)) }
        return String(validating: prefix(Int(length)), as: UTF8.self)
    }
}
