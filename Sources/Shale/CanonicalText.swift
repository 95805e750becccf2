// On Darwin, Foundation has what the standard library's own interface lacks.
#if canImport(FoundationEssentials)
@_spi(_Unicode) import Swift
#else
import Foundation
#endif

extension [UInt8] {
    /// Of a string, see `append(canonical:)`.
    package init(canonical text: String) {
        self.init()
        append(canonical: text)
    }

    /// Strings that are equal get equal bytes: UTF-8 in normalization form C, which is what `==` compares.
    package mutating func append(canonical text: String) {
        if text.utf8.allSatisfy({ $0 < 0x80 }) {
            self += text.utf8
            return
        }
        #if canImport(FoundationEssentials)
        for scalar in text._nfc { self += UTF8.encode(scalar).unsafelyUnwrapped }
        #else
        self += text.precomposedStringWithCanonicalMapping.utf8
        #endif
    }
}

extension String {
    /// The one with those bytes.
    var canonical: String { String(decoding: [UInt8](canonical: self), as: UTF8.self) }
}
