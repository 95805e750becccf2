/// A key type with a custom `==`. It maps equal keys to one canonical value.
///
/// A ``Cache`` distinguishes keys by their encoding. Key types with a synthesized `==` need nothing: canonically
/// equivalent strings encode alike, there is one zero and one NaN, and sets and dictionaries are sorted. A type whose
/// `==` distinguishes fewer or more values than its encoding has to conform, also where it is nested in a key:
///
/// ```swift
/// struct Host: CacheKey {
///     var name: String
///     var canonical: Host { Host(name: name.lowercased()) }
///     static func == (a: Host, b: Host) -> Bool { a.name.lowercased() == b.name.lowercased() }
///     func hash(into hasher: inout Hasher) { hasher.combine(name.lowercased()) }
/// }
/// ```
///
/// Without the conformance, such keys are equal in the program but distinct in the cache, in memory and in the store.
/// Keys that a cache returns, for example from ``Cache/allKeys()``, are canonical.
public protocol CacheKey: Hashable, Codable, Sendable {
    /// The representative of all equal keys. Equal keys must have canonical values that encode alike; unequal keys,
    /// values that encode differently. Called for each use of the key, on any thread, without a lock held.
    var canonical: Self { get }
}
