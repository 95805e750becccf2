import Foundation
import Testing
@testable import Shale

@Suite("Options and their effects")
struct OptionTests {
    @Test("an omitted option leaves an existing cache unchanged")
    func defaults() throws {
        let directory = TemporaryDirectory()
        let large = try Cache<Int, Int>(
            at: directory.url, maxEntries: 10_000, capacity: 4 << 20, eviction: .clock)
        for i in 0..<1000 { large[i] = i }
        // While another object has it open, and after that.
        for _ in 0..<2 {
            let plain = try Cache<Int, Int>(at: directory.url)
            plain[1000] = 1000
            #expect(try plain.allKeys().count == 1001)
            #expect(try plain.store.statistics().maxEntries == 10_000)
            #expect(try plain.store.statistics().capacity == 4 << 20)
            #expect(try plain.store.statistics().eviction == .clock)
        }
        #expect(try Cache<Int, Int>(at: directory.path).allKeys().count == 1001)
        let new = TemporaryDirectory()
        #expect(try Cache<Int, Int>(at: new.url).store.statistics().maxEntries == 0)
    }

    #if os(Linux)
    @Test("reserveCapacity limits the reserved address space")
    func reservation() throws {
        func reserved(_ open: (String) throws -> Cache<Int, Int>) throws -> Int {
            let directory = TemporaryDirectory()
            let cache = try open(directory.path)
            defer { withExtendedLifetime(cache) {} }
            let maps = try #require(FileHandle(forReadingAtPath: "/proc/self/maps")).readDataToEndOfFile()
            return String(decoding: maps, as: UTF8.self).split(separator: "\n").filter { $0.contains(directory.path) }
                .map { $0.prefix { $0 != " " }.split(separator: "-").compactMap { Int($0, radix: 16) } }
                .reduce(0) { $0 + $1[1] - $1[0] }
        }
        let all = try reserved { try Cache(at: $0, capacity: 64 << 20) }
        let own = try reserved { try Cache(at: $0, capacity: 64 << 20, reserveCapacity: 64 << 20) }
        #expect(64 << 20 < own && 2 * own < all, "\(own) \(all)")
    }
    #endif

    @Test("options out of range are errors at once, which name the directory, and no file is created")
    func outOfRange() throws {
        let directory = TemporaryDirectory()
        typealias Numbers = Cache<Int, Int>
        func fails(_ word: String, _ open: () throws -> Numbers) {
            let error = #expect(throws: ShaleError.self, "\(word)") { try open() }
            #expect(error?.code == .invalid, "\(word)")
            #expect(error?.message.contains(word) == true, "\(error?.message ?? "")")
            #expect(error?.message.contains(directory.path) == true, "\(error?.message ?? "")")
            #expect(!FileManager.default.fileExists(atPath: directory.path), "\(word)")
        }
        for age in [Age.seconds(-1), .milliseconds(-1), Age(.nanoseconds(-1))] {
            fails("maxAge") { try Numbers(at: directory.url, maxAge: age) }
            fails("staleFor") { try Numbers(at: directory.path, staleFor: age) }
        }
        for number in [-1, 0, Int.min] { fails("maxEntries") { try Numbers(at: directory.url, maxEntries: number) } }
        for number in [-1, 0, 1, (1 << 20) - 1, Int.min] {
            fails("capacity") { try Numbers(at: directory.url, capacity: number) }
            fails("reserveCapacity") { try Numbers(at: directory.url, reserveCapacity: number) }
        }
        for number in [-1, Int.min] {
            fails("memoryEntries") { try Numbers(at: directory.url, memoryEntries: number) }
            fails("memoryBytes") { try Numbers(at: directory.url, memoryBytes: number) }
        }
        for number in [-1, -0.1, .nan, .infinity] {
            fails("refreshAhead") { try Numbers(at: directory.url, refreshAhead: number) }
        }
        for time in [Duration.zero, .seconds(3601)] {
            fails("leaseTime") { try Numbers(at: directory.url, leaseTime: time) }
        }
        #expect(throws: ShaleError.self) { try Numbers.inMemory(maxEntries: -1) }
        let store = try Store(at: nil, options: .init(capacity: 4 << 20))
        #expect(throws: ShaleError.self) { try Numbers(in: store, named: "n", maxAge: .seconds(-1)) }
        #expect(throws: ShaleError.self) { try Numbers(in: store, named: "n", memoryEntries: -1) }
        #expect(throws: Never.self) {
            try Numbers.inMemory(
                maxAge: .zero, staleFor: .zero, maxEntries: 1, capacity: 1 << 20, memoryEntries: 0, memoryBytes: 0)
        }
    }

    @Test("a negative age is an error about ages, and changes nothing")
    func negativeAge() async throws {
        let cache = try Cache<String, Int>.small()
        cache["key"] = 1
        let expires = try cache.entry(for: "key")?.expiresAt
        for error in [
            #expect(throws: ShaleError.self) { try cache.insert(2, for: "key", maxAge: .seconds(-1)) },
            #expect(throws: ShaleError.self) { try cache.touch("key", maxAge: .milliseconds(-1)) },
        ] {
            #expect(error?.code == .invalid && error?.message.contains("maxAge") == true)
        }
        #expect(try cache.entry(for: "key")?.value == 1 && cache.entry(for: "key")?.expiresAt == expires)
    }

    @Test("without a directory no cache is opened by accident")
    func noDirectory() throws {
        #expect(throws: ShaleError.self) { try Cache<Int, Int>(at: "") }
        let cache = try Cache<Int, Int>.inMemory()
        #expect(cache.store.directory == nil)
    }

    private struct Unencodable: Codable {
        func encode(to encoder: any Encoder) throws { throw Offline() }
    }

    @Test("a failed write of the subscript is counted and reported")
    func failedWrites() async throws {
        let cache = try Cache<String, Unencodable>.small()
        var events = cache.events.makeAsyncIterator()
        cache["a"] = Unencodable()
        cache["b"] = Unencodable()
        #expect(cache.statistics.failedWrites == 2)
        for key in ["a", "b"] {
            guard case .writeFailed(key, let error) = await events.next() else { Issue.record("no event"); return }
            #expect(error.message.contains("Offline"))
        }
        let directory = TemporaryDirectory()
        let writer = try Cache<String, Int>(at: directory.url, capacity: 4 << 20)
        writer["key"] = 1
        var options = Store.Options()
        options.isReadOnly = true
        let reader = try Cache<String, Int>(in: Store(at: directory.path, options: options), named: "")
        reader["key"] = nil
        #expect(reader.statistics.failedWrites == 1 && reader["key"] == 1)
        #expect(writer.statistics.failedWrites == 0)
    }

    @Test("NaN and infinities are valid values, in a cache and in its archive", arguments: [0, 256])
    func nonConforming(memoryEntries: Int) throws {
        struct Range: Codable, Equatable { var low: Double, high: Float }
        let cache = try Cache<String, Double>.small(memoryEntries: memoryEntries)
        cache["+"] = .infinity
        cache["-"] = -.infinity
        cache["nan"] = .nan
        #expect(cache["+"] == .infinity && cache["-"] == -.infinity && cache["nan"]?.isNaN == true)
        #expect(cache.statistics.failedWrites == 0)
        let ranges = try Cache<String, Range>.small(memoryEntries: memoryEntries)
        ranges["all"] = Range(low: -.infinity, high: .infinity)
        #expect(ranges["all"] == Range(low: -.infinity, high: .infinity))
        let directory = TemporaryDirectory()
        let file = try ranges.saveToDisk(withName: "ranges", in: directory.url)
        let copy = try Cache<String, Range>(contentsOf: file, now: TestClock().now)
        #expect(copy["all"] == Range(low: -.infinity, high: .infinity))
    }
}
