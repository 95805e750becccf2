import Glibc

/// The steps that the orchestrator can request. Each reports its result.
struct Steps {
    private static let readAhead = 64 // entries beyond what the writer has completed
    private static let idleMicroseconds: UInt32 = 1000

    private let corpus: Corpus
    private let board: Board
    private let cache: CacheClient
    private var talk = Talk()

    init(corpus: Corpus, board: Board, cache: CacheClient) {
        self.corpus = corpus
        self.board = board
        self.cache = cache
    }

    /// Reads all entries up to `readAhead` beyond the writer's, again and again, until the writer has written all.
    mutating func follow() {
        let total = corpus.entries.count
        var hits = 0
        var finished = false
        while !finished {
            let completed = board.completed
            finished = completed == total
            for index in 0..<min(completed + Self.readAhead, total) {
                hits += readAlong(index) ? 1 : 0
                talk.progress(hits, of: total)
            }
            if completed == 0 { usleep(Self.idleMicroseconds) }
        }
        talk.say("result", #"{"hits": \#(hits)}"#)
    }

    /// Gets every entry; one letter for each role: p present without an age, a present with an age, m missing.
    mutating func compare(_ expected: [Character]) {
        let total = corpus.entries.count
        var latencies = Latencies(capacity: total)
        for (index, entry) in corpus.entries.enumerated() {
            let expected = expected[entry.role.rawValue]
            var difference: String?
            let start = nanoseconds()
            var end: UInt64?
            let answer = cache.get(entry.key) { value, hasAge in
                end = nanoseconds() // excludes the comparison
                difference = self.difference(entry, value, hasAge, expected)
            }
            latencies.add(from: start, to: end ?? nanoseconds())
            switch (answer, expected) {
            case (.missing, "m"), (.found, _): break
            case (.missing, _): difference = "should be present, but get finds nothing"
            case (.failed(let problem), _): difference = "get: \(problem)"
            }
            if let difference { talk.difference(entry.key, difference) }
            talk.progress(index, of: total)
        }
        talk.say("result", latencies.summary())
    }

    /// Sets the plain entries again whose number modulo `parts` is `part`.
    mutating func rewrite(_ part: Int, of parts: Int) {
        var latencies = Latencies(capacity: corpus.entries.count / parts + 1)
        for index in stride(from: part, to: corpus.entries.count, by: parts) {
            let entry = corpus.entries[index]
            guard entry.role == .plain else { continue }
            let start = nanoseconds()
            let problem = cache.set(entry.key, to: entry.value)
            latencies.add(from: start, to: nanoseconds())
            if let problem { talk.difference(entry.key, "set: \(problem)") }
        }
        talk.say("result", latencies.summary())
    }

    /// Removes all entries with the tag.
    mutating func invalidate(_ tag: String) {
        if let problem = cache.invalidate(tag) {
            talk.say("difference", "the tag \(tag): \(problem)")
        }
        talk.say("result", "{}")
    }

    func close() {
        if let problem = cache.close() { fail(with: problem) }
    }

    /// Whether get finds the entry. It must if the board counted it before the call.
    private mutating func readAlong(_ index: Int) -> Bool {
        let entry = corpus.entries[index]
        let completed = board.completed
        var difference: String?
        let answer = cache.get(entry.key) { value, _ in difference = self.difference(entry, value) }
        switch answer {
        case .found: break
        case .missing: if index < completed { difference = "was completed by C, but get finds nothing" }
        case .failed(let problem): difference = "get: \(problem)"
        }
        if let difference { talk.difference(entry.key, difference) }
        if case .found = answer { return true }
        return false
    }

    /// Describes what is wrong with an entry that get has found; nil if nothing is.
    private func difference(
        _ entry: Corpus.Entry, _ value: UnsafeRawBufferPointer, _ hasAge: Bool,
        _ expected: Character
    ) -> String? {
        switch (expected, hasAge) {
        case ("m", _): "should be missing, but get finds it"
        case ("p", true): "has an age"
        case ("a", false): "has no age"
        default: difference(entry, value)
        }
    }

    /// Describes where the bytes differ from the source; nil if they are equal.
    private func difference(_ entry: Corpus.Entry, _ value: UnsafeRawBufferPointer) -> String? {
        if value.count != entry.value.count {
            return "\(value.count) bytes, but the source has \(entry.value.count)"
        }
        guard let got = value.baseAddress, let wanted = entry.value.baseAddress, memcmp(got, wanted, value.count) != 0
        else { return nil }
        let at = zip(value, entry.value).prefix { $0 == $1 }.count
        return "the first byte that differs from the source is byte \(at)"
    }
}
