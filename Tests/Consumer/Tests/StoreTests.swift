import ShaleCore
import Testing

@Suite("A program that uses ShaleCore")
struct StoreTests {
    private let directory = Directory()

    private func open() throws(ShaleError) -> Store {
        try Store(at: directory.url.path, options: .init(capacity: 16 << 20, maxAge: .seconds(3600)))
    }

    @Test("stores bytes, reads them, and reads them again after reopening the store")
    func reopening() throws {
        let store = try open()
        let version = try store.insert("Slate", for: "rock", tags: ["rocks"], meta: [1, 2])
        try store.insert([UInt8](repeating: 7, count: 100_000), for: [0, 255] as [UInt8])
        #expect(try store.increment("count", by: 2, initial: 40) == 42)
        try store.sync()
        try store.close()

        let again = try open()
        #expect(try again.value(for: "rock") == Array("Slate".utf8))
        let entry = try #require(try again.entry(for: "rock"))
        #expect(entry.version == version && entry.meta == [1, 2] && entry.size == 5)
        #expect(try again.withSpan(for: [0, 255] as [UInt8]) { $0.byteCount } == 100_000)
        #expect(try again.increment("count") == 43)
        #expect(try again.insert("Marl", for: "rock", condition: .ifAbsent) == nil)
        try again.removeAll(tagged: "rocks")
        #expect(try again.value(for: "rock") == nil)
        #expect(try again.insert("Marl", for: "rock", condition: .ifAbsent) != nil)
        var keys = 0
        try again.forEach { _, _, _ in
            keys += 1
            return true
        }
        #expect(keys == 3)
        #expect(try again.verify().corruptRecords == 0)
        #expect(try again.statistics().entries == 3)
    }

    @Test("uses a store in memory with its own clock and limits")
    func memory() throws {
        var options = Store.Options(capacity: 4 << 20, maxEntries: 10, maxAge: .seconds(1), staleFor: .seconds(1))
        options.compression = .lz4
        options.now = { 1_800_000_000_000 }
        let store = try Store(at: nil, options: options)
        for i in 0..<20 { try store.insert("value", for: "\(i)") }
        #expect(try store.value(for: "0") == nil)
        #expect(try store.value(for: "19") == Array("value".utf8))
        #expect(try store.entry(for: "19")?.expiresAt == 1_800_000_001_000)
        #expect(try store.touch("19", maxAge: .zero))
        #expect(try store.value(for: "19") == nil)
        #expect(try store.entry(for: "19", includingStale: true)?.isStale == true)
        #expect(try store.removeValue(for: "19"))
    }

    @Test("gets errors with path and cause")
    func errors() throws {
        let error = #expect(throws: ShaleError.self) { try Store(at: "/proc/version/cache") }
        #expect(error?.message.contains("/proc/version") == true && error?.errno != 0)
        let store = try open()
        #expect(throws: ShaleError.self) { try store.insert("", for: "") }.map { #expect($0.code == .invalid) }
    }
}
