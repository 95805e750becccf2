/// A type of key with a `==` of its own, which says what its values are stored under.
///
/// Keys are told apart by what they encode to. A key with the `==` that the compiler makes needs nothing: in a ``Cache``, strings
/// are equal as `==` has it, however they are composed, there is one zero and one NaN, and sets and dictionaries have no order. A `==`
/// that sees less than the encoding does, or more, has to be told, wherever in a key its type stands:
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
/// Without it, such keys are equal in the program and two in the cache, in memory as in the store. Keys that come back from a cache,
/// as those of ``Cache/allKeys()``, are canonical ones.
public protocol CacheKey: Hashable, Codable, Sendable {
    /// The one that stands for all that are equal to it: for equal keys, values that encode alike, and for others, values that do not.
    /// Called for each use of the key, on any thread, under no lock.
    var canonical: Self { get }
}
