import Glibc

/// The headers of a cache's files, read as Documentation/internals/format.md describes them, without opening the cache.
struct Layout {
    static let indexVersion: UInt64 = 17

    struct Shard: Encodable {
        let entries, liveBytes, pinnedBytes, segments, freeFrames: Int
        /// Bytes of the log without a live record, including the unused ends of segments.
        let deadBytes: Int
    }

    let formatVersion, shards, segmentSize, rows, dictionaryFrames, dictionarySize: Int
    let capacity: UInt64
    /// Whether there is an index, and whether it has the version that this code reads.
    let hasIndex, knowsIndex: Bool
    /// The index's version; 0 without one.
    let indexVersion: UInt64
    let perShard: [Shard]
    /// The numbers of the dictionaries in use.
    let dictionaries: [Int]

    init(_ directory: String) throws {
        let data = try Words("\(directory)/shale.data", 4096)
        let second = data[2048 + 16, or: 0], first = data[16, or: 0]
        // The copy with the higher sequence. Even sequences are at 2,048.
        let at = second > first ? 2048 : 0
        formatVersion = Int(clamping: data.half(at + 8))
        capacity = data[at + 32, or: 0]
        shards = Int(data.half(at + 48))
        segmentSize = Int(data.half(at + 52))
        rows = Int(data.half(at + 80))
        dictionaryFrames = Int(data.half(at + 88))
        dictionarySize = Int(data.half(at + 92))
        // These values have not been validated.
        guard (1...1 << 16).contains(shards), (1...1 << 16).contains(rows), (1...16 << 20).contains(segmentSize) else {
            throw ToolFailure(.badData, "\(directory)/shale.data does not have the header of a cache")
        }
        let path = "\(directory)/shale.index"
        guard let head = try? Words(path, 4096) else {
            (hasIndex, knowsIndex, indexVersion, perShard, dictionaries) = (false, false, 0, [], [])
            return
        }
        hasIndex = true
        indexVersion = head[8, or: 0]
        knowsIndex = indexVersion == Layout.indexVersion
        guard knowsIndex else {
            (perShard, dictionaries) = ([], [])
            return
        }
        let firstRows = Int(data.half(at + 112))
        let share = (firstRows == 0 ? rows : firstRows * 4) * segmentSize / 4
        let begin = Layout.up(Layout.up(2304 + rows * 12, 8) + rows, 64)
        let leases = min(max(share / (48 << 10), 5), 320) * 384, writers = min(max(share / (240 << 10), 4), 64) * 256
        let fences = min(max(share / 100 / 64, 128), 65_536) * 64
        let region = Layout.up(begin + leases + writers + fences + 1024, 4096)
        var perShard: [Shard] = []
        for shard in 0..<shards {
            let header = try Words(path, at: 12288 + shard * region, 2048)
            func word(_ offset: Int) -> Int { Int(clamping: header[offset, or: 0]) }
            let live = word(208), frames = word(296), head = word(264), tail = word(280)
            // From the tail's offset to the head's; implausible values count as 0.
            let log =
                frames < 1 || frames > rows
                ? 0 : (frames - 1) * segmentSize + min(head, segmentSize) - min(tail, segmentSize)
            perShard.append(
                Shard(
                    entries: word(200), liveBytes: live, pinnedBytes: word(360), segments: frames,
                    freeFrames: word(248), deadBytes: max(0, log - live)))
        }
        self.perShard = perShard
        dictionaries = (0..<min(16, dictionaryFrames)).map { Int(clamping: head[704 + $0 * 8, or: 0]) }
            .filter { $0 != 0 }
    }

    private static func up(_ bytes: Int, _ to: Int) -> Int { (bytes + to - 1) / to * to }
}

/// A part of a file, up to the file's end.
private struct Words {
    private let bytes: [UInt8]

    init(_ path: String, at offset: Int = 0, _ count: Int) throws {
        let descriptor = open(path, O_RDONLY | O_CLOEXEC)
        if descriptor < 0 { throw ToolFailure("cannot open \(path)") }
        defer { close(descriptor) }
        bytes = [UInt8](unsafeUninitializedCapacity: count) { buffer, filled in
            filled = max(0, pread(descriptor, buffer.baseAddress, count, offset))
        }
    }

    subscript(offset: Int) -> UInt64? {
        guard offset >= 0, offset + 8 <= bytes.count else { return nil }
        return bytes.withUnsafeBytes { $0.loadUnaligned(fromByteOffset: offset, as: UInt64.self) }
    }
    subscript(offset: Int, or other: UInt64) -> UInt64 { self[offset] ?? other }
    func half(_ offset: Int) -> UInt32 { UInt32(truncatingIfNeeded: self[offset, or: 0]) }
}
