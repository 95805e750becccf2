#if HTTP
/// HTTP dates (RFC 9110, 5.6.7), in milliseconds since 1970.
enum HTTPDate {
    private static let days = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
    private static let months = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ]

    /// Nil if the text has none of the three formats. Names are case-insensitive. A two-digit year is at most 50 years
    /// after `now`.
    static func parse(_ text: String, now: Int64) -> Int64? {
        guard text.utf8.count <= Limits.date else { return nil }
        return fixed(text) ?? rfc850(text, now: now) ?? asctime(text)
    }

    /// `Sun, 06 Nov 1994 08:49:37 GMT`
    static func format(_ milliseconds: Int64) -> String {
        let seconds = floored(milliseconds, 1000), days = floored(seconds, 86_400), time = seconds - days * 86_400
        let (year, month, day) = civil(days)
        func padded(_ number: Int64, _ count: Int) -> String {
            let digits = String(number)
            return String(repeating: "0", count: max(0, count - digits.count)) + digits
        }
        let name = Self.days[Int((days + 3) - floored(days + 3, 7) * 7)].prefix(3)
        let clock = [time / 3600, time / 60 % 60, time % 60].map { padded($0, 2) }.joined(separator: ":")
        return "\(name), \(padded(day, 2)) \(months[Int(month) - 1]) \(padded(year, 4)) \(clock) GMT"
    }

    // MARK: Formats

    private static func fixed(_ text: String) -> Int64? {
        var scanner = Scanner(text)
        guard scanner.name(days.map { String($0.prefix(3)) }) != nil, scanner.skip(", "), let day = scanner.number(2),
            scanner.skip(" "), let month = scanner.name(months), scanner.skip(" "), let year = scanner.number(4),
            scanner.skip(" "), let time = scanner.time(), scanner.skip(" GMT"), scanner.isAtEnd
        else { return nil }
        return milliseconds(year, month, day, time)
    }

    private static func rfc850(_ text: String, now: Int64) -> Int64? {
        var scanner = Scanner(text)
        guard scanner.name(days) != nil, scanner.skip(", "), let day = scanner.number(2), scanner.skip("-"),
            let month = scanner.name(months), scanner.skip("-"), let short = scanner.number(2), scanner.skip(" "),
            let time = scanner.time(), scanner.skip(" GMT"), scanner.isAtEnd
        else { return nil }
        let (thisYear, _, _) = civil(floored(now, 86_400_000))
        let year = floored(thisYear, 100) * 100 + short
        return milliseconds(year > thisYear + 50 ? year - 100 : year, month, day, time)
    }

    private static func asctime(_ text: String) -> Int64? {
        var scanner = Scanner(text)
        guard scanner.name(days.map { String($0.prefix(3)) }) != nil, scanner.skip(" "),
            let month = scanner.name(months), scanner.skip(" ")
        else { return nil }
        guard let day = scanner.skip(" ") ? scanner.number(1) : scanner.number(2), scanner.skip(" "),
            let time = scanner.time(), scanner.skip(" "), let year = scanner.number(4), scanner.isAtEnd
        else { return nil }
        return milliseconds(year, month, day, time)
    }

    private static func milliseconds(_ year: Int64, _ month: Int, _ day: Int64, _ seconds: Int64) -> Int64? {
        let days = days(year, Int64(month) + 1, day)
        // Rejects 31 February.
        guard civil(days) == (year, Int64(month) + 1, day) else { return nil }
        return (days * 86_400 + seconds) * 1000
    }

    // MARK: Calendar

    /// Days since 1970. Counts years from March, so that the leap day is the last day of a year.
    private static func days(_ year: Int64, _ month: Int64, _ day: Int64) -> Int64 {
        let year = month <= 2 ? year - 1 : year
        let era = floored(year, 400), yearOfEra = year - era * 400
        let dayOfYear = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1
        return era * 146_097 + yearOfEra * 365 + yearOfEra / 4 - yearOfEra / 100 + dayOfYear - 719_468
    }

    private static func civil(_ days: Int64) -> (year: Int64, month: Int64, day: Int64) {
        let days = days + 719_468, era = floored(days, 146_097), day = days - era * 146_097
        let yearOfEra = (day - day / 1460 + day / 36_524 - day / 146_096) / 365
        let dayOfYear = day - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
        let shifted = (5 * dayOfYear + 2) / 153, month = shifted < 10 ? shifted + 3 : shifted - 9
        return (yearOfEra + era * 400 + (month <= 2 ? 1 : 0), month, dayOfYear - (153 * shifted + 2) / 5 + 1)
    }

    private static func floored(_ number: Int64, _ by: Int64) -> Int64 {
        number >= 0 ? number / by : (number - by + 1) / by
    }

    private struct Scanner {
        private var rest: Substring

        init(_ text: String) { rest = text[...] }

        var isAtEnd: Bool { rest.isEmpty }

        mutating func skip(_ literal: String) -> Bool {
            guard rest.prefix(literal.count).lowercased() == literal.lowercased() else { return false }
            rest = rest.dropFirst(literal.count)
            return true
        }

        mutating func number(_ digits: Int) -> Int64? {
            let text = rest.prefix(digits)
            guard text.count == digits, text.utf8.allSatisfy({ (48...57).contains($0) }) else { return nil }
            rest = rest.dropFirst(digits)
            return Int64(text)
        }

        mutating func name(_ names: [String]) -> Int? {
            for (index, name) in names.enumerated() where skip(name) { return index }
            return nil
        }

        /// Seconds of the day.
        mutating func time() -> Int64? {
            guard let hours = number(2), skip(":"), let minutes = number(2), skip(":"), let seconds = number(2),
                hours < 24, minutes < 60, seconds <= 60
            else { return nil }
            return hours * 3600 + minutes * 60 + seconds
        }
    }
}
#endif
