import ArgumentParser
import Glibc
import ShaleCore

/// One statistic, with its name in JSON and Prometheus.
struct Metric {
    enum Kind: String { case gauge, counter }

    let name: String
    let kind: Kind
    let help: String
    let isBytes: Bool
    let value: @Sendable (Statistics) -> UInt64

    init(
        _ name: String, _ kind: Kind, _ help: String, isBytes: Bool = false,
        _ value: @escaping @Sendable (Statistics) -> UInt64
    ) {
        self.name = name
        self.kind = kind
        self.help = help
        self.isBytes = isBytes
        self.value = value
    }

    static let all: [Metric] = [
        Metric("entries", .gauge, "Entries, including expired ones that were not reclaimed yet") { $0.entries },
        Metric("max_entries", .gauge, "Maximum number of entries; 0: no limit") { $0.maxEntries },
        Metric("shards", .gauge, "Shards") { UInt64($0.shards) },
        Metric("capacity_bytes", .gauge, "Maximum size on disk", isBytes: true) { $0.capacity },
        Metric("data_bytes", .gauge, "Data file on disk", isBytes: true) { $0.dataBytes },
        Metric("index_bytes", .gauge, "Index on disk", isBytes: true) { $0.indexBytes },
        Metric("live_bytes", .gauge, "Live records, including headers and keys", isBytes: true) {
            $0.liveBytes
        },
        Metric("raw_bytes", .gauge, "Live values before compression", isBytes: true) { $0.rawBytes },
        Metric("stored_bytes", .gauge, "Live values after compression", isBytes: true) { $0.storedBytes },
        Metric("hits", .counter, "Reads that found a fresh value") { $0.hits },
        Metric("stale_hits", .counter, "Reads that found a stale value") { $0.staleHits },
        Metric("misses", .counter, "Reads that found no value") { $0.misses },
        Metric("misses_absent", .counter, "Misses: no such key") { $0.absent },
        Metric("misses_expired", .counter, "Misses: expired") { $0.expired },
        Metric("misses_invalidated", .counter, "Misses: a tag was invalidated") { $0.invalidated },
        Metric("misses_damaged", .counter, "Misses: the record was damaged, and was removed") { $0.damaged },
        Metric("leases", .counter, "Leases granted, which are loads that began") { $0.leases },
        Metric("conflicts", .counter, "Refused fenced sets") { $0.conflicts },
        Metric("conflicts_key", .counter, "Refused: the key had changed") { $0.conflictsByKey },
        Metric("conflicts_tag", .counter, "Refused: a tag had changed") { $0.conflictsByTag },
        Metric("conflicts_overflow", .counter, "Refused: too many other keys had changed") { $0.conflictsByOverflow },
        Metric("conflicts_reset", .counter, "Refused: the index was rebuilt") { $0.conflictsByReset },
        Metric("sets", .counter, "Sets") { $0.sets },
        Metric("removes", .counter, "Removals") { $0.removes },
        Metric("evictions", .counter, "Evicted entries") { $0.evictions },
        Metric("expirations", .counter, "Expired entries that were reclaimed") { $0.expirations },
        Metric("invalidations", .counter, "Invalidations of tags") { $0.invalidations },
        Metric("cleaned_bytes", .counter, "Bytes copied by the cleaner", isBytes: true) { $0.cleanedBytes },
        Metric("corrupt_records", .counter, "Damaged records found") { $0.corruptRecords },
        Metric("rebuilds", .counter, "Rebuilds of a shard's index") { $0.rebuilds },
        Metric("dictionaries", .counter, "Dictionaries built") { $0.dictionaries },
        Metric("evicted_timed", .counter, "Evictions with known times") { $0.evictedTimed },
        Metric("evicted_age_ms", .counter, "Sum of their ages, from set to eviction") { $0.evictedAge },
        Metric("evicted_idle_ms", .counter, "Sum of their idle times, from last use to eviction") { $0.evictedIdle },
        Metric("leases_unrecorded", .counter, "Leases that could not be recorded") { $0.leasesUnrecorded },
        Metric("renewals", .counter, "Resets of the cache near the end of its version numbers") { $0.renewals },
    ]
}

struct Stats: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Shows a cache's statistics.",
        discussion: """
            Counters start when the index is built, and include all processes. The output of --prometheus is for the \
            node exporter's textfile collector.
            """)

    @OptionGroup var path: CachePath
    @Flag(help: "As one JSON object.")
    var json = false
    @Flag(help: "In Prometheus' text format.")
    var prometheus = false

    func validate() throws {
        if json, prometheus { throw ValidationError("use either --json or --prometheus") }
    }

    func run() throws {
        let statistics = try path.openToRead().statistics()
        if prometheus { return try writePrometheus(statistics) }
        if json {
            let numbers = Metric.all.map { ($0.name, Field.number($0.value(statistics))) }
            let words = [("cache", Field.text(path.cache)), ("eviction", .text(statistics.eviction.name))]
            return try Output.shared.json(Dictionary(uniqueKeysWithValues: numbers + words))
        }
        for line in table(rows(statistics)) { try Output.shared.line(line) }
    }

    private func writePrometheus(_ statistics: Statistics) throws {
        // The format's own escapes.
        let cache = path.cache.map { $0 == "\\" || $0 == "\"" ? "\\\($0)" : $0 == "\n" ? "\\n" : "\($0)" }.joined()
        for metric in Metric.all {
            let name = metric.kind == .counter ? "shale_\(metric.name)_total" : "shale_\(metric.name)"
            try Output.shared.line("# HELP \(name) \(metric.help).")
            try Output.shared.line("# TYPE \(name) \(metric.kind.rawValue)")
            try Output.shared.line("\(name){cache=\"\(cache)\"} \(metric.value(statistics))")
        }
    }

    private func rows(_ s: Statistics) -> [[String]] {
        func bytes(_ count: UInt64) -> String { ByteCount.text(count) }
        let disk = s.diskBytes
        var rows = [
            ["cache", path.cache],
            ["capacity", "\(bytes(s.capacity)), \(percent(disk, of: s.capacity)) of it on disk"],
            ["on disk", "\(bytes(s.dataBytes)) data, \(bytes(s.indexBytes)) index"],
            ["entries", grouped(s.entries) + (s.maxEntries == 0 ? "" : " of at most \(grouped(s.maxEntries))")],
            ["live", "\(bytes(s.liveBytes)), with headers and keys"],
            [
                "values",
                "\(bytes(s.rawBytes)), stored as \(bytes(s.storedBytes)) (\(percent(s.storedBytes, of: s.rawBytes)))",
            ],
            ["shards", "\(s.shards), eviction: \(s.eviction.name), dictionaries built: \(s.dictionaries)"],
            ["reads", "\(grouped(s.reads)), \(percent(s.found, of: s.reads)) of them hits"],
            ["hits", "\(grouped(s.hits)) fresh, \(grouped(s.staleHits)) stale"],
            [
                "misses",
                "\(grouped(s.absent)) absent, \(grouped(s.expired)) expired, \(grouped(s.invalidated)) invalidated, "
                    + "\(grouped(s.damaged)) damaged",
            ],
            [
                "writes",
                "\(grouped(s.sets)) sets, \(grouped(s.removes)) removals, \(grouped(s.invalidations)) invalidations",
            ],
            ["loads", "\(grouped(s.leases)) leases, \(grouped(s.conflicts)) refused"],
            ["left", "\(grouped(s.evictions)) evicted, \(grouped(s.expirations)) expired"],
        ]
        if s.evictedTimed > 0 {
            let idle = AgeArgument.text(milliseconds: Int64(clamping: s.evictedIdle / s.evictedTimed))
            let age = AgeArgument.text(milliseconds: Int64(clamping: s.evictedAge / s.evictedTimed))
            rows.append(["evicted", "on average \(age) after the set, \(idle) after the last use"])
        }
        rows.append([
            "upkeep",
            "\(bytes(s.cleanedBytes)) copied, \(s.rebuilds) rebuilds of shards, \(s.corruptRecords) damaged records",
        ])
        return rows.map { [Terminal.paint($0[0].padded(to: 8), .bold), $0[1]] }
    }
}

extension Eviction {
    var name: String { self == .lru ? "LRU" : "clock" }
}

/// A value in a JSON object.
enum Field: Encodable {
    case number(UInt64), text(String), flag(Bool)

    func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        switch self {
        case .number(let number): try container.encode(number)
        case .text(let text): try container.encode(text)
        case .flag(let flag): try container.encode(flag)
        }
    }
}

struct Top: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Shows the activity of a cache, one line per interval.",
        discussion: """
            Shows rates of the counters, which all users of the cache share. The counters do not measure time, so \
            there are no latencies. Ends with ^C, or after --count lines.
            """)

    @OptionGroup var path: CachePath
    @Option(help: "Time between two lines, such as 500ms or 5s.")
    var interval: AgeArgument = AgeArgument(argument: "1s").unsafelyUnwrapped
    @Option(help: "The number of lines.")
    var count: Int?

    func validate() throws {
        try interval.checkInterval()
        if let count, count < 1 { throw ValidationError("--count must be at least 1") }
    }

    private static let columns = [
        "reads/s", "hits", "sets/s", "removes/s", "evicted/s", "expired/s", "loads/s", "copied/s", "entries", "on disk",
    ]
    private static let width = 10

    func run() throws {
        var line = 0
        try watch(path, every: interval) { last, now, time in
            if line % 20 == 0 {
                try Output.shared.line(Terminal.paint(Top.columns.map { $0.right(in: Top.width) }.joined(), .bold))
            }
            try Output.shared.line(row(Change(from: last, to: now, in: time)).map { $0.right(in: Top.width) }.joined())
            try Output.shared.flush()
            line += 1
            return line < count ?? .max
        }
    }

    private func row(_ change: Change) -> [String] {
        func rate(_ of: (Statistics) -> UInt64) -> String { grouped(Int(change.rate(of).rounded())) }
        return [
            rate(\.reads), percent(change.rise(\.found), of: change.rise(\.reads)), rate(\.sets), rate(\.removes),
            rate(\.evictions), rate(\.expirations), rate(\.leases),
            ByteCount.text(Int(change.rate(\.cleanedBytes))), grouped(change.now.entries),
            ByteCount.text(change.now.diskBytes),
        ]
    }
}
