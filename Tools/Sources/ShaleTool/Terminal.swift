import Glibc
import Synchronization

enum Terminal {
    static let isOutput = isatty(STDOUT_FILENO) == 1
    static let isError = isatty(STDERR_FILENO) == 1
    /// See no-color.org.
    private static let wantsColour = getenv("NO_COLOR").map { $0.pointee == 0 } ?? true

    enum Colour: Int { case red = 31, green = 32, yellow = 33, dim = 2, bold = 1 }

    /// Coloured on a terminal only.
    static func paint(_ text: String, _ colour: Colour) -> String {
        isOutput && wantsColour ? "\u{1B}[\(colour.rawValue)m\(text)\u{1B}[0m" : text
    }

    /// To standard error.
    static func say(_ text: String) {
        var line = text + "\n"
        line.withUTF8 { _ = write(STDERR_FILENO, $0.baseAddress, $0.count) }
    }

    private static let progressShown = Mutex<ContinuousClock.Instant?>(nil)

    /// Shows progress on one line, which the next call replaces; only on a terminal, and at most ten times a second.
    static func progress(_ done: Int, of all: Int, _ what: String) {
        guard isError else { return }
        let isDue = progressShown.withLock { shown in
            let now = ContinuousClock.now
            if let last = shown, now - last < .milliseconds(100) { return false }
            shown = now
            return true
        }
        if !isDue { return }
        // `done` may exceed `all`, as the cache may get entries during the work.
        let share = all == 0 ? 0 : min(1, Double(done) / Double(all))
        let bar = String(repeating: "#", count: Int(share * 24)).padded(to: 24)
        var line = "\r\u{1B}[K\(what) [\(bar)] \(grouped(done)) of \(grouped(max(done, all)))"
        line.withUTF8 { _ = write(STDERR_FILENO, $0.baseAddress, $0.count) }
    }

    /// Clears the progress line.
    static func endProgress() {
        let wasShown = progressShown.withLock { shown in
            defer { shown = nil }
            return shown != nil
        }
        if wasShown { _ = write(STDERR_FILENO, "\r\u{1B}[K", 4) }
    }
}

extension String {
    func padded(to width: Int) -> String { self + String(repeating: " ", count: max(0, width - count)) }
    func right(in width: Int) -> String { String(repeating: " ", count: max(0, width - count)) + self }
}

/// Columns as wide as their content; those in `right` are right-aligned.
func table(_ rows: [[String]], right: ClosedRange<Int>? = nil) -> [String] {
    let columns = rows.map(\.count).max() ?? 0
    let widths = (0..<columns).map { column in rows.map { column < $0.count ? $0[column].count : 0 }.max() ?? 0 }
    return rows.map { row in
        let cells = row.enumerated().map { column, cell in
            right?.contains(column) ?? false
                ? cell.right(in: widths[column]) : column == row.count - 1 ? cell : cell.padded(to: widths[column])
        }
        return cells.joined(separator: "  ")
    }
}
