import CShale
import Foundation

/// One kind of cache for random operations.
public struct ModelConfiguration: Sendable, CustomStringConvertible {
    public var name: String
    public var options: Options
    public var keys: Int
    public var sizes: ClosedRange<Int>
    /// Few enough bytes that only max_entries can push entries out.
    public var limitedByEntriesAlone: Bool
    public var maxPinned: Int
    /// Without evictions nothing may be missing and nothing may come back: no tolerance is left.
    public var evicts: Bool

    public init(
        _ name: String, _ options: Options, keys: Int, sizes: ClosedRange<Int>, limitedByEntriesAlone: Bool,
        maxPinned: Int,
        evicts: Bool = true
    ) {
        self.name = name
        self.options = options
        self.keys = keys
        self.sizes = sizes
        self.limitedByEntriesAlone = limitedByEntriesAlone
        self.maxPinned = maxPinned
        self.evicts = evicts
    }

    public var description: String { name }
}

/// The engine and the model disagreed. The message has everything that is needed to reproduce it.
public struct Disagreement: Error, CustomStringConvertible {
    public let description: String
}

/// Random operations on an engine and on its model, compared after each one.
public final class ModelRun {
    enum Operation {
        case set(key: Int, value: Value, options: SetOptions)
        case get(key: Int, flags: UInt32)
        case remove(key: Int, version: VersionChoice)
        case touch(key: Int, maxAge: Int64)
        case increment(key: Int, delta: Int64, initial: Int64)
        case getMany(keys: [Int], flags: UInt32)
        case setMany(keys: [Int], values: [Value], options: SetOptions)
        case removeMany(keys: [Int])
        case evict(Int)
        case invalidate(tag: Int)
        case purge, clear, walk, verify, reopen, rebuild
        case advance(Int64)
    }

    enum Value {
        case bytes([UInt8])
        case random(UInt64, Int)
        case text(UInt64, Int)
    }

    enum VersionChoice { case any, right, wrong }

    private let configuration: ModelConfiguration
    private var random: RandomSource
    private let clock = TestClock()
    private let directory = TemporaryDirectory()
    private var options: Options
    private var cache: TestCache
    private var model: ModelCache
    private let buffer = ValueBuffer()

    private var oneShard = true
    private var done = 0
    private var history: [Operation] = []
    private var lastEvictions: UInt64 = 0
    /// Entries that died by age or tag and are still counted by the engine.
    private var uncollected = 0
    /// At most this many of them died by a tag, which a purge need not collect.
    private var taggedUncollected = 0
    /// With several shards: evictions whose victims are not known yet.
    private var unresolved = 0
    /// Uses that this operation's own keys had before it.
    private var ownUses: [UInt64] = []

    /// Answers that are accepted although they differ from the model, each allowed by a heading of the documents, and
    /// how often.
    private enum Tolerance: String, CaseIterable {
        /// A set makes room before it looks for the key, which may be the next to go: design.md, "Set".
        case evictedItself = "a write evicted its own key first"
        /// With more than one shard, the order over the whole cache is approximate: limits.md, "Order, counts and
        /// eviction". One shard does without.
        case unordered = "evicted, with several shards"
        /// Evicted or expired entries may be indexed again: recovery.md, "A rebuild". `nothingEvicted` does without.
        case returned = "back after a rebuild"
        /// A rebuild evicts entries over the limits, in the order of writing: recovery.md, "A rebuild". `nothingEvicted`
        /// does without.
        case displaced = "displaced by a rebuild"
    }
    private var tolerances: [Tolerance: Int] = [:]
    private var looks = 0

    /// SHALE_MODEL_COMPARE_ALL=1 finds the exact operation that did the damage.
    private static let compareAllEvery =
        ProcessInfo.processInfo.environment["SHALE_MODEL_COMPARE_ALL"].flatMap { Int($0) } ?? 500

    private static let tags = (0..<6).map { "tag \($0)".bytes }

    public init(_ configuration: ModelConfiguration, seed: UInt64) throws {
        self.configuration = configuration
        random = RandomSource(seed)
        options = configuration.options
        options.clock = clock
        options.flags |= SHALE_OPEN_NO_SYNC
        cache = try TestCache(directory.path, options)
        model = ModelCache(now: clock.now, defaultMaxAge: options.maxAge, defaultStale: options.stale)
        oneShard = try cache.stats().shards == 1
    }

    public func run(_ operations: Int) throws {
        while done < operations {
            let operation = choose()
            if history.count == 60 { history.removeFirst(30) }
            history.append(operation)
            ownUses.removeAll(keepingCapacity: true)
            try perform(operation)
            done += 1
            if done % Self.compareAllEvery == 0 { try compareAll() }
        }
        try compareAll()
        if !configuration.evicts, !tolerances.isEmpty {
            throw disagreement("tolerances where nothing is evicted: \(tolerances)")
        }
        let used = Tolerance.allCases.compactMap { tolerance in
            tolerances[tolerance].map { "\(tolerance.rawValue) \($0)" }
        }
        print(
            "model, \(configuration.name): tolerances in \(looks) looks: \(used.isEmpty ? "none" : used.joined(separator: ", "))"
        )
    }

    // MARK: Choosing

    private func key(_ number: Int) -> [UInt8] {
        switch number % 50 {
        case 7: Array("key \(number) ".utf8) + [UInt8](repeating: UInt8(number & 255), count: 300)
        case 8: Array("key \(number) ".utf8) + [UInt8](repeating: 0, count: 5_000)
        case 9: [UInt8(number & 255), UInt8(number >> 8 & 255)]
        default: Array("key \(number)".utf8)
        }
    }

    private func anyKey() -> Int {
        // Half of the operations meet a fifth of the keys.
        random.chance(50) ? random.below(max(1, configuration.keys / 5)) : random.below(configuration.keys)
    }

    private func anyKeys() -> [Int] { (0..<random.within(1...20)).map { _ in anyKey() } }

    private func anyValue(_ sizes: ClosedRange<Int>) -> Value {
        if random.chance(10) { return .bytes(Int64(truncatingIfNeeded: random.next() >> 40).littleEndianBytes) }
        if random.chance(3) { return .bytes([]) }
        let size = random.logUniform(max(1, sizes.lowerBound)...sizes.upperBound)
        return random.chance(50) ? .random(random.next(), size) : .text(random.next(), size)
    }

    private func bytes(_ value: Value) -> [UInt8] {
        switch value {
        case .bytes(let bytes): bytes
        case .random(let identity, let size): Pool.random.value(identity, size).bytes
        case .text(let identity, let size): Pool.text.value(identity, size).bytes
        }
    }

    private func anyAge() -> Int64 {
        switch random.below(10) {
        case 0...4: 0
        case 5: none
        case 6: never
        case 7: Int64(random.within(1...100))
        case 8: Int64(random.within(1...5_000))
        default: Int64(random.within(1...500_000))
        }
    }

    private func anySetOptions(conditions: Bool, key: Int?) -> SetOptions {
        var options = SetOptions()
        if random.chance(50) { return options }
        if random.chance(60) {
            options.maxAge = anyAge()
            options.stale = anyAge()
        }
        if random.chance(30) { options.meta = random.bytes(random.below(40)) }
        if random.chance(40) { options.tags = (0..<random.within(1...3)).map { _ in Self.tags[random.below(6)] } }
        if key != nil, random.chance(10), model.pinnedCount < configuration.maxPinned {
            options.flags |= SHALE_SET_PINNED
        }
        if random.chance(10) { options.flags |= SHALE_SET_UNCOMPRESSED }
        if conditions, let key, random.chance(40) {
            switch random.below(4) {
            case 0: options.flags |= SHALE_SET_IF_ABSENT
            case 1: options.flags |= SHALE_SET_IF_PRESENT
            default:
                options.flags |= SHALE_SET_IF_VERSION
                let version = model.entries[self.key(key)]?.version ?? 0
                options.version = version == 0 || random.chance(30) ? model.lastVersion &+ 1_000_000 : version
            }
        }
        return options
    }

    private func choose() -> Operation {
        switch random.below(1000) {
        case ..<300:
            let key = anyKey()
            return .set(
                key: key, value: anyValue(configuration.sizes), options: anySetOptions(conditions: true, key: key))
        case ..<560: return .get(key: anyKey(), flags: random.chance(30) ? SHALE_GET_STALE : 0)
        case ..<600: return .get(key: anyKey(), flags: SHALE_GET_PEEK | (random.chance(50) ? SHALE_GET_STALE : 0))
        case ..<620: return .get(key: anyKey(), flags: SHALE_GET_INFO | (random.chance(50) ? SHALE_GET_STALE : 0))
        case ..<650: return .getMany(keys: anyKeys(), flags: random.chance(30) ? SHALE_GET_STALE : 0)
        case ..<670:
            let keys = anyKeys()
            let sizes = configuration.sizes.lowerBound...min(configuration.sizes.upperBound, 2_000)
            return .setMany(
                keys: keys, values: keys.map { _ in anyValue(sizes) },
                options: anySetOptions(conditions: false, key: nil))
        case ..<675: return .removeMany(keys: anyKeys())
        case ..<740:
            return .remove(key: anyKey(), version: random.chance(70) ? .any : random.chance(50) ? .right : .wrong)
        case ..<810: return .touch(key: anyKey(), maxAge: anyAge())
        case ..<880:
            let large = random.chance(3)
            return .increment(
                key: random.chance(70) ? random.below(10) : anyKey(),
                delta: large ? Int64.max - Int64(random.below(10)) : Int64(random.within(-1000...1000)),
                initial: random.chance(50) ? 0 : Int64(random.within(-50...50)))
        case ..<886 where configuration.evicts:
            return .evict(random.chance(90) ? random.below(8) : random.below(configuration.keys))
        case ..<892: return .invalidate(tag: random.below(Self.tags.count))
        case ..<898: return .purge
        case ..<899: return random.chance(30) ? .clear : .verify
        case ..<902: return .walk
        case ..<905: return random.chance(40) ? .reopen : random.chance(50) ? .rebuild : .walk
        default: return .advance(anyStep())
        }
    }

    /// Mostly small steps, and often exactly to where an entry changes its state.
    private func anyStep() -> Int64 {
        switch random.below(10) {
        case 0...2: return Int64(random.within(1...10))
        case 3...5: return Int64(random.within(1...1_000))
        case 6: return Int64(random.within(1...50_000))
        default:
            guard let entry = model.entries[key(anyKey())] else { return 1 }
            let changes: [Int64] = [entry.expires, entry.keptUntil].filter { $0 != never }
            let moments: [Int64] = changes.flatMap { (moment: Int64) -> [Int64] in [moment - 1, moment] }
            let near = moments.filter { $0 > clock.now && $0 < clock.now + 100_000 }
            return near.isEmpty ? 1 : near[random.below(near.count)] - clock.now
        }
    }

    // MARK: Performing

    private func perform(_ operation: Operation) throws {
        switch operation {
        case .set(let number, let value, let options):
            let key = key(number)
            let value = bytes(value)
            try resolve(key)
            noteOwnUse(key)
            let before = model
            var expected = model.set(key, value, options)
            let (status, version) = cache.store(key, value, options)
            if status != expected, try hasEvictedItself(key, before) { expected = model.set(key, value, options) }
            try expect("status", status, expected)
            if status == .ok, !model.setVersion(key, version) {
                throw disagreement(
                    "a set gave version \(version), which is not above all earlier ones (\(model.lastVersion))")
            }
        case .get(let number, let flags):
            try get(key(number), flags)
        case .remove(let number, let choice):
            let key = key(number)
            try resolve(key)
            let current = model.entries[key]?.version ?? 0
            let version =
                switch choice {
                case .any: UInt64(0)
                case .right: current
                case .wrong: current + 1
                }
            noteOwnUse(key)
            let before = model
            var expected = model.remove(key, version: version)
            let status = cache.remove(key, version: version)
            if status != expected, try hasEvictedItself(key, before) { expected = model.remove(key, version: version) }
            try expect("status", status, expected)
        case .touch(let number, let maxAge):
            let key = key(number)
            try resolve(key)
            noteOwnUse(key)
            let before = model
            var expected = model.touch(key, maxAge)
            let status = cache.touch(key, maxAge)
            if status != expected, try hasEvictedItself(key, before) { expected = model.touch(key, maxAge) }
            try expect("status", status, expected)
        case .increment(let number, let delta, let initial):
            let key = key(number)
            try resolve(key)
            noteOwnUse(key)
            let before = model
            var expected = model.increment(key, by: delta, from: initial)
            let (status, result) = cache.increment(key, by: delta, from: initial)
            if (status, result) != expected, try hasEvictedItself(key, before) {
                expected = model.increment(key, by: delta, from: initial)
            }
            try expect("status", status, expected.0)
            if status == .ok {
                try expect("result", result, expected.1)
                try learnVersion(key)
            }
        case .getMany(let numbers, let flags):
            let keys = numbers.map(key)
            for key in keys { try resolve(key) }
            let (status, lookups) = cache.getMany(keys, flags)
            try expect("status of the batch", status, .ok)
            for (key, lookup) in zip(keys, lookups) {
                let (expected, entry) = model.get(key, stale: flags & SHALE_GET_STALE != 0, peek: false)
                try compare(key, lookup, expected, entry, info: false)
            }
        case .setMany(let numbers, let values, let options):
            let keys = numbers.map(key)
            for key in keys {
                try resolve(key)
                noteOwnUse(key)
            }
            let values = values.map(bytes)
            for (key, value) in zip(keys, values) { try expect("the model", model.set(key, value, options), .ok) }
            let (status, statuses) = cache.setMany(keys, values, options)
            try expect("status of the batch", status, .ok)
            try expect("statuses", statuses, keys.map { _ in .ok })
            for key in Set(keys) { try learnVersion(key) }
        case .removeMany(let numbers):
            let keys = numbers.map(key)
            for key in keys { try resolve(key) }
            let (status, statuses) = cache.removeMany(keys)
            try expect("status of the batch", status, .ok)
            try expect("statuses", statuses, keys.map { model.remove($0, version: 0) })
        case .evict(let count):
            let unpinned = model.entries.count - model.pinnedCount
            let uncollectedBefore = uncollected
            let (status, evicted) = cache.evict(UInt64(count))
            try expect("status", status, .ok)
            guard evicted <= UInt64(count) else {
                throw disagreement("\(evicted) were evicted, asked for were \(count)")
            }
            if oneShard, uncollectedBefore == 0 {
                try expect("number of evicted entries", Int(evicted), min(count, unpinned))
            }
        case .invalidate(let tag):
            try expect("status", cache.invalidate(Self.tags[tag]), .ok)
            model.invalidate(Self.tags[tag])
        case .purge:
            let entriesBefore = try cache.stats().entries
            let uncollectedBefore = uncollected
            let (status, purged) = cache.purge()
            try expect("status", status, .ok)
            let entries = try cache.stats().entries
            if oneShard {
                guard purged <= UInt64(uncollectedBefore) else {
                    throw disagreement("purged \(purged), but only \(uncollectedBefore) were dead")
                }
                if taggedUncollected == 0 { try expect("purged", purged, entriesBefore - entries) }
                guard Int(entries) - model.entries.count <= taggedUncollected else {
                    throw disagreement(
                        "after a purge \(entries) entries are counted, \(model.entries.count) live and at most \(taggedUncollected) went by a tag"
                    )
                }
            }
        case .clear:
            try expect("status", cache.clear(), .ok)
            model.clear()
            try expect("entries after clear", try cache.stats().entries, 0)
            (uncollected, taggedUncollected, unresolved) = (0, 0, 0)
        case .walk:
            try compareAll()
        case .verify:
            let report = try cache.verify()
            try expect("corrupt records", report.corrupt_records, 0)
        case .reopen:
            try expect("close", cache.close(), .ok)
            cache = try TestCache(directory.path, options)
        case .rebuild:
            try rebuild()
        case .advance(let step):
            clock.advance(step)
            model.advance(to: clock.now)
        }
        try account(operation)
    }

    private func get(_ key: [UInt8], _ flags: UInt32) throws {
        try resolve(key)
        let status = cache.get(key, flags, into: buffer)
        let lookup = Lookup(status, buffer.raw, info: flags & SHALE_GET_INFO != 0)
        let (expected, entry) = model.get(key, stale: flags & SHALE_GET_STALE != 0, peek: flags & SHALE_GET_PEEK != 0)
        try compare(key, lookup, expected, entry, info: flags & SHALE_GET_INFO != 0)
    }

    /// A write may make room before it looks for its key, and the key may be the
    /// very next to go: then the call answers as if that had been evicted just before.
    /// Answers whether that is so, and takes the model back to there.
    private func hasEvictedItself(_ key: [UInt8], _ before: ModelCache) throws -> Bool {
        let evicted = Int(try cache.stats().evictions - lastEvictions)
        guard oneShard, evicted > 0, let entry = before.entries[key], !entry.pinned else { return false }
        guard before.entries.values.count(where: { !$0.pinned && $0.use < entry.use }) < evicted else { return false }
        model = before
        model.evict(key)
        tolerances[.evictedItself, default: 0] += 1
        return true
    }

    private func noteOwnUse(_ key: [UInt8]) {
        if let entry = model.entries[key] { ownUses.append(entry.use) }
    }

    /// For writes that do not return their version.
    private func learnVersion(_ key: [UInt8]) throws {
        guard model.entries[key] != nil else { return }
        let lookup = cache.get(key, SHALE_GET_PEEK | SHALE_GET_STALE | SHALE_GET_INFO)
        // A miss right after a write is detected by the accounting.
        guard lookup.status != .miss else { return }
        if lookup.version <= (model.entries[key]?.version ?? 0) {
            throw disagreement("a write left version \(lookup.version) of \(show(key))")
        }
        _ = model.setVersion(key, lookup.version)
    }

    // MARK: Comparing

    private func compare(_ key: [UInt8], _ lookup: Lookup, _ expected: Status, _ entry: ModelCache.Entry?, info: Bool)
        throws
    {
        looks += 1
        guard lookup.status == expected else {
            throw disagreement("\(show(key)) is \(lookup.status), should be \(expected); the model has \(show(entry))")
        }
        guard let entry else {
            if lookup.size != 0 || !lookup.meta.isEmpty { throw disagreement("a miss of \(show(key)) has a size") }
            return
        }
        if !info, lookup.value != entry.value {
            throw disagreement("\(show(key)) has another value: \(lookup.value), should be \(Blob(entry.value))")
        }
        guard lookup.size == entry.value.count, lookup.meta == entry.meta, lookup.isPinned == entry.pinned,
            lookup.isStale == (expected == .stale), lookup.expires == entry.expires, entry.created == lookup.created,
            entry.version == 0 || lookup.version == entry.version, lookup.storedSize <= UInt64(entry.value.count)
        else {
            throw disagreement("\(show(key)) is \(lookup), should be \(show(entry))")
        }
    }

    /// Compares the whole content with the model, by cursor.
    private func compareAll() throws {
        var found: [[UInt8]: Lookup] = [:]
        try cache.walk(SHALE_GET_STALE) { key, lookup in
            if let earlier = found.updateValue(lookup, forKey: key) {
                throw disagreement(
                    "a walk alone on the cache gave \(show(key)) twice: \(earlier.version) and \(lookup.version)")
            }
        }
        for (key, lookup) in found {
            guard let entry = model.entries[key] else {
                throw disagreement("the walk found \(show(key)), which should be dead")
            }
            try compare(key, lookup, model.state(entry) == .fresh ? .ok : .stale, entry, info: false)
        }
        for key in model.entries.keys where found[key] == nil {
            if oneShard {
                throw disagreement(
                    "the walk missed \(show(key)), a peek says \(cache.peek(key).status): \(show(model.entries[key]))")
            }
            unresolved -= 1
            tolerances[.unordered, default: 0] += 1
            model.evict(key)
        }
        if !oneShard {
            // The remaining ones must have met entries that had died by themselves.
            guard unresolved >= 0, unresolved <= uncollected else {
                throw disagreement("\(unresolved) evictions too \(unresolved < 0 ? "few" : "many") for the misses")
            }
            unresolved = 0
            uncollected = Int(try cache.stats().entries) - model.entries.count
            if uncollected < 0 { throw disagreement("\(-uncollected) entries are not counted") }
        }
    }

    /// With several shards: finds out whether this key has been evicted meanwhile.
    private func resolve(_ key: [UInt8]) throws {
        guard !oneShard, unresolved > 0, model.entries[key] != nil else { return }
        let flags = SHALE_GET_PEEK | SHALE_GET_STALE | SHALE_GET_INFO
        guard cache.get(key, flags, into: buffer) == .miss else { return }
        tolerances[.unordered, default: 0] += 1
        model.evict(key)
        unresolved -= 1
    }

    /// Compares the counters with the model after an operation, and finds out which entries were evicted: the least
    /// recently used, in order, and no others.
    private func account(_ operation: Operation) throws {
        let stats = try cache.stats()
        let evicted = Int(stats.evictions - lastEvictions)
        lastEvictions = stats.evictions
        let dead = model.takeDead()
        let uncollectedLimit = uncollected + dead.expired + dead.invalidated
        taggedUncollected += dead.invalidated
        if configuration.options.maxEntries > 0, stats.entries > configuration.options.maxEntries {
            throw disagreement("\(stats.entries) entries, allowed are \(configuration.options.maxEntries)")
        }
        guard oneShard else {
            unresolved += evicted
            uncollected = uncollectedLimit
            return
        }

        var victims: [[UInt8]] = []
        var firstLeft = UInt64.max
        if evicted > 0 {
            let flags = SHALE_GET_PEEK | SHALE_GET_STALE | SHALE_GET_INFO
            var looked = 0
            var passedOver: [UInt8]?
            var tooNew: [UInt8]?
            model.fromOldest { key, entry in
                looked += 1
                if cache.get(key, flags, into: buffer) == .miss {
                    if passedOver == nil { victims.append(key) } else { tooNew = tooNew ?? key }
                } else if passedOver == nil {
                    passedOver = key
                    firstLeft = entry.use
                }
                return looked <= evicted + 2
            }
            if let passedOver, let tooNew {
                throw disagreement(
                    "\(show(tooNew)) was evicted before the less recently used \(show(passedOver)), after \(victims.count) rightly evicted: \(show(model.entries[tooNew])); \(show(model.entries[passedOver]))"
                )
            }
            for key in victims { model.evict(key) }
            // If a set replaces the oldest entry, that one may have been evicted first.
            let own = ownUses.count { $0 < firstLeft }
            guard victims.count <= evicted, evicted <= victims.count + uncollectedLimit + own else {
                throw disagreement(
                    "\(evicted) evictions, but of the least recently used \(victims.count) are evicted; next would be \(show(model.oldest()))"
                )
            }
        }
        let live = model.entries.count
        guard Int(stats.entries) >= live, Int(stats.entries) <= live + uncollectedLimit else {
            throw disagreement(
                "\(stats.entries) entries are counted, \(live) live and at most \(uncollectedLimit) are dead and may still count; \(evicted) evictions, victims \(victims.map(show))"
            )
        }
        if configuration.limitedByEntriesAlone, evicted > 0, uncollectedLimit == 0,
            Int(stats.entries) != configuration.options.maxEntries
        {
            if case .evict = operation {
            } else {
                throw disagreement(
                    "\(evicted) evictions where \(stats.entries) of \(configuration.options.maxEntries) entries are left"
                )
            }
        }
        uncollected = Int(stats.entries) - live
        taggedUncollected = min(taggedUncollected, uncollected)
    }

    // MARK: Rebuild

    /// Closes, deletes the index, opens. Evicted entries may be back; removed, replaced, invalidated and expired ones
    /// may not; no value may have changed.
    private func rebuild() throws {
        if !oneShard { try compareAll() }
        try expect("close", cache.close(), .ok)
        try CacheFiles(directory.path).removeIndex()
        cache = try TestCache(directory.path, options)
        // Expired entries come back too, invisible, and under a limit of entries they displace others.
        let mustBeComplete =
            model.recallable.isEmpty && uncollected == 0 && (options.maxEntries == 0 || !model.hasExpired)

        let found = try cache.entries()
        for (key, lookup) in found {
            if model.entries[key] == nil, model.recallable[key] != nil {
                model.recall(key)
                tolerances[.returned, default: 0] += 1
            }
            guard let entry = model.entries[key] else {
                throw disagreement("after a rebuild \(show(key)) is back: \(lookup)")
            }
            try compare(key, lookup, model.state(entry) == .fresh ? .ok : .stale, entry, info: false)
        }
        let missing = model.entries.keys.filter { found[$0] == nil }
        if mustBeComplete, let key = missing.first {
            throw disagreement(
                "after a rebuild \(missing.count) entries are missing, one is \(show(key)): \(show(model.entries[key]))"
            )
        }
        if let key = missing.first(where: { model.entries[$0]!.pinned }) {
            throw disagreement("after a rebuild the pinned \(show(key)) is missing")
        }
        for key in missing { model.evict(key) }
        if !missing.isEmpty { tolerances[.displaced, default: 0] += missing.count }
        _ = model.takeDead()

        let stats = try cache.stats()
        try expect("corrupt records after a rebuild", stats.corrupt_records, 0)
        uncollected = Int(stats.entries) - model.entries.count
        if uncollected < 0 { throw disagreement("\(-uncollected) entries are not counted after a rebuild") }
        taggedUncollected = uncollected
        lastEvictions = stats.evictions
        unresolved = 0

        // A rebuild has its own order of use (that of the log): makes one that the model knows.
        for key in model.entries.keys.sorted(by: { $0.lexicographicallyPrecedes($1) }).shuffled(using: &random) {
            try get(key, SHALE_GET_STALE)
        }
    }

    // MARK: Descriptions

    private func expect<T: Equatable>(_ what: String, _ found: T, _ expected: T) throws {
        if found != expected { throw disagreement("\(what) is \(found), should be \(expected)") }
    }

    private func show(_ key: [UInt8]?) -> String {
        guard let key else { return "nothing" }
        return "\"\(String(decoding: key.prefix(12), as: UTF8.self))\"\(key.count > 12 ? " (\(key.count) bytes)" : "")"
    }

    private func show(_ entry: ModelCache.Entry?) -> String {
        guard let entry else { return "nothing" }
        return
            "version \(entry.version), \(entry.value.count) bytes, meta \(entry.meta), pinned \(entry.pinned), created \(entry.created), expires \(entry.expires), kept until \(entry.keptUntil)"
    }

    private func disagreement(_ text: String) -> Disagreement {
        let recent = history.suffix(25).map { "    \($0)" }.joined(separator: "\n")
        let error = lastError()
        return Disagreement(
            description: """
                \(text)
                at operation \(done), now \(clock.now), "\(configuration.name)": run again with SHALE_MODEL_SEED=\(random.seed)
                last error of this thread: \(error.isEmpty ? "none" : error)
                the last operations:
                \(recent)
                """)
    }
}
