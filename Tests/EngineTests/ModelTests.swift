import Foundation
import ShaleTestSupport
import Testing

/// Random operations against a model of shale.h. SHALE_MODEL_OPERATIONS sets how
/// many for each seed, SHALE_MODEL_SEED the first of the ten seeds.
@Suite("Model", .serialized)
struct ModelTests {
    static let operations = ProcessInfo.processInfo.environment["SHALE_MODEL_OPERATIONS"].flatMap { Int($0) } ?? 2_000
    static let seeds = Array(testSeed..<testSeed + 10)

    static let fiftyEntries = ModelConfiguration(
        "fifty entries", Options(capacity: 8 << 20, maxEntries: 50, maxAge: 60_000, stale: 30_000),
        keys: 120, sizes: 1...400, limitedByEntriesAlone: true, maxPinned: 10)

    static let oneMebibyte = ModelConfiguration(
        "one mebibyte", Options(capacity: 1 << 20, segmentSize: 128 << 10),
        keys: 500, sizes: 1...8_000, limitedByEntriesAlone: false, maxPinned: 10)

    static let largeValues = ModelConfiguration(
        "values larger than a segment", Options(capacity: 6 << 20, stale: 20_000, segmentSize: 128 << 10),
        keys: 100, sizes: 1...400_000, limitedByEntriesAlone: false, maxPinned: 2)

    static let fourShards = ModelConfiguration(
        "four shards", Options(capacity: 32 << 20, maxEntries: 400, maxAge: 200_000, shards: 4),
        keys: 800, sizes: 1...1_000, limitedByEntriesAlone: true, maxPinned: 10)

    static let roomForAll = ModelConfiguration(
        "room for all", Options(capacity: 64 << 20), keys: 2_000, sizes: 1...2_000, limitedByEntriesAlone: true,
        maxPinned: 100)

    static let nothingEvicted = ModelConfiguration(
        "nothing evicted", Options(capacity: 64 << 20, shards: 2), keys: 1_000, sizes: 1...2_000,
        limitedByEntriesAlone: true,
        maxPinned: 100, evicts: false)

    @Test(
        "A cache limited by entries answers as the model does and evicts exactly the least recently used",
        arguments: seeds)
    func limitedByEntries(seed: UInt64) throws {
        try run(Self.fiftyEntries, seed)
    }

    @Test(
        "A cache limited by bytes answers as the model does and evicts exactly the least recently used",
        arguments: seeds)
    func limitedByBytes(seed: UInt64) throws {
        try run(Self.oneMebibyte, seed)
    }

    @Test("Values larger than a segment behave as small ones do", arguments: seeds)
    func largerThanASegment(seed: UInt64) throws {
        try run(Self.largeValues, seed)
    }

    @Test("Several shards answer as the model does and lose only evicted entries", arguments: seeds)
    func severalShards(seed: UInt64) throws {
        try run(Self.fourShards, seed)
    }

    @Test("A cache with room for everything never loses anything", arguments: seeds)
    func unlimited(seed: UInt64) throws {
        try run(Self.roomForAll, seed)
    }

    @Test("A cache that evicts nothing needs no tolerance, after rebuilds either", arguments: seeds)
    func withoutEvictions(seed: UInt64) throws {
        try run(Self.nothingEvicted, seed)
    }

    private func run(_ configuration: ModelConfiguration, _ seed: UInt64) throws {
        #expect(throws: Never.self) { try ModelRun(configuration, seed: seed).run(Self.operations) }
    }
}
