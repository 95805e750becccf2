import Foundation
import Testing
@testable import Shale

@Suite("Slices of data")
struct SliceTests {
    private let whole = Data((0..<100_000).map { UInt8(truncatingIfNeeded: $0) })

    @Test("a slice works as value and key, and decoders get data that starts at index 0")
    func anywhere() throws {
        struct First: Codable, Equatable { var byte: UInt8 }
        let coder = Coder<First>(encode: { Data([9, 9, $0.byte])[2...] }, decode: { First(byte: $0[0]) })
        for memoryEntries in [0, 256] {
            let cache = try Cache<Data, Data>.small(memoryEntries: memoryEntries)
            try cache.insert(whole[10..<20], for: whole[30..<40])
            #expect(try cache.value(for: Data(whole[30..<40])) == Data(10..<20))
            #expect(try cache.value(for: whole[30..<40]) == whole[10..<20])
            #expect(try cache.allKeys() == [Data(30..<40)])
            let firsts = try Cache<String, First>.small(memoryEntries: memoryEntries, coder: coder)
            firsts["a"] = First(byte: 7)
            #expect(firsts["a"] == First(byte: 7))
        }
    }

    @Test("memory keeps only a slice's own bytes")
    func memory() async throws {
        let cache = try Cache<Int, Data>.small()
        let slice = whole[10..<50_000]
        try cache.insert(slice, for: 1)
        _ = try await cache.value(for: 2) { slice }
        for key in [1, 2] {
            let entry = try #require(try cache.entry(for: key))
            #expect(entry.source == .memory && entry.value == slice && entry.value.startIndex == 0)
            let isShared = entry.value.withUnsafeBytes { kept in
                whole.withUnsafeBytes { whole in
                    kept.baseAddress.map {
                        whole.baseAddress.unsafelyUnwrapped...whole.baseAddress.unsafelyUnwrapped + whole.count ~= $0
                    }
                }
            }
            #expect(isShared == false)
        }
    }
}
