#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#else
import Darwin
#endif

/// XFetch: each reader decides for itself, by chance, whether to load before the age is over. A. Vattani, F. Chierichetti,
/// K. Lowenstein, "Optimal Probabilistic Cache Stampede Prevention", Proceedings of the VLDB Endowment 8(8), 2015.
enum RefreshAhead {
    /// - Parameters:
    ///   - left: Milliseconds until the age is over.
    ///   - loadTime: Milliseconds that the last load took.
    ///   - eagerness: The paper's beta.
    ///   - chance: Evenly distributed from 0 up to, not including, 1.
    static func isDue(left: Int64, loadTime: Int64, eagerness: Double, chance: Double) -> Bool {
        Double(loadTime) * eagerness * -log(1 - chance) >= Double(left)
    }
}
