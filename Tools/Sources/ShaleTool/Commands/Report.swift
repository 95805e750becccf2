import ArgumentParser
import ShaleCore

struct Report: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Writes an HTML page about a cache: a recording of its counters, sizes, ages, compression.",
        discussion: """
            Records the counters, which all users of the cache share, then reads the whole cache once. The page is \
            self-contained, without scripts. The counters do not measure time, so the page shows no latencies.
            """)

    @OptionGroup var path: CachePath
    @Option(
        name: .shortAndLong, help: "The file to write; it appears when it is complete (default: standard output).",
        completion: .file())
    var output: String?
    @Option(name: .customLong("for"), help: "How long to record, such as 60s or 10m; none: no recording.")
    var length: AgeArgument = AgeArgument(argument: "60s").unsafelyUnwrapped
    @Option(help: "Time between two samples of the counters (default: a hundredth of the recording, at most 1s).")
    var interval: AgeArgument?

    func validate() throws {
        if length.duration == nil { throw ValidationError("--for must be a time, such as 60s, or none") }
        try interval?.checkInterval()
    }

    func run() throws {
        // Reports a cache that cannot be opened before the recording.
        let store = try path.openToRead()
        try withOutput(output) { output in
            let begin = store.now, session = try record()
            // Opened again, as the index may have been rebuilt.
            let store = try path.openToRead()
            let statistics = try store.statistics(), found = try Inspection(of: store, at: path.cache)
            var page = Page(about: path.cache)
            let version = Tool.configuration.version
            page.paragraph(
                "A Shale cache, observed from \(moment(begin)) to \(moment(store.now)), by shale \(version).")
            summarise(session, statistics, on: &page)
            plot(session, on: &page)
            found.draw(on: &page)
            page.section("All numbers", "Counters start when the index is built, and include all processes.")
            page.table(
                [["name", "value"]]
                    + Metric.all.map { metric in
                        let value = metric.value(statistics)
                        return [metric.help, metric.isBytes ? ByteCount.text(value) : grouped(value)]
                    })
            try output.write(Array(page.text.utf8))
        }
    }

    private func record() throws -> Session {
        var session = Session()
        guard let length = length.duration, length > .zero else { return session }
        let hundredth = min(.seconds(1), max(.milliseconds(10), length / 100))
        try watch(path, every: interval ?? AgeArgument(hundredth)) { last, now, time in
            session.add(Change(from: last, to: now, in: time))
            Terminal.progress(Int(session.seconds), of: Int(length / .seconds(1)), "recording, seconds")
            return session.seconds < length / .seconds(1)
        }
        Terminal.endProgress()
        return session
    }

    private func summarise(_ session: Session, _ s: Statistics, on page: inout Page) {
        page.tiles([
            ("Entries", grouped(s.entries)),
            ("On disk", ByteCount.text(s.diskBytes)),
            ("Of the capacity", percent(s.diskBytes, of: s.capacity)),
            ("Values, compressed to", percent(s.storedBytes, of: s.rawBytes)),
            ("Hits since the index was built", percent(s.found, of: s.reads)),
        ])
        page.section("The session")
        if session.changes.isEmpty {
            return page.paragraph("Nothing was recorded.")
        }
        func sum(_ of: (Statistics) -> UInt64) -> UInt64 { session.sum(of) }
        page.tiles([
            ("Recorded", "\(decimal(session.seconds)) s"),
            ("Reads", grouped(sum(\.reads))),
            ("Hits", percent(sum(\.found), of: sum(\.reads))),
            ("Sets", grouped(sum(\.sets))),
            ("Evicted", grouped(sum(\.evictions))),
            ("Loads started", grouped(sum(\.leases))),
        ])
    }

    private func plot(_ session: Session, on page: inout Page) {
        guard !session.changes.isEmpty else { return }
        func rates(_ name: String, _ of: (Statistics) -> UInt64) -> Chart.Series {
            Chart.Series(name: name, values: session.changes.map { $0.rate(of) })
        }
        let ratio = session.changes.map { change in
            change.rise(\.reads) == 0 ? nil : Double(change.rise(\.found)) / Double(change.rise(\.reads))
        }
        let number = { (value: Double) in grouped(Int(value.rounded())) }
        let misses = session.sum(\.misses)
        func share(_ name: String, _ of: (Statistics) -> UInt64) -> (String, [Double], String) {
            let count = session.sum(of)
            return (name, [misses == 0 ? 0 : Double(count) / Double(misses)], grouped(count))
        }
        page.add(
            """
            <div class="charts">
            \(Chart.lines(
                "Hit ratio", [Chart.Series(name: "hits", values: ratio)], seconds: session.times, top: 1,
                text: { "\(Int($0 * 100)) %" }))
            \(Chart.lines("Reads per second", [rates("reads", \.reads)], seconds: session.times, text: number))
            \(Chart.lines(
                "Changes per second",
                [rates("sets", \.sets), rates("evictions", \.evictions), rates("removals", \.removes)],
                seconds: session.times, text: number))
            \(Chart.lines(
                "Entries",
                [Chart.Series(name: "entries", values: session.changes.map { Double($0.now.entries) })],
                seconds: session.times, text: number))
            \(Chart.lines(
                "On disk, of the capacity",
                [Chart.Series(name: "bytes", values: session.changes.map { Double($0.now.diskBytes) })],
                seconds: session.times, top: session.changes.map { Double(max($0.now.capacity, $0.now.diskBytes)) }.max(),
                text: { ByteCount.text(Int($0)) }))
            \(Chart.bars(
                "Why reads missed",
                [
                    share("no such key", \.absent), share("expired", \.expired),
                    share("tag invalidated", \.invalidated), share("damaged", \.damaged),
                ]))
            </div>
            """)
    }
}

extension Inspection {
    func draw(on page: inout Page) {
        page.section(
            "Contents",
            "\(grouped(stale)) entries are stale, \(grouped(pinned)) are pinned, "
                + "\(grouped(neverExpire)) never expire. \(dictionaries.count) dictionaries are in use.")
        let most = max(1, sizes.map(\.entries).max() ?? 0), oldest = max(1, ages.map(\.entries).max() ?? 0)
        let fullest = max(1, perShard.map { $0.liveBytes + $0.deadBytes }.max() ?? 0)
        func share(_ part: Int, of whole: Int) -> Double { whole == 0 ? 0 : min(1, Double(part) / Double(whole)) }
        page.add("<div class=\"charts\">")
        page.add(
            Chart.bars(
                "Entries by size of the value",
                sizes.map { ($0.name, [share($0.entries, of: most)], grouped($0.entries)) }))
        page.add(
            Chart.bars(
                "Compressed size of the values",
                sizes.filter { $0.rawBytes > 0 }.map {
                    let stored = "\(percent($0.storedBytes, of: $0.rawBytes)) of \(ByteCount.text($0.rawBytes))"
                    return ($0.name, [share($0.storedBytes, of: $0.rawBytes)], stored)
                }))
        page.add(
            Chart.bars(
                "Entries by age", ages.map { ($0.name, [share($0.entries, of: oldest)], grouped($0.entries)) }))
        page.add(
            Chart.bars(
                "Logs of the shards", parts: ["live", "dead"],
                perShard.enumerated().map { i, shard in
                    (
                        "shard \(i)", [share(shard.liveBytes, of: fullest), share(shard.deadBytes, of: fullest)],
                        "\(ByteCount.text(shard.liveBytes)) live, \(ByteCount.text(shard.deadBytes)) dead"
                    )
                }))
        page.add("</div>")
        if perShard.isEmpty {
            page.paragraph(
                "No data about shards: the index is missing, or has a version that this tool does not know.")
        }
    }
}

/// The recording.
private struct Session {
    private(set) var changes: [Change] = []
    /// Seconds since the start, for each change.
    private(set) var times: [Double] = []

    var seconds: Double { times.last ?? 0 }

    mutating func add(_ change: Change) {
        times.append(seconds + change.seconds)
        changes.append(change)
    }

    func sum(_ of: (Statistics) -> UInt64) -> UInt64 { changes.reduce(0) { $0 + $1.rise(of) } }
}
