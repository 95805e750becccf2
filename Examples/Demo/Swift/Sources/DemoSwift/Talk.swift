import Glibc

/// What this program says to the orchestrator, line by line. demo/worker.py lists the lines.
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

    /// At most ten times a second; cheap enough to be called for every entry.
    mutating func progress(_ done: Int, of total: Int) {
        guard done % Self.progressStep == 0 else { return }
        let now = nanoseconds()
        guard now - lastProgress > Self.progressNanoseconds else { return }
        lastProgress = now
        say("progress", "\(done) \(total)")
    }

    /// The cache did not do what it promises for this key. After the first ten, keys are not named any more.
    mutating func difference(_ key: UnsafeRawBufferPointer, _ what: String) {
        differences += 1
        if differences <= Self.namedDifferences {
            say("difference", "\(printable(key)): \(what)")
        } else if differences == Self.namedDifferences + 1 {
            say("difference", "and more")
        }
    }
}

/// The key as text; bytes that cannot be printed as \xNN.
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
