// The Swift half of test_fence_history_swift.py: a process that changes some keys of a cache and reads all of them with
// `Cache`, next to Python processes that do the same. The true value of each key is a number in a shared file that only
// grows.
//
//     HistoryLoader DIRECTORY FILE FIRST PROCESSES SEED
//
// Writes the keys FIRST, FIRST + PROCESSES, … Prints the number of reads, of loads that were not stored because of a
// change, and of reads that returned an older value than a change that had returned before they began.

import Foundation
import Shale
import Synchronization

#if canImport(Glibc)
import Glibc
#endif

let arguments = CommandLine.arguments
let first = Int(arguments[3])!, processes = Int(arguments[4])!, seed = UInt64(arguments[5])!
let keys = 8, least = 30

/// The words of the file: each key's true value, its last change that has returned, and the clears of each process.
/// (Loads and stores of single words are atomic.)
struct Shared: @unchecked Sendable {
    private let words: UnsafeMutablePointer<Int64>
    init(_ path: String) {
        let file = open(path, O_RDWR)
        let memory = mmap(nil, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)!
        words = memory.bindMemory(to: Int64.self, capacity: 2 * keys)
    }
    @inline(never) func truth(_ key: Int) -> Int64 { words[key] }
    @inline(never) func setTruth(_ key: Int, _ number: Int64) { words[key] = number }
    @inline(never) func noted(_ key: Int) -> Int64 { words[keys + key] }
    @inline(never) func setNoted(_ key: Int, _ number: Int64) { words[keys + key] = number }
    /// Counts the clears that have begun (0) and returned (1).
    @inline(never) func countClear(_ which: Int) { words[2 * keys + 2 * first + which] += 1 }
}

/// splitmix64
struct Chance: RandomNumberGenerator {
    var state: UInt64
    mutating func next() -> UInt64 {
        state &+= 0x9e37_79b9_7f4a_7c15
        var z = state
        z = (z ^ z >> 30) &* 0xbf58_476d_1ce4_e5b9
        z = (z ^ z >> 27) &* 0x94d0_49bb_1331_11eb
        return z ^ z >> 31
    }
    mutating func pause() -> Duration { .microseconds([0, 0, 300, 1000, 4000].randomElement(using: &self)!) }
    mutating func age() -> Age { [.milliseconds(3), .seconds(10)].randomElement(using: &self)! }
}

let shared = Shared(arguments[2])
let cache = try Cache<String, String>(at: arguments[1], maxAge: .seconds(10), staleFor: .seconds(10), maxEntries: nil)
let reads = Atomic(0), wrong = Mutex<[String]>([])
let begin = ContinuousClock.now

/// Runs until there were enough conflicts.
@Sendable func isGoing() -> Bool {
    let passed = ContinuousClock.now - begin
    return passed < .seconds(2.5) || cache.statistics.conflicts < least && passed < .seconds(50)
}

@Sendable func write(_ seed: UInt64) async throws {
    var chance = Chance(state: seed)
    while isGoing() {
        let key = Int.random(in: 0..<keys / processes, using: &chance) * processes + first
        let number = shared.truth(key) + 1
        shared.setTruth(key, number)
        try await Task.sleep(for: chance.pause())
        switch Int.random(in: 0..<10, using: &chance) {
        case 0..<3: try cache.removeAll(tagged: "tag \(key)")
        case 3..<6: try cache.removeValue(for: "\(key)")
        case 6..<9: try cache.insert("\(number)", for: "\(key)", maxAge: chance.age(), tags: ["tag \(key)"])
        default:
            shared.countClear(0)
            try cache.removeAll()
            shared.countClear(1)
        }
        shared.setNoted(key, number)
        try await Task.sleep(for: chance.pause())
    }
}

@Sendable func read(_ seed: UInt64) async throws {
    var chance = Chance(state: seed)
    let policies: [LoadPolicy] = [.default, .staleWhileRevalidate, .staleIfError]
    while isGoing() {
        let key = Int.random(in: 0..<keys, using: &chance)
        let pause = chance.pause(), age = chance.age()
        let options = LoadOptions(policies.randomElement(using: &chance)!)
        let least = shared.noted(key)
        let found = try await cache.value(for: "\(key)", options: options, maxAge: age, tags: ["tag \(key)"]) {
            let number = shared.truth(key)
            try await Task.sleep(for: pause)
            return "\(number)"
        }
        reads.add(1, ordering: .relaxed)
        if Int64(found)! < least { wrong.withLock { $0.append("\(key): \(found), not \(least)") } }
    }
}

try await withThrowingTaskGroup(of: Void.self) { group in
    group.addTask { try await write(seed) }
    for i in 1...4 { group.addTask { try await read(seed &+ UInt64(i)) } }
    try await group.waitForAll()
}
let found = wrong.withLock { $0 }
print(reads.load(ordering: .relaxed), cache.statistics.conflicts, found.count, found.prefix(3))
