#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif
import ShaleCore

extension Age {
    /// Until a point in time; one in the past is an age of zero.
    public static func until(_ date: Date) -> Age { .until(millisecondsSince1970: date.millisecondsSince1970) }

    var isNegative: Bool { if case .duration(let duration) = form { duration < .zero } else { false } }

    /// Shortened by a random part of it, at most `part`; `now` is in milliseconds since 1970.
    func jittered(by part: Double, from now: Int64) -> Age {
        guard part > 0, let left = left(from: now) else { return self }
        return Age(left * (1 - part * .random(in: 0..<1)))
    }
}
