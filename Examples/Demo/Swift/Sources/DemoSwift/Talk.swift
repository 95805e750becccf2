import Glibc

/// The lines that this program sends to the orchestrator; demo/worker.py lists them.
struct Talk {
    private static let progressNanoseconds: UInt64 = 100_000_000
    private static let progressStep = 64
    private static let namedDifferences = 10

    private var lastProgress: UInt64 = 0
    private var differences = 0

    func say(_ kind: String, _ text: String) {
        print(kind, text)
        fflush(nil)
    }

    /// Sends at most ten lines a second; cheap enough to be called for every entry.
    mutating func progress(_ done: Int, of total: Int) {
        guard done % Self.progressStep == 0 else { return }
        let now = nanoseconds()
        guard now - lastProgress > Self.progressNanoseconds else { return }
        lastProgress = now
        say("progress", "\(done) \(total)")
    }

    /// Reports a wrong result of the cache for this key. Only the first ten keys are named.
    mutating func difference(_ key: UnsafeRawBufferPointer, _ what: String) {
        differences += 1
        if differences <= Self.namedDifferences {
            say("difference", "\(printable(key)): \(what)")
        } else if differences == Self.namedDifferences + 1 {
            say("difference", "and more")
        }
    }
}

/// The key as text, with unprintable bytes as \xNN.
private func printable(_ key: UnsafeRawBufferPointer) -> String {
    var text = ""
    for byte in key {
        if (0x20...0x7e).contains(byte) {
            text.unicodeScalars.append(Unicode.Scalar(byte))
        } else {
            text += #"\x"# + (byte < 16 ? "0" : "") + String(byte, radix: 16)
        }
    }
    return text
}
