import Benchmark
import Foundation

// Names are work, kind of value, and subject; the report parses them. Each benchmark runs in its own process.
let benchmarks: @Sendable () -> Void = {
    // The first samples warm caches and are discarded.
    Benchmark.defaultConfiguration = .init(
        metrics: [.throughput, .wallClock], timeUnits: .nanoseconds, warmupIterations: 30, maxDuration: .seconds(2),
        maxIterations: 100_000)
    // One file per entry, which Foundation syncs: creating more would take too long.
    let files = 2000

    // Decoded values.
    measure(gets: "memory", "Shale") { try ShaleSubject<Article>(memoryEntries: .max, in: $0) }
    measure(gets: "memory", "MemoryCache") { _ in MemoryCacheSubject<Article>() }
    measure(gets: "memory", "NSCache") { _ in NSCacheSubject<Article>() }
    measure(gets: "memory", "dictionary") { _ in DictionarySubject<Article>() }
    measure(sets: "memory", "Shale") { try ShaleSubject<Article>(memoryEntries: .max, in: $0) }
    measure(sets: "memory", "MemoryCache") { _ in MemoryCacheSubject<Article>() }
    measure(sets: "memory", "NSCache") { _ in NSCacheSubject<Article>() }
    measure(sets: "memory", "dictionary") { _ in DictionarySubject<Article>() }

    // Values encoded as 1 KiB of JSON, and decoded in each get.
    measure(gets: "codable", "Shale") { try ShaleSubject<Article>(in: $0) }
    measure(gets: "codable", "GRDB") { try GRDBSubject<Article>(in: $0) }
    measure(gets: "codable", "files", entries: files) { FileSubject<Article>(in: $0) }
    measure(sets: "codable", "Shale") { try ShaleSubject<Article>(in: $0) }
    measure(sets: "codable", "GRDB") { try GRDBSubject<Article>(in: $0) }
    measure(sets: "codable", "files", entries: files) { FileSubject<Article>(in: $0) }

    // 1 KiB of raw bytes.
    measure(gets: "data", "Shale") { try ShaleSubject<Data>(in: $0) }
    measure(gets: "data", "GRDB") { try GRDBSubject<Data>(in: $0) }
    measure(gets: "data", "files", entries: files) { FileSubject<Data>(in: $0) }
    measure(sets: "data", "Shale") { try ShaleSubject<Data>(in: $0) }
    measure(sets: "data", "GRDB") { try GRDBSubject<Data>(in: $0) }
    measure(sets: "data", "files", entries: files) { FileSubject<Data>(in: $0) }

    measureOneLoad(tasks: 10_000)
    measureAllocations()
}
