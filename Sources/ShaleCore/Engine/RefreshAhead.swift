/// XFetch: each reader decides by chance whether to load before the age is over. A. Vattani, F. Chierichetti, K.
/// Lowenstein, "Optimal Probabilistic Cache Stampede Prevention", Proceedings of the VLDB Endowment 8(8), 2015.
///
/// A reader draws an exponentially distributed time, and loads if less than that is left. Times are milliseconds.
public enum RefreshAhead {
    /// - Parameters:
    ///   - left: Until the age is over.
    ///   - mean: Of the times: the paper's delta (the duration of a load) times its beta (the eagerness).
    ///   - chance: Evenly distributed bits.
    public static func isDue(left: Int64, mean: Double, chance: UInt64) -> Bool {
        mean * exponential(chance) >= Double(left)
    }

    /// Returns false if no chance would make it due.
    @inline(__always)
    static func mayBeDue(left: Int64, mean: Int64) -> Bool { left / 45 <= mean }

    /// The negative natural logarithm of a number above 0 and up to 1, `bits / 2^64`: with mean 1, from 0 up to 45.
    private static func exponential(_ bits: UInt64) -> Double {
        let bits = max(bits, 1), zeros = bits.leadingZeroBitCount
        // 1 ≤ m < 2; ln m = 2 artanh((m - 1)/(m + 1)), of which four terms are right to 2e-5.
        let m = 1 + Double(bits &<< UInt64(zeros) & 0x7FFF_FFFF_FFFF_FFFF) / 0x1p63
        let s = (m - 1) / (m + 1), q = s * s
        let logarithm = 2 * s * (1 + q * (1.0 / 3 + q * (1.0 / 5 + q / 7)))
        return max(0, Double(zeros + 1) * 0.693_147_180_559_945_3 - logarithm)
    }
}
