import Glibc

/// The steps that the orchestrator may ask for. Each says its result.
struct Steps {
    private static let readAhead = 64  // entries beyond what the writer has completed
    private static let idleMicroseconds: UInt32 = 1000

    private let corpus: Corpus
    private let board: Board
    private var cache: CacheClient
    private var talk = Talk()

    init(corpus: Corpus, board: Board, cache: CacheClient) {
        self.corpus = corpus
        self.board = board
        self.cache = cache
    }

    /// Reads from the beginning to a little beyond where the writer is, over and over, until all is written.
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

    /// Gets every entry; one letter for each role: p there without an age, a there with an age, g gone.
    mutating func compare(_ expected: [Character]) {
        let total = corpus.entries.count
        var latencies = Latencies(capacity: total)
        for (index, entry) in corpus.entries.enumerated() {
            let start = nanoseconds()
            let answer = cache.get(entry.key)
            latencies.add(since: start)
            check(entry, answer, expected[entry.role.rawValue])
            talk.progress(index, of: total)
        }
        talk.say("result", latencies.summary())
    }

    /// Sets those plain entries again whose number leaves `part` when divided by `parts`.
    mutating func rewrite(_ part: Int, of parts: Int) {
        var latencies = Latencies(capacity: corpus.entries.count / parts + 1)
        for index in stride(from: part, to: corpus.entries.count, by: parts) {
            let entry = corpus.entries[index]
            guard entry.role == .plain else { continue }
            let start = nanoseconds()
            let problem = cache.set(entry.key, to: entry.value)
            latencies.add(since: start)
            if let problem { talk.difference(entry.key, "set: \(problem)") }
        }
        talk.say("result", latencies.summary())
    }

    /// Removes everything that carries the tag.
    mutating func invalidate(_ tag: String) {
        if let problem = cache.invalidate(tag) {
            talk.say("difference", "the tag \(tag): \(problem)")
        }
        talk.say("result", "{}")
    }

    func close() {
        if let problem = cache.close() { fail(with: problem) }
    }

    /// Whether the entry is there. It must be if the board counted it before the get.
    private mutating func readAlong(_ index: Int) -> Bool {
        let entry = corpus.entries[index]
        let completed = board.completed
        switch cache.get(entry.key) {
        case .missing:
            if index < completed { talk.difference(entry.key, "was completed by C, but get finds nothing") }
            return false
        case .found:
            checkBytes(entry)
            return true
        case .failed(let problem):
            talk.difference(entry.key, "get: \(problem)")
            return false
        }
    }

    private mutating func check(_ entry: Corpus.Entry, _ answer: CacheClient.Answer, _ expected: Character) {
        switch (answer, expected) {
        case (.failed(let problem), _): talk.difference(entry.key, "get: \(problem)")
        case (.missing, "g"): break
        case (.found, "g"): talk.difference(entry.key, "should be gone, but get finds it")
        case (.missing, _): talk.difference(entry.key, "should be there, but get finds nothing")
        case (.found(hasAge: true), "p"): talk.difference(entry.key, "has an age")
        case (.found(hasAge: false), "a"): talk.difference(entry.key, "has no age")
        case (.found, _): checkBytes(entry)
        }
    }

    /// Compares what the last get has found with the source.
    private mutating func checkBytes(_ entry: Corpus.Entry) {
        let bytes = cache.bytes
        if bytes.count != entry.value.count {
            talk.difference(entry.key, "\(bytes.count) bytes, but the source has \(entry.value.count)")
        } else if let got = bytes.baseAddress, let wanted = entry.value.baseAddress,
            memcmp(got, wanted, bytes.count) != 0 {
            let at = zip(bytes, entry.value).prefix { $0 == $1 }.count
            talk.difference(entry.key, "the bytes differ from the source from byte \(at) on")
        }
    }
}
