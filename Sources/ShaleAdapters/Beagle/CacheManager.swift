#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif
import Shale

/// Beagle's cache of components: some references in memory, more in a directory.
///
/// ```swift
/// let manager = try CacheManager(at: directory)
/// manager.addToCache(CacheReference(identifier: url, data: data, hash: hash, maxAge: 60))
/// if let reference = manager.getReference(identifiedBy: url), manager.isValid(reference: reference) { … }
/// ```
///
/// Each tier has its own capacity, and evicts exactly the least recently used reference beyond it. A read counts as a
/// use in both. References past their age are kept: `isValid` checks the age.
///
/// All methods are safe to call from any thread. Processes that open one directory share the references on disk; each
/// has its own references in memory, which may be older.
public final class CacheManager: Sendable {
    /// Capacities are numbers of references.
    public struct Config: Sendable {
        /// 0: keeps nothing in memory.
        public let memoryMaximumCapacity: Int
        /// 0: keeps nothing on disk.
        public let diskMaximumCapacity: Int
        /// The max age, in seconds, of references without a `maxAge`.
        public let cacheMaxAge: Int

        /// Whether the caller has set the capacity on disk.
        fileprivate let limitsDisk: Bool
        static let diskDefault = 150

        /// A nil `diskMaximumCapacity` is 150 in a new directory, and unchanged in an existing one.
        public init(memoryMaximumCapacity: Int = 15, diskMaximumCapacity: Int? = nil, cacheMaxAge: Int = 300) {
            self.memoryMaximumCapacity = memoryMaximumCapacity
            self.diskMaximumCapacity = diskMaximumCapacity ?? Config.diskDefault
            limitsDisk = diskMaximumCapacity != nil
            self.cacheMaxAge = cacheMaxAge
        }
    }

    public let config: Config
    public let diskManager: CacheDiskManager
    private let now: @Sendable () -> Date
    private let memory: ReferenceMemory

    /// Opens the cache in a directory, creating it and missing parents.
    ///
    /// - Parameters:
    ///   - directory: A file URL on a local file system, for this cache only.
    ///   - config: The capacities of the tiers and the default max age.
    ///   - now: The clock for creation times and `isValid`.
    ///   - onError: Called with the errors of later calls, without a lock held. Beagle's methods do not throw: a call
    ///     that fails finds nothing.
    public convenience init(
        at directory: URL, config: Config = Config(), now: @escaping @Sendable () -> Date = { Date() },
        onError: @escaping @Sendable (ShaleError) -> Void = { _ in }
    ) throws(ShaleError) {
        try self.init(in: directory, config, now, onError)
    }

    /// A cache in memory only, which its last reference frees.
    public static func inMemory(
        memoryMaximumCapacity: Int = 15, cacheMaxAge: Int = 300, now: @escaping @Sendable () -> Date = { Date() }
    ) throws(ShaleError) -> CacheManager {
        let config = Config(
            memoryMaximumCapacity: memoryMaximumCapacity, diskMaximumCapacity: 0, cacheMaxAge: cacheMaxAge)
        return try CacheManager(in: nil, config, now) { _ in }
    }

    private init(
        in directory: URL?, _ config: Config, _ now: @escaping @Sendable () -> Date,
        _ onError: @escaping @Sendable (ShaleError) -> Void
    ) throws(ShaleError) {
        for (name, value) in [
            ("memoryMaximumCapacity", config.memoryMaximumCapacity), ("cacheMaxAge", config.cacheMaxAge),
        ] where value < 0 {
            throw ShaleError(
                code: .invalid,
                message: "\(directory?.path ?? "memory"): \(name) is \(value); it must not be negative")
        }
        self.config = config
        self.now = now
        memory = ReferenceMemory(capacity: config.memoryMaximumCapacity)
        diskManager = try CacheDiskManager(
            at: directory, maximumCapacity: config.limitsDisk ? config.diskMaximumCapacity : nil, memory: memory,
            now: now, onError: onError)
    }

    /// Stores the reference in both tiers with the current time as its creation time, replacing one with the same
    /// identifier.
    public func addToCache(_ reference: CacheReference) {
        let reference = diskManager.stamped(reference), removals = memory.removals
        memory.insert(reference, version: diskManager.store(reference), since: removals)
    }

    /// The reference, valid or not, from memory or disk.
    public func getReference(identifiedBy id: String) -> CacheReference? {
        if let reference = memory.use(id) {
            diskManager.use(id)
            return reference
        }
        let removals = memory.removals
        guard let (reference, version) = diskManager.read(id) else { return nil }
        memory.insert(reference, version: version, since: removals)
        return reference
    }

    /// Whether the reference is within its `maxAge`, or the default max age. A max age of 0 is never valid. Removes
    /// nothing.
    public func isValid(reference: CacheReference) -> Bool {
        let maxAge = reference.maxAge ?? config.cacheMaxAge
        return maxAge > 0 && reference.timeOfCreation + TimeInterval(maxAge) > now()
    }

    /// Empties both tiers.
    public func clear() { diskManager.clear() }
}
