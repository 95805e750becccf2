import Foundation
import Testing
import Shale
@testable import ShaleAdapters

@Suite("Beagle: the cache manager")
struct BeagleCacheManagerTests {
    private let directory = BeagleSupport.TemporaryDirectory()
    private let clock = BeagleSupport.TestClock()

    private func manager(memory: Int = 15, disk: Int = 150, maxAge: Int = 300) throws -> CacheManager {
        try CacheManager(
            at: directory.url,
            config: .init(memoryMaximumCapacity: memory, diskMaximumCapacity: disk, cacheMaxAge: maxAge), now: clock.now
        ) { error in
            Issue.record(error)
        }
    }

    private func diskManager(_ capacity: Int = 150) throws -> CacheDiskManager {
        try CacheDiskManager(at: directory.url, maximumCapacity: capacity, now: clock.now) { error in
            Issue.record(error)
        }
    }

    private func reference(_ identifier: String, _ text: String = "{}", hash: String = "h", maxAge: Int? = nil)
        -> CacheReference
    {
        CacheReference(
            identifier: identifier, data: Data(text.utf8), hash: hash, maxAge: maxAge, timeOfCreation: clock.date)
    }

    @Test("B1 Defaults: 15 references in memory, 150 on disk, a max age of 300 s")
    func defaults() throws {
        let manager = try CacheManager(at: directory.url, now: clock.now)
        for i in 0...150 { manager.addToCache(reference("\(i)")) }
        #expect(manager.diskManager.numberOfReferences() == 150)
        try diskManager().clear()
        #expect((0...150).filter { manager.getReference(identifiedBy: "\($0)") != nil } == Array(136...150))

        let new = reference("new")
        clock.advance(seconds: 299)
        #expect(manager.isValid(reference: new))
        clock.advance(seconds: 1)
        #expect(!manager.isValid(reference: new))
    }

    @Test("B2 addToCache writes to memory and to disk")
    func addToCache() throws {
        let manager = try manager(), a = reference("a")
        manager.addToCache(a)
        #expect(manager.diskManager.getReference(for: "a") == a)
        // Like another process.
        try diskManager().clear()
        #expect(manager.getReference(identifiedBy: "a") == a)
    }

    @Test("B3 getReference reads from memory, then from disk, and keeps the result in memory")
    func memoryThenDisk() throws {
        let manager = try manager(memory: 1), inMemory = reference("a", "memory"), onDisk = reference("a", "disk")
        manager.addToCache(inMemory)
        manager.diskManager.update(onDisk)
        #expect(manager.getReference(identifiedBy: "a") == inMemory)
        manager.addToCache(reference("b"))
        #expect(manager.getReference(identifiedBy: "a") == onDisk)
        try diskManager().clear()
        #expect(manager.getReference(identifiedBy: "a") == onDisk)
        #expect(manager.getReference(identifiedBy: "b") == nil)
    }

    @Test(
        "B4 Both tiers evict the least recently used beyond their capacity, in 2,000 random steps; capacity 0 keeps nothing",
        arguments: [0, 1, 2, 5, 40], [true, false])
    func leastRecentlyUsed(capacity: Int, inMemory: Bool) throws {
        let manager = try inMemory ? manager(memory: capacity, disk: 0) : manager(memory: 0, disk: capacity)
        var random = BeagleSupport.Random(state: UInt64(capacity))
        var model: [CacheReference] = [] // the most recently used last
        for step in 0..<2_000 {
            let identifier = "\(Int.random(in: 0..<capacity * 2 + 2, using: &random))"
            let present = model.firstIndex { $0.identifier == identifier }.map { model.remove(at: $0) }
            if Bool.random(using: &random) {
                let new = reference(identifier, "\(step)")
                manager.addToCache(new)
                model.append(new)
                if model.count > capacity { model.removeFirst() }
            } else {
                try #require(manager.getReference(identifiedBy: identifier) == present, "step \(step)")
                if let present { model.append(present) }
            }
        }
        #expect(manager.diskManager.numberOfReferences() == (inMemory ? 0 : capacity))
    }

    @Test("B5 Memory 2, disk 0: after inserting 1 and 2 and reading 1, 3 replaces 2")
    func memoryOnly() throws {
        let manager = try manager(memory: 2, disk: 0), one = reference("1"), three = reference("3")
        manager.addToCache(one)
        manager.addToCache(reference("2"))
        #expect(manager.getReference(identifiedBy: "1") == one)
        manager.addToCache(three)
        #expect(manager.getReference(identifiedBy: "2") == nil)
        #expect(manager.getReference(identifiedBy: "1") == one)
        #expect(manager.getReference(identifiedBy: "3") == three)
    }

    @Test(
        "B6 The same identifier replaces data and hash, and evicts nothing",
        arguments: [(15, 3), (3, 0), (0, 3)])
    func replacing(memory: Int, disk: Int) throws {
        let manager = try manager(memory: memory, disk: disk)
        for identifier in ["a", "b", "c"] { manager.addToCache(reference(identifier)) }
        let new = reference("b", "new", hash: "new hash", maxAge: 7)
        manager.addToCache(new)
        #expect(manager.diskManager.numberOfReferences() == disk)
        #expect(manager.getReference(identifiedBy: "b") == new)
        #expect(manager.getReference(identifiedBy: "a") != nil)
        #expect(manager.getReference(identifiedBy: "c") != nil)
    }

    @Test("B7 The disk tier never holds more references than its capacity after a write", arguments: [1, 2, 7, 33])
    func diskCapacity(capacity: Int) async throws {
        do {
            let disk = try diskManager(capacity)
            for i in 0..<3 * capacity {
                disk.update(reference("\(i)"))
                #expect(disk.numberOfReferences() == min(i + 1, capacity))
            }
            await withTaskGroup(of: Void.self) { group in
                for task in 0..<4 {
                    group.addTask {
                        for i in 0..<100 {
                            disk.update(reference("\(task) \(i)"))
                            #expect(disk.numberOfReferences() <= capacity)
                        }
                    }
                }
            }
            // In many pieces, but one reference.
            disk.update(reference("large", String(repeating: "large", count: 1_000_000)))
            #expect(disk.numberOfReferences() == capacity)
            #expect(disk.getReference(for: "large")?.data.count == 5_000_000)
        }
        for other in [capacity / 2 + 1, capacity + 3] {
            let disk = try diskManager(other)
            for i in 0..<2 * other {
                disk.update(reference("again \(i % other)"))
                #expect(disk.numberOfReferences() <= other)
            }
            #expect(disk.numberOfReferences() == other)
        }
    }

    @Test("B7 The disk tier has one order and one limit at every size")
    func oneShard() throws {
        do { _ = try diskManager(1_000_000) }
        #expect(try Store(at: directory.url.path).statistics().shards == 1)
    }

    @Test("B8 removeLastUsed deletes the least recently used reference")
    func removeLastUsed() throws {
        let disk = try diskManager()
        for identifier in ["a", "b", "c"] { disk.update(reference(identifier)) }
        _ = disk.getReference(for: "a")
        disk.update(reference("b", "new"))
        for (victim, left) in [("c", 2), ("a", 1), ("b", 0), ("nothing", 0)] {
            disk.removeLastUsed()
            #expect(disk.getReference(for: victim) == nil)
            #expect(disk.numberOfReferences() == left)
        }
    }

    @Test("The disk manager also removes from the manager's memory: the least recently used, and all")
    func removedFromBoth() throws {
        let manager = try manager()
        for identifier in ["a", "b", "é"] { manager.addToCache(reference(identifier)) }
        _ = manager.getReference(identifiedBy: "a")
        manager.diskManager.removeLastUsed()
        #expect(manager.getReference(identifiedBy: "b") == nil)
        manager.diskManager.removeLastUsed()
        #expect(manager.getReference(identifiedBy: "é") == nil)
        #expect(manager.getReference(identifiedBy: "a") != nil)
        manager.addToCache(reference("b"))
        manager.diskManager.clear()
        for identifier in ["a", "b", "é"] { #expect(manager.getReference(identifiedBy: identifier) == nil) }

        let memoryOnly = try CacheManager(
            at: BeagleSupport.TemporaryDirectory().url, config: .init(diskMaximumCapacity: 0), now: clock.now)
        memoryOnly.addToCache(reference("a"))
        memoryOnly.diskManager.clear()
        #expect(memoryOnly.getReference(identifiedBy: "a") == nil)
    }

    @Test("B1 an omitted capacity on disk is 150 in a new directory, and unchanged in an existing one")
    func defaultCapacity() throws {
        let directory = BeagleSupport.TemporaryDirectory()
        for capacity in [400, 20] {
            let large = try CacheManager(at: directory.url, config: .init(diskMaximumCapacity: capacity))
            for i in 0..<capacity { large.addToCache(reference("\(i)")) }
            // While another manager has it open, and after that.
            let beside = try CacheManager(at: directory.url)
            beside.addToCache(reference("0"))
            #expect(beside.diskManager.numberOfReferences() == capacity)
        }
        let after = try CacheDiskManager(at: directory.url)
        for i in 0..<200 { after.update(reference("\(i)")) }
        #expect(after.numberOfReferences() == 20)
        let fresh = try CacheManager(at: BeagleSupport.TemporaryDirectory().url)
        #expect(CacheManager.Config().diskMaximumCapacity == 150)
        for i in 0..<200 { fresh.addToCache(reference("\(i)")) }
        #expect(fresh.diskManager.numberOfReferences() == 150)
    }

    @Test("A manager in memory needs no directory")
    func memoryAlone() throws {
        let manager = try CacheManager.inMemory(memoryMaximumCapacity: 2, cacheMaxAge: 5, now: clock.now)
        for i in 0..<3 { manager.addToCache(reference("\(i)")) }
        #expect(manager.getReference(identifiedBy: "0") == nil && manager.getReference(identifiedBy: "2") != nil)
        #expect(manager.diskManager.numberOfReferences() == 0 && manager.config.diskMaximumCapacity == 0)
        #expect(throws: ShaleError.self) { try CacheManager.inMemory(memoryMaximumCapacity: -1) }
    }

    @Test("Any identifier works, also the empty one")
    func emptyIdentifier() throws {
        let directory = BeagleSupport.TemporaryDirectory()
        let disk = try CacheManager(
            at: directory.url, config: .init(memoryMaximumCapacity: 0), now: clock.now, onError: { Issue.record($0) })
        disk.addToCache(reference("", "nothing"))
        disk.addToCache(reference("\u{FFFD}", "something"))
        #expect(disk.getReference(identifiedBy: "") == reference("", "nothing"))
        #expect(disk.getReference(identifiedBy: "\u{FFFD}") == reference("\u{FFFD}", "something"))
        let both = try CacheManager(at: directory.url, now: clock.now)
        #expect(both.getReference(identifiedBy: "") != nil)
        _ = both.getReference(identifiedBy: "\u{FFFD}")
        both.diskManager.removeLastUsed()
        #expect(both.getReference(identifiedBy: "") == nil && both.getReference(identifiedBy: "\u{FFFD}") != nil)
    }

    @Test("A slice of data is stored as its own bytes")
    func slice() throws {
        let manager = try CacheManager.inMemory()
        let whole = Data(count: 1000)
        manager.addToCache(CacheReference(identifier: "a", data: whole[100..<200], hash: ""))
        #expect(manager.getReference(identifiedBy: "a")?.data.startIndex == 0)
    }

    @Test("A reference that was read or stored before a removal is not kept in memory after it")
    func removedMeanwhile() {
        let memory = ReferenceMemory(capacity: 2)
        for remove in [{ memory.removeAll() }, { memory.remove("a") }, { memory.remove("b") }] {
            let before = memory.removals
            remove()
            memory.insert(reference("a"), version: 1, since: before)
            #expect(memory.use("a") == nil)
            memory.insert(reference("a"), version: 1, since: memory.removals)
            #expect(memory.use("a") == reference("a"))
            memory.insert(reference("a", "older"), version: 0, since: memory.removals)
            #expect(memory.use("a") == reference("a"))
            memory.insert(reference("a", "not on disk"), version: nil, since: memory.removals)
            #expect(memory.use("a") == reference("a", "not on disk"))
            memory.removeAll()
        }
    }

    @Test("Storing a reference sets its time of creation")
    func stamp() throws {
        let manager = try manager(), old = reference("a", maxAge: 60)
        clock.advance(seconds: 1000)
        #expect(!manager.isValid(reference: old))
        manager.addToCache(old)
        for stored in [manager.getReference(identifiedBy: "a"), manager.diskManager.getReference(for: "a")] {
            #expect(stored?.timeOfCreation == clock.date)
            #expect(stored.map(manager.isValid) == true)
            #expect(stored == reference("a", maxAge: 60))
        }
        clock.advance(seconds: 1)
        manager.diskManager.update(reference("b"))
        clock.advance(seconds: 1)
        #expect(manager.getReference(identifiedBy: "b")?.timeOfCreation == clock.date - 1)
    }

    @Test("Equal identifiers are the same", arguments: [0, 15])
    func equalIdentifiers(memory: Int) throws {
        let manager = try manager(memory: memory)
        manager.addToCache(reference("é", "old"))
        manager.addToCache(reference("e\u{301}", "new"))
        #expect(manager.diskManager.numberOfReferences() == 1)
        #expect(manager.getReference(identifiedBy: "é")?.data == Data("new".utf8))
        #expect(try diskManager().getReference(for: "é")?.data == Data("new".utf8))
    }

    @Test("Negative capacities and ages are errors that name the directory")
    func negative() throws {
        for config in [
            CacheManager.Config(memoryMaximumCapacity: -1), .init(diskMaximumCapacity: -1), .init(cacheMaxAge: -1),
        ] {
            let error = #expect(throws: ShaleError.self) { try CacheManager(at: directory.url, config: config) }
            #expect(error?.code == .invalid && error?.message.hasPrefix("\(directory.url.path): ") == true)
        }
        #expect(throws: ShaleError.self) { try CacheDiskManager(at: directory.url, maximumCapacity: -1) }
    }

    @Test("onError may call the manager")
    func onErrorCalls() throws {
        let box = BeagleSupport.Record<CacheManager>(), seen = BeagleSupport.Record<CacheReference?>()
        let manager = try CacheManager(at: directory.url, now: clock.now) { _ in
            seen.add(box.all.first?.getReference(identifiedBy: "a"))
        }
        box.add(manager)
        manager.addToCache(reference("a"))
        manager.addToCache(reference("b", hash: String(repeating: "h", count: 70_000)))
        #expect(seen.all == [reference("a")])
    }

    @Test("B9 A read counts as a use in both tiers, and does not change a reference's age", arguments: [0, 2])
    func reading(memory: Int) throws {
        let manager = try manager(memory: memory, disk: 2), a = reference("a", maxAge: 60)
        manager.addToCache(a)
        manager.addToCache(reference("b"))
        clock.advance(seconds: 59)
        #expect(manager.getReference(identifiedBy: "a") == a)
        #expect(manager.isValid(reference: a))
        clock.advance(seconds: 1)
        let read = try #require(manager.getReference(identifiedBy: "a"))
        #expect(read.timeOfCreation == a.timeOfCreation)
        #expect(!manager.isValid(reference: read))

        manager.addToCache(reference("c"))
        for tier in [manager.getReference(identifiedBy:), manager.diskManager.getReference(for:)] {
            #expect(tier("b") == nil)
            #expect(tier("a") == a)
            #expect(tier("c") != nil)
        }
    }

    @Test(
        "B10 isValid is true until timeOfCreation + maxAge; its own maxAge overrides the default; 0 is never valid"
    )
    func isValid() throws {
        let manager = try manager(maxAge: 100)
        let aged = reference("default"), brief = reference("brief", maxAge: 10), long = reference("long", maxAge: 1000)
        for (seconds, valid) in [
            (0.0, [aged, brief, long]), (9.999, [aged, brief, long]), (0.001, [aged, long]), (89.999, [aged, long]),
            (0.001, [long]),
            (899.999, [long]), (0.001, []),
        ] {
            clock.advance(seconds: seconds)
            #expect(
                [aged, brief, long].filter(manager.isValid) == valid,
                "\(clock.date.timeIntervalSince(aged.timeOfCreation)) s")
        }
        #expect(!manager.isValid(reference: reference("zero", maxAge: 0)))
        let future = CacheReference(
            identifier: "future", data: Data(), hash: "", maxAge: 0, timeOfCreation: clock.date + 3600)
        #expect(!manager.isValid(reference: future))
        #expect(manager.isValid(reference: reference("for ever", maxAge: .max)))
        #expect(try !self.manager(maxAge: 0).isValid(reference: reference("default")))
    }

    @Test("B11 isValid deletes nothing; expired references are still returned, also after a restart")
    func expired() throws {
        let a = reference("a", maxAge: 1)
        do { try manager().addToCache(a) }
        clock.advance(seconds: 10 * 365 * 86_400)
        let manager = try manager()
        for _ in ["from disk", "from memory"] {
            #expect(manager.getReference(identifiedBy: "a") == a)
            #expect(!manager.isValid(reference: a))
        }
        #expect(manager.diskManager.numberOfReferences() == 1)
        // The store's clock is the system's.
        let stored = try #require(try Store(at: directory.url.path).entry(for: "a"))
        #expect(stored.expiresAt == nil)
    }

    @Test("B12 clear empties both tiers")
    func clear() throws {
        do {
            let manager = try manager()
            manager.addToCache(reference("a"))
            manager.clear()
            #expect(manager.getReference(identifiedBy: "a") == nil)
            #expect(manager.diskManager.numberOfReferences() == 0)
        }
        let manager = try manager()
        #expect(manager.getReference(identifiedBy: "a") == nil)
        manager.addToCache(reference("a", "again"))
        #expect(manager.getReference(identifiedBy: "a") == reference("a", "again"))
    }

    @Test("B13 Disk hits keep their maxAge", arguments: [nil, 0, 7, Int.max])
    func maxAgeFromDisk(maxAge: Int?) throws {
        let manager = try manager(memory: 0)
        manager.addToCache(reference("a", maxAge: maxAge))
        #expect(try #require(manager.getReference(identifiedBy: "a")).maxAge == maxAge)
    }

    @Test("B14 update, numberOfReferences and saveChanges work as the disk manager's")
    func diskManagerAlone() throws {
        let disk = try diskManager()
        #expect(disk.numberOfReferences() == 0)
        #expect(disk.getReference(for: "a") == nil)
        disk.update(reference("a"))
        disk.update(reference("b"))
        disk.update(reference("a", "new"))
        disk.saveChanges()
        #expect(disk.numberOfReferences() == 2)
        #expect(disk.getReference(for: "a") == reference("a", "new"))
        #expect(try diskManager().getReference(for: "a") == reference("a", "new"))

        let none = try diskManager(0)
        none.update(reference("c"))
        none.removeLastUsed()
        none.clear()
        none.saveChanges()
        #expect(
            none.numberOfReferences() == 0 && none.getReference(for: "a") == nil && none.getReference(for: "c") == nil)
        #expect(disk.numberOfReferences() == 2)
    }

    @Test("B15 References survive a restart, with hash, maxAge and timeOfCreation, and the order of their use")
    func restart() throws {
        let references = (0..<10).map { i in
            CacheReference(
                identifier: "https://example.org/\(i)?ö=ä",
                data: Data((0..<i * 1000).map { UInt8(truncatingIfNeeded: $0 &* $0) }), hash: "hash \(i) \"ß\"",
                maxAge: i.isMultiple(of: 2) ? i : nil,
                timeOfCreation: clock.date + Double(i) / 7)
        }
        do {
            let manager = try manager(disk: 10)
            for reference in references {
                clock.advance(seconds: reference.timeOfCreation.timeIntervalSince(clock.date))
                manager.addToCache(reference)
                #expect(manager.getReference(identifiedBy: reference.identifier)?.hash == reference.hash)
            }
            _ = manager.getReference(identifiedBy: references[0].identifier)
        }
        let manager = try manager(disk: 10)
        manager.addToCache(reference("new"))
        #expect(manager.getReference(identifiedBy: references[1].identifier) == nil)
        for reference in references where reference != references[1] {
            let read = try #require(manager.getReference(identifiedBy: reference.identifier))
            #expect(read.data == reference.data && read.hash == reference.hash && read.maxAge == reference.maxAge)
            #expect(abs(read.timeOfCreation.timeIntervalSince(reference.timeOfCreation)) < 1e-5)
        }
    }

    @Test("B16 Beagle's protocols are satisfied by empty extensions")
    func protocols() throws {
        let manager: any CacheManagerProtocol = try manager()
        let disk: any CacheDiskManagerProtocol = try diskManager()
        manager.addToCache(reference("a"))
        let a = try #require(manager.getReference(identifiedBy: "a"))
        #expect(manager.isValid(reference: a))
        #expect(disk.getReference(for: "a") == a)
        disk.removeLastUsed()
        disk.update(reference("b"))
        disk.saveChanges()
        #expect(disk.numberOfReferences() == 1)
        disk.clear()
        #expect(disk.numberOfReferences() == 0)
    }

    // MARK: Further behaviour

    @Test("after many threads add one identifier, both tiers have the same reference")
    func oneOrder() async throws {
        let manager = try manager()
        for round in 0..<20 {
            await withTaskGroup(of: Void.self) { group in
                for task in 0..<8 { group.addTask { manager.addToCache(reference("\(round)", "\(task)")) } }
            }
            #expect(manager.getReference(identifiedBy: "\(round)") == manager.diskManager.getReference(for: "\(round)"))
        }
    }

    @Test("a directory that cannot be opened is an error that names it")
    func opening() throws {
        let web = try #require(URL(string: "https://example.org/cache"))
        let error = try #require(throws: ShaleError.self) { try CacheManager(at: web) }
        #expect(error.code == .invalid && error.message.contains("https://example.org/cache is not a file URL"))

        try FileManager.default.createDirectory(at: directory.url, withIntermediateDirectories: true)
        let file = directory.url.appendingPathComponent("file")
        try Data("x".utf8).write(to: file)
        let occupied = try #require(throws: ShaleError.self) { try CacheManager(at: file) }
        #expect(occupied.message.contains(file.path))
    }

    @Test("a reference that cannot be stored is reported, and the previous one stays on disk")
    func failing() throws {
        let errors = BeagleSupport.Record<ShaleError>()
        let isLost = BeagleSupport.Record<Bool>(), clock = clock
        let disk = try CacheDiskManager(
            at: directory.url,
            now: { isLost.all.isEmpty ? clock.date : Date(timeIntervalSinceReferenceDate: .nan) },
            onError: { errors.add($0) })
        disk.update(reference("a"))
        isLost.add(true)
        disk.update(reference("a", "new"))
        disk.update(CacheReference(identifier: "a", data: Data(), hash: String(repeating: "h", count: 70_000)))
        disk.update(reference(String(repeating: "k", count: 70_000)))
        #expect(errors.all.count == 3)
        #expect(errors.all.first?.message.contains("the reference a cannot be encoded") == true)
        #expect(disk.getReference(for: "a") == reference("a"))
        #expect(disk.numberOfReferences() == 1)
    }

    @Test("an entry of another writer is not a reference")
    func foreign() throws {
        let store = try Store(at: directory.url.path, options: .init(maxEntries: 150))
        try store.insert("value", for: "a")
        try store.insert("value", for: "b", meta: [0, 255])
        let disk = try diskManager()
        #expect(disk.getReference(for: "a") == nil && disk.getReference(for: "b") == nil)
        disk.update(reference("a"))
        #expect(disk.getReference(for: "a") == reference("a"))
    }
}

// From "Gerenciar Cache" of Beagle's documentation, steps 1 and 3.
public protocol CacheManagerProtocol {
    func addToCache(_ reference: CacheReference)
    func getReference(identifiedBy id: String) -> CacheReference?
    func isValid(reference: CacheReference) -> Bool
}

public protocol CacheDiskManagerProtocol {
    func update(_ reference: CacheReference)
    func getReference(for key: String) -> CacheReference?
    func numberOfReferences() -> Int
    func removeLastUsed()
    func clear()
    func saveChanges()
}

extension CacheManager: CacheManagerProtocol {}
extension CacheDiskManager: CacheDiskManagerProtocol {
}
