import Foundation
import ShaleCore
import Testing

@Suite("Refresh ahead")
struct RefreshAheadTests {
    @Test("the chance is that of XFetch: an exponential distribution")
    func chance() {
        func share(left: Int64, mean: Double) -> Double {
            Double(
                (0..<10_000).count {
                    RefreshAhead.isDue(left: left, mean: mean, chance: UInt64.max / 10_000 * UInt64($0))
                }) / 10_000
        }
        // P(-mean * ln(u) >= left) = exp(-left / mean)
        for (left, mean) in [(Int64(100), 100.0), (300, 100), (100, 200), (50, 30), (1, 100)] {
            #expect(abs(share(left: left, mean: mean) - exp(-Double(left) / mean)) < 0.001)
        }
        #expect(share(left: 0, mean: 1) == 1)
        #expect(share(left: 1_000_000, mean: 1) == 0)
    }

    @Test("every chance gives a time from 0 to 45 times the mean")
    func bounds() {
        for chance in [0, 1, 2, 1 << 62, 1 << 63, .max] as [UInt64] {
            #expect(RefreshAhead.isDue(left: 0, mean: 1, chance: chance))
            #expect(!RefreshAhead.isDue(left: 45, mean: 1, chance: chance))
        }
        #expect(RefreshAhead.isDue(left: 44, mean: 1, chance: 0))
        #expect(!RefreshAhead.isDue(left: 1, mean: 1, chance: .max))
    }
}
