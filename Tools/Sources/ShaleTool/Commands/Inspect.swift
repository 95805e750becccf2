import ArgumentParser
import ShaleCore

/// Entries with values of about the same size.
struct SizeClass: Encodable {
    /// The size of a value in bytes is below this, and at least half of it.
    let below: Int
    var entries = 0, rawBytes = 0, storedBytes = 0

    var name: String { below == 1 ? "empty" : "< \(ByteCount.text(below))" }
}

struct AgeClass: Encodable {
    /// The time since the set, in milliseconds, is below this; nil: the rest.
    let below: Int64?
    var entries = 0

    var name: String { below.map { "< \(AgeArgument.text(milliseconds: $0))" } ?? "older" }
}

/// The result of iterating over the whole cache.
struct Inspection: Encodable {
    let cache: String
    let formatVersion, shards, segmentSize, dictionaryFrames, dictionarySize: Int
    let dictionaries: [Int]
    let perShard: [Layout.Shard]
    var sizes: [SizeClass] = []
    var ages: [AgeClass] = [
        3_600_000, 6 * 3_600_000, 86_400_000, 7 * 86_400_000, 30 * 86_400_000, nil,
    ].map { AgeClass(below: $0) }
    var stale = 0, pinned = 0, neverExpire = 0

    init(of store: Store, at path: String) throws {
        let layout = try Layout(path)
        cache = path
        (formatVersion, shards, segmentSize) = (layout.formatVersion, layout.shards, layout.segmentSize)
        (dictionaryFrames, dictionarySize) = (layout.dictionaryFrames, layout.dictionarySize)
        (dictionaries, perShard) = (layout.dictionaries, layout.perShard)
        let total = Int(clamping: try store.statistics().entries), now = store.now
        var sizes: [Int: SizeClass] = [:], seen = 0
        try walk(store, includingStale: true) { _, entry, _ in
            seen += 1
            Terminal.progress(seen, of: total, "reading")
            // Empty values have a class of their own, below 1 byte.
            let bits = Int.bitWidth - entry.size.leadingZeroBitCount
            sizes[bits, default: SizeClass(below: 1 << bits)].entries += 1
            sizes[bits]?.rawBytes += entry.size
            sizes[bits]?.storedBytes += entry.storedSize
            let age = now - entry.createdAt
            if let i = ages.firstIndex(where: { $0.below.map { age < $0 } ?? true }) { ages[i].entries += 1 }
            if entry.isStale { stale += 1 }
            if entry.isPinned { pinned += 1 }
            if entry.expiresAt == nil { neverExpire += 1 }
            return true
        }
        Terminal.endProgress()
        self.sizes = sizes.sorted { $0.key < $1.key }.map(\.value)
    }
}

struct Inspect: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Shows the structure of a cache: shards, segments, sizes, ages, compression.",
        discussion: """
            Reads the whole cache. The data of shards comes from the index; during writes, the numbers of one line may \
            be from slightly different times.
            """)

    @OptionGroup var path: CachePath
    @Flag(help: "As one JSON object.")
    var json = false
    @Flag(help: "As a self-contained HTML page.")
    var html = false

    func validate() throws {
        if json, html { throw ValidationError("use either --json or --html") }
    }

    func run() throws {
        let found = try Inspection(of: path.openToRead(), at: path.cache)
        if json { return try Output.shared.json(found) }
        if html {
            var page = Page(about: path.cache)
            found.draw(on: &page)
            return try Output.shared.write(Array(page.text.utf8))
        }
        try show(found)
    }

    private func show(_ found: Inspection) throws {
        let summary = [
            ["cache", path.cache], ["format", "\(found.formatVersion)"],
            ["shards", "\(found.shards), segments of \(ByteCount.text(found.segmentSize))"],
            [
                "dictionaries",
                found.dictionaryFrames == 0
                    ? "none: the cache is too small"
                    : "\(found.dictionaries.count) of \(found.dictionaryFrames), "
                        + "\(ByteCount.text(found.dictionarySize)) each",
            ],
            [
                "entries",
                "\(grouped(found.stale)) stale, \(grouped(found.pinned)) pinned, "
                    + "\(grouped(found.neverExpire)) never expire",
            ],
        ]
        for line in table(summary) { try Output.shared.line(line) }

        try heading("Shards")
        if found.perShard.isEmpty {
            try Output.shared.line("The index is missing, or has a version that this tool does not know.")
        } else {
            let rows = found.perShard.enumerated().map { i, shard in
                [
                    "\(i)", grouped(shard.entries), "\(shard.segments)", "\(shard.freeFrames)",
                    ByteCount.text(shard.liveBytes), ByteCount.text(shard.deadBytes),
                    ByteCount.text(shard.pinnedBytes), bar(shard.liveBytes, of: shard.liveBytes + shard.deadBytes),
                ]
            }
            let names = ["shard", "entries", "segments", "free", "live", "dead", "pinned", "live of the log"]
            for line in table([names] + rows, right: 0...6) { try Output.shared.line(line) }
        }

        try heading("Sizes and compression")
        let most = found.sizes.map(\.entries).max() ?? 0
        let sizes = found.sizes.map { each in
            [
                each.name, grouped(each.entries),
                ByteCount.text(each.rawBytes), ByteCount.text(each.storedBytes),
                percent(each.storedBytes, of: each.rawBytes), bar(each.entries, of: most),
            ]
        }
        for line in table([["value", "entries", "bytes", "stored", "of it", ""]] + sizes, right: 0...4) {
            try Output.shared.line(line)
        }

        try heading("Ages")
        let oldest = found.ages.map(\.entries).max() ?? 0
        let ages = found.ages.map { each in
            [
                each.name, grouped(each.entries),
                bar(each.entries, of: oldest),
            ]
        }
        for line in table([["since set", "entries", ""]] + ages, right: 0...1) { try Output.shared.line(line) }
    }

    private func heading(_ text: String) throws {
        try Output.shared.line("")
        try Output.shared.line(Terminal.paint(text, .bold))
    }

    private func bar(_ part: Int, of whole: Int) -> String {
        whole == 0 ? "" : String(repeating: "#", count: (part * 24 + whole - 1) / whole)
    }
}
