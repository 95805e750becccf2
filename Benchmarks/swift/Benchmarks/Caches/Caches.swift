import Benchmark
import Foundation

// Names are work, kind of value, and subject: each runs in a process of its own, and the report takes them apart.
let benchmarks: @Sendable () -> Void = {
    // The first samples warm caches, and do not count.
    Benchmark.defaultConfiguration = .init(
        metrics: [.throughput, .wallClock], timeUnits: .nanoseconds, warmupIterations: 30, maxDuration: .seconds(2),
        maxIterations: 100_000)
    // A file each, which Foundation syncs: more would take long to make.
    let files = 2000

    // Values that were decoded before.
    measure(gets: "memory", "Shale") { try ShaleSubject<Article>(memoryEntries: .max, in: $0) }
    measure(gets: "memory", "MemoryCache") { _ in MemoryCacheSubject<Article>() }
    measure(gets: "memory", "NSCache") { _ in NSCacheSubject<Article>() }
    measure(gets: "memory", "dictionary") { _ in DictionarySubject<Article>() }
    measure(sets: "memory", "Shale") { try ShaleSubject<Article>(memoryEntries: .max, in: $0) }
    measure(sets: "memory", "MemoryCache") { _ in MemoryCacheSubject<Article>() }
    measure(sets: "memory", "NSCache") { _ in NSCacheSubject<Article>() }
    measure(sets: "memory", "dictionary") { _ in DictionarySubject<Article>() }

    // Values that are encoded to 1 KiB of JSON, and decoded with each get.
    measure(gets: "codable", "Shale") { try ShaleSubject<Article>(in: $0) }
    measure(gets: "codable", "GRDB") { try GRDBSubject<Article>(in: $0) }
    measure(gets: "codable", "files", entries: files) { FileSubject<Article>(in: $0) }
    measure(sets: "codable", "Shale") { try ShaleSubject<Article>(in: $0) }
    measure(sets: "codable", "GRDB") { try GRDBSubject<Article>(in: $0) }
    measure(sets: "codable", "files", entries: files) { FileSubject<Article>(in: $0) }

    // 1 KiB as it is.
    measure(gets: "data", "Shale") { try ShaleSubject<Data>(in: $0) }
    measure(gets: "data", "GRDB") { try GRDBSubject<Data>(in: $0) }
    measure(gets: "data", "files", entries: files) { FileSubject<Data>(in: $0) }
    measure(sets: "data", "Shale") { try ShaleSubject<Data>(in: $0) }
    measure(sets: "data", "GRDB") { try GRDBSubject<Data>(in: $0) }
    measure(sets: "data", "files", entries: files) { FileSubject<Data>(in: $0) }

    measureOneLoad(tasks: 10_000)
    measureAllocations()
}
