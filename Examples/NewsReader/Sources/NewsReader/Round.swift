/// One pass of a reader over all articles.
struct Round {
    /// The source of each article shown: of its first and its last version.
    private(set) var first: [String: Source] = [:]
    private(set) var last: [String: Source] = [:]
    /// Articles that were loaded, and those that the cache announced.
    private(set) var loaded: Set<String> = []
    private(set) var arrived: Set<String> = []
    private(set) var tally = Tally()
    private(set) var failures = 0

    mutating func add(_ event: Event) {
        switch event {
        case .article(let name, _, let source, let milliseconds):
            if first[name] == nil { first[name] = source }
            last[name] = source
            if source == .network { loaded.insert(name) }
            tally.add(source, milliseconds: milliseconds)
        case .arrived(let name): arrived.insert(name)
        case .failure: failures += 1
        case .list, .roundEnded: break
        }
    }

    /// As text: "30 from disk (0.080 ms), 27 from the network (13.014 ms), 3 failed".
    var summary: String { ([tally.summary] + (failures > 0 ? ["\(failures) failed"] : [])).joined(separator: ", ") }
}
