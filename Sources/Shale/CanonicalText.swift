// On Darwin, normalization comes from Foundation: the standard library's SPI is not available there.
#if canImport(FoundationEssentials)
@_spi(_Unicode) import Swift
#else
import Foundation
#endif

extension [UInt8] {
    /// See `append(canonical:)`.
    package init(canonical text: String) {
        self.init()
        append(canonical: text)
    }

    /// Appends UTF-8 in normalization form C, which `==` compares: equal strings have equal bytes.
    package mutating func append(canonical text: String) {
        let isASCII = text.utf8.withContiguousStorageIfAvailable { utf8 in
            guard utf8.allSatisfy({ $0 < 0x80 }) else { return false }
            append(contentsOf: utf8)
            return true
        }
        if isASCII == true { return }
        #if canImport(FoundationEssentials)
        for scalar in text._nfc { self += UTF8.encode(scalar).unsafelyUnwrapped }
        #else
        self += text.precomposedStringWithCanonicalMapping.utf8
        #endif
    }
}

extension String {
    /// The string in normalization form C.
    var canonical: String { String(decoding: [UInt8](canonical: self), as: UTF8.self) }
}
