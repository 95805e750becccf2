import ArgumentParser
import FoundationEssentials
import ShaleCore

/// A key or a value as an argument: UTF-8 with `\xNN` for any byte and `\\` for a backslash.
struct Bytes: ExpressibleByArgument {
    let bytes: [UInt8]

    init?(argument: String) {
        var bytes: [UInt8] = []
        var rest = Array(argument.utf8)[...]
        while let byte = rest.popFirst() {
            guard byte == UInt8(ascii: "\\") else {
                bytes.append(byte)
                continue
            }
            switch rest.popFirst() {
            case UInt8(ascii: "\\"): bytes.append(byte)
            case UInt8(ascii: "x"):
                let digits = rest.prefix(2)
                guard digits.count == 2, digits.allSatisfy({ UnicodeScalar($0).properties.isASCIIHexDigit }),
                    let value = UInt8(String(decoding: digits, as: UTF8.self), radix: 16)
                else { return nil }
                bytes.append(value)
                rest = rest.dropFirst(2)
            default: return nil
            }
        }
        self.bytes = bytes
    }

    /// Printable text on one line, which `init(argument:)` reads.
    static func text(_ bytes: some Collection<UInt8>) -> String {
        var text = ""
        var rest = Array(bytes)[...]
        while let first = rest.first {
            // A valid scalar, or one byte that is not part of one.
            let length = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4
            if let character = String(validating: rest.prefix(length), as: UTF8.self), isPrintable(character) {
                text += first == UInt8(ascii: "\\") ? "\\\\" : character
                rest = rest.dropFirst(length)
            } else {
                let digits = String(first, radix: 16)
                text += digits.count == 1 ? "\\x0\(digits)" : "\\x\(digits)"
                rest = rest.dropFirst()
            }
        }
        return text
    }

    private static func isPrintable(_ text: String) -> Bool {
        text.unicodeScalars.allSatisfy { scalar in
            switch scalar.properties.generalCategory {
            case .control, .format, .surrogate, .privateUse, .unassigned, .lineSeparator, .paragraphSeparator: false
            default: true
            }
        }
    }
}

private let byteUnits: [(name: String, factor: Int)] = [
    ("", 1), ("b", 1), ("kib", 1 << 10), ("mib", 1 << 20), ("gib", 1 << 30), ("tib", 1 << 40), ("k", 1 << 10),
    ("m", 1 << 20), ("g", 1 << 30), ("t", 1 << 40), ("kb", 1000), ("mb", 1_000_000), ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
]

/// A number with a unit, in the smallest unit.
private func amount(_ text: String, in units: [(name: String, factor: Int)]) -> Int? {
    let digits = text.prefix { $0.isASCII && $0.isNumber }
    let unit = text[digits.endIndex...].lowercased()
    guard let number = Int(digits), let factor = units.first(where: { $0.name == unit })?.factor else { return nil }
    let (product, overflows) = number.multipliedReportingOverflow(by: factor)
    return overflows ? nil : product
}

struct ByteCount: ExpressibleByArgument {
    let bytes: Int

    init?(argument: String) {
        guard let bytes = amount(argument, in: byteUnits) else { return nil }
        self.bytes = bytes
    }

    /// With the unit that leaves one to four digits before the point.
    static func text(_ bytes: some BinaryInteger) -> String {
        var value = Double(bytes)
        for unit in ["B", "KiB", "MiB", "GiB"] {
            if value < 1024 || unit == "GiB" && value < 10240 {
                return unit == "B" ? "\(Int(value)) B" : "\(decimal(value)) \(unit)"
            }
            value /= 1024
        }
        return "\(decimal(value)) TiB"
    }
}

/// An age: `500ms`, `30s`, `5m`, `2h`, `7d`, `never`, or `none`.
struct AgeArgument: ExpressibleByArgument {
    /// Nil: never.
    let duration: Duration?
    var age: Age { duration.map(Age.init) ?? .forever }

    init(_ duration: Duration) { self.duration = duration }

    init?(argument: String) {
        switch argument {
        case "never": duration = nil
        case "none": duration = .zero
        default:
            let units = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)]
            guard let milliseconds = amount(argument, in: units) else { return nil }
            duration = .milliseconds(milliseconds)
        }
    }

    /// In the largest unit in which it is at least 2.
    static func text(milliseconds: Int64) -> String {
        for (unit, size) in [("d", Int64(86_400_000)), ("h", 3_600_000), ("m", 60_000), ("s", 1000)]
        where milliseconds >= 2 * size {
            return "\(milliseconds / size) \(unit)"
        }
        return "\(milliseconds) ms"
    }
}

/// With one digit after the point.
func decimal(_ value: Double) -> String {
    let tenths = Int((value * 10).rounded())
    return "\(tenths / 10).\(abs(tenths % 10))"
}

/// With commas.
func grouped(_ number: some BinaryInteger) -> String {
    var text = ""
    for (i, digit) in String(number).reversed().enumerated() {
        if i > 0, i % 3 == 0, digit != "-" { text.append(",") }
        text.append(digit)
    }
    return String(text.reversed())
}

func percent(_ part: some BinaryInteger, of whole: some BinaryInteger) -> String {
    whole == 0 ? "-" : "\(decimal(Double(part) / Double(whole) * 100)) %"
}

/// Milliseconds since 1970, as a date and time in UTC.
func moment(_ milliseconds: Int64) -> String {
    Date(timeIntervalSince1970: Double(milliseconds) / 1000).formatted(.iso8601)
}
