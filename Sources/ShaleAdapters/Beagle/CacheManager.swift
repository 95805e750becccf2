#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif
import Shale

/// Beagle's cache of components: a few references in memory, more of them in a directory.
///
/// ```swift
/// let manager = try CacheManager(at: directory)
/// manager.addToCache(CacheReference(identifier: url, data: data, hash: hash, maxAge: 60))
/// if let reference = manager.getReference(identifiedBy: url), manager.isValid(reference: reference) { … }
/// ```
///
/// Each tier has a capacity of its own, and drops exactly the least recently used beyond it. A read counts as a use
/// in both. References stay when they are past their age: whether one is still valid is asked with `isValid`.
///
/// Every method may be called from any thread. Processes that open one directory share what is on disk; what is in
/// memory is each one's own, and may be older.
public final class CacheManager: Sendable {
    /// Capacities are numbers of references.
    public struct Config: Sendable {
        /// 0: nothing is kept in memory.
        public let memoryMaximumCapacity: Int
        /// 0: nothing is kept on disk.
        public let diskMaximumCapacity: Int
        /// Seconds; of references that have no `maxAge` of their own.
        public let cacheMaxAge: Int

        /// Whether somebody has asked for the capacity on disk.
        fileprivate let limitsDisk: Bool
        static let diskDefault = 150

        /// A capacity on disk that is left out is 150 in a new directory, and unchanged in an existing one.
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
    ///   - directory: A file URL on a local file system, for this cache alone.
    ///   - config: How many references each tier holds, and their default age.
    ///   - now: The clock that `isValid` goes by.
    ///   - onError: Gets what fails later on, under no lock: Beagle's methods throw nothing. What fails reads as nothing there.
    public convenience init(
        at directory: URL, config: Config = Config(), now: @escaping @Sendable () -> Date = { Date() },
        onError: @escaping @Sendable (ShaleError) -> Void = { _ in }
    ) throws(ShaleError) {
        try self.init(in: directory, config, now, onError)
    }

    /// A cache in memory alone, which goes with its last reference.
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
        if config.memoryMaximumCapacity < 0 || config.cacheMaxAge < 0 {
            throw ShaleError(
                code: .invalid,
                message:
                    "\(directory?.path ?? "memory"): the capacity in memory is \(config.memoryMaximumCapacity), and the default age \(config.cacheMaxAge); neither is negative"
            )
        }
        self.config = config
        self.now = now
        memory = ReferenceMemory(capacity: config.memoryMaximumCapacity)
        diskManager = try CacheDiskManager(
            at: directory, maximumCapacity: config.limitsDisk ? config.diskMaximumCapacity : nil, memory: memory,
            now: now, onError: onError)
    }

    /// Stores the reference in both tiers, created now, in place of another with its identifier.
    public func addToCache(_ reference: CacheReference) {
        let reference = diskManager.stamped(reference), removals = memory.removals
        memory.insert(reference, version: diskManager.store(reference), since: removals)
    }

    /// The reference, valid or not, from memory or else from disk.
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

    /// Whether the reference's age is not over: its own `maxAge`, or else the default. An age of 0 is over at once. Removes nothing.
    public func isValid(reference: CacheReference) -> Bool {
        let maxAge = reference.maxAge ?? config.cacheMaxAge
        return maxAge > 0 && reference.timeOfCreation + TimeInterval(maxAge) > now()
    }

    /// Empties both tiers.
    public func clear() { diskManager.clear() }
}
