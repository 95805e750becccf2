import Dispatch
import Foundation
import Shale
import ShaleAdapters
import Synchronization
import Testing

@Suite("Siesta: the entity cache", .timeLimit(.minutes(30)))
struct SiestaEntityCacheTests {
    private typealias Story = SiestaSupport.Story
    private let directory = SiestaSupport.Directory()
    private let url = URL(filePath: "/news")

    private func stories(_ store: Store) throws -> ShaleEntityCache<URL, Story> {
        try ShaleEntityCache(in: store, named: "stories")
    }

    @Test("E7 A new timestamp for a missing key is a no-op")
    func timestampOfNothing() throws {
        let cache = try stories(directory.open())
        cache.updateEntityTimestamp(2000, forKey: url)
        #expect(cache.readEntity(forKey: url) == nil)
        cache.writeEntity(Resource.Entity<Story>.story("stored"), forKey: url)
        cache.removeEntity(forKey: url)
        cache.updateEntityTimestamp(2000, forKey: url)
        #expect(cache.readEntity(forKey: url) == nil)
    }

    @Test("E7 A new timestamp does not restore an entity that another caller has just replaced or removed")
    func timestampRace() async throws {
        let mine = try stories(directory.open()), theirs = try stories(directory.open()), url = url
        let (begun, beginning) = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingNewest(1))
        let updating = Task.detached {
            var time = 2000.0
            while !Task.isCancelled {
                theirs.updateEntityTimestamp(time, forKey: url)
                time += 1
                beginning.yield()
            }
        }
        defer { updating.cancel() }
        for await _ in begun { break }
        for i in 0..<2000 {
            mine.writeEntity(Resource.Entity<Story>.story("\(i)"), forKey: url)
            try #require(mine.readEntity(forKey: url)?.content.title == "\(i)")
            if i % 3 == 0 {
                mine.removeEntity(forKey: url)
                try #require(mine.readEntity(forKey: url) == nil)
            }
        }
    }

    @Test("E8 After a removal, reads return nil until the next write, also on other handles and after a restart")
    func removal() throws {
        do {
            let cache = try stories(directory.open()), other = try stories(directory.open())
            cache.writeEntity(Resource.Entity<Story>.story("first"), forKey: url)
            #expect(other.readEntity(forKey: url)?.content.title == "first")
            cache.removeEntity(forKey: url)
            #expect(cache.readEntity(forKey: url) == nil)
            #expect(other.readEntity(forKey: url) == nil)
        }
        let cache = try stories(directory.open())
        #expect(cache.readEntity(forKey: url) == nil)
        cache.writeEntity(Resource.Entity<Story>.story("second"), forKey: url)
        #expect(cache.readEntity(forKey: url)?.content.title == "second")
    }

    @Test("E8 After a removal, reads in other processes return nil until the next write")
    func removalElsewhere() async throws {
        let path = directory.url.path
        let cache = try stories(directory.open())
        cache.writeEntity(Resource.Entity<Story>.story("mine"), forKey: url)
        await #expect(processExitsWith: .success) { [path = path as String] in
            let url = URL(filePath: "/news")
            let there = try ShaleEntityCache<URL, SiestaSupport.Story>(in: Store(at: path), named: "stories")
            #expect(there.readEntity(forKey: url)?.content.title == "mine")
            there.removeEntity(forKey: url)
        }
        #expect(cache.readEntity(forKey: url) == nil)
        await #expect(processExitsWith: .success) { [path = path as String] in
            let url = URL(filePath: "/news")
            let there = try ShaleEntityCache<URL, SiestaSupport.Story>(in: Store(at: path), named: "stories")
            #expect(there.readEntity(forKey: url) == nil)
            there.writeEntity(Resource.Entity<SiestaSupport.Story>.story("theirs"), forKey: url)
        }
        #expect(cache.readEntity(forKey: url)?.content.title == "theirs")
    }

    @Test("E9 Reads and writes are safe from any thread")
    func threads() throws {
        let cache = try ShaleEntityCache<Int, String>(in: directory.open(), named: "numbers", memoryEntries: 4) { _ in
            nil
        }
        let torn = Atomic(0), found = Atomic(0)
        DispatchQueue.concurrentPerform(iterations: 8) { thread in
            for i in 0..<500 {
                let key = i % 10
                switch (i + thread) % 5 {
                case 0:
                    cache.writeEntity(
                        Resource.Entity(content: "\(i)", headers: ["number": "\(i)"], timestamp: TimeInterval(i)),
                        forKey: key)
                case 1: cache.updateEntityTimestamp(TimeInterval(thread), forKey: key)
                case 2 where i % 50 == 0: cache.removeEntity(forKey: key)
                default:
                    guard let entity = cache.readEntity(forKey: key) else { continue }
                    found.add(1, ordering: .relaxed)
                    if entity.header(forKey: "number") != entity.content { torn.add(1, ordering: .relaxed) }
                }
            }
        }
        #expect(torn.load(ordering: .relaxed) == 0)
        #expect(found.load(ordering: .relaxed) > 0)
    }

    @Test("E9 Reads and writes of a resource run on the work queue")
    func workQueue() async throws {
        let queue = DispatchQueue(label: "entities"), mark = DispatchSpecificKey<Bool>()
        queue.setSpecific(key: mark, value: true)
        let calls = Mutex<[String]>([])
        let coder = Coder<Story> {
            calls.withLock { $0.append(DispatchQueue.getSpecific(key: mark) == true ? "encode" : "encode elsewhere") }
            return Data($0.title.utf8)
        } decode: {
            calls.withLock { $0.append(DispatchQueue.getSpecific(key: mark) == true ? "decode" : "decode elsewhere") }
            return Story(title: String(decoding: $0, as: UTF8.self))
        }
        let cache = try ShaleEntityCache<URL, Story>(
            in: directory.open(), named: "stories", memoryEntries: 0, coder: coder, workQueue: queue)
        for _ in 0..<2 { try await Resource(url: url, cache: cache) { _ in .newData(.story("loaded")) }.load() }
        #expect(calls.withLock { $0 } == ["encode", "decode", "encode"])
    }

    @Test("E11 The key can be any value type")
    func keys() throws {
        struct UserPage: Hashable, Codable { var user: Int, url: URL }
        enum Place: Hashable, Codable { case home, page(String) }
        let store = try directory.open()
        let pages = try ShaleEntityCache<UserPage, Story>(in: store, named: "pages") { UserPage(user: 1, url: $0.url) }
        let resource = Resource(url: url) { _ in .notModified }
        let mine = try #require(pages.key(for: resource))
        pages.writeEntity(Resource.Entity<Story>.story("mine"), forKey: mine)
        #expect(pages.readEntity(forKey: UserPage(user: 1, url: url))?.content.title == "mine")
        #expect(pages.readEntity(forKey: UserPage(user: 2, url: url)) == nil)

        let places = try ShaleEntityCache<Place, Story>(in: store, named: "places") {
            $0.url.path == "/" ? .home : .page($0.url.path)
        }
        #expect(places.key(for: resource) == .page("/news"))
        places.writeEntity(Resource.Entity<Story>.story("page"), forKey: .page("/news"))
        places.writeEntity(Resource.Entity<Story>.story("home"), forKey: .home)
        #expect(places.readEntity(forKey: .page("/news"))?.content.title == "page")
        #expect(places.readEntity(forKey: .home)?.content.title == "home")
    }

    @Test("E12 Content that cannot be encoded is skipped without an error; the stored entity stays")
    func unencodable() throws {
        struct NotFinite: Error {}
        let failures = Mutex<[ShaleError]>([])
        let finite = Coder<Double>(
            encode: { number in
                if !number.isFinite { throw NotFinite() }
                return try Coder<Double>.json.encode(number)
            }, decode: Coder<Double>.json.decode)
        let cache = try ShaleEntityCache<URL, Double>(
            in: directory.open(), named: "numbers", coder: finite,
            onFailure: { failure in failures.withLock { $0.append(failure) } })
        cache.writeEntity(Resource.Entity(content: 1.5, headers: [:]), forKey: url)
        cache.writeEntity(Resource.Entity(content: "text", headers: [:]), forKey: url)
        #expect(failures.withLock { $0.isEmpty })
        cache.writeEntity(Resource.Entity(content: Double.infinity, headers: [:]), forKey: url)
        #expect(cache.readEntity(forKey: url)?.content == 1.5)
        let reported = failures.withLock { $0 }
        #expect(reported.count == 1)
        #expect(reported.first?.message.contains(url.absoluteString) == true, "it names the key")
    }

    @Test("E12 Headers, charset, etag and timestamp survive with the content", arguments: [0, 256])
    func survival(memoryEntries: Int) throws {
        let written = Resource.Entity(
            content: Data([0, 255, 10]), charset: "utf-8",
            headers: ["ETag": "\"v1\"", "Content-Type": "image/png", "X-Ünïcode": "ß"],
            timestamp: 795_123_456.789_012_3)
        for _ in 0..<2 {
            let cache = try ShaleEntityCache<URL, Data>(
                in: directory.open(), named: "images", memoryEntries: memoryEntries)
            if cache.readEntity(forKey: url) == nil { cache.writeEntity(written, forKey: url) }
            let read = try #require(cache.readEntity(forKey: url))
            #expect(read == written)
            #expect(read.charset == "utf-8" && read.etag == "\"v1\"" && read.timestamp == 795_123_456.789_012_3)
            #expect(read.contentType == "image/png" && read.header(forKey: "x-ÜNÏCODE") == "ß")
            #expect(read.headers.keys.sorted() == ["content-type", "etag", "x-ünïcode"])
        }
    }

    @Test("an entity that no longer decodes is a miss")
    func undecodable() throws {
        let store = try directory.open()
        try ShaleEntityCache<URL, String>(in: store, named: "changed").writeEntity(
            Resource.Entity(content: "text", headers: [:]), forKey: url)
        let changed = try ShaleEntityCache<URL, Story>(in: store, named: "changed")
        #expect(changed.readEntity(forKey: url) == nil)
        let short = try Cache<URL, Data>(in: store, named: "changed")
        for bytes in [[], [1], [255, 255, 255, 255, 1], [0, 0, 0, 0]] as [[UInt8]] {
            try short.insert(Data(bytes), for: url)
            #expect(changed.readEntity(forKey: url) == nil)
        }
    }

    @Test("a store that cannot be written to reports why")
    func readOnly() throws {
        try stories(directory.open()).writeEntity(Resource.Entity<Story>.story("stored"), forKey: url)
        var options = Store.Options()
        options.isReadOnly = true
        let failures = Mutex<[ShaleError.Code]>([])
        let cache = try ShaleEntityCache<URL, Story>(
            in: Store(at: directory.url.path, options: options), named: "stories",
            onFailure: { failure in failures.withLock { $0.append(failure.code) } })
        #expect(cache.readEntity(forKey: url)?.content.title == "stored")
        cache.writeEntity(Resource.Entity<Story>.story("other"), forKey: url)
        cache.updateEntityTimestamp(2000, forKey: url)
        cache.removeEntity(forKey: url)
        #expect(failures.withLock { $0 } == [.permission, .permission, .permission])
        #expect(cache.readEntity(forKey: url)?.content.title == "stored")
    }
}
