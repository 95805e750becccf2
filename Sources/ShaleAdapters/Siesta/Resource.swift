#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif
import Shale

/// The observable state of a URL: its latest data, first from a cache, then from its origin.
///
/// ```swift
/// let front = Resource(url: url, cache: cache) { stored in try await download(url, unless: stored?.etag) }
/// try await front.loadIfNeeded()
/// for await update in await front.events { story = update.latestData?.typedContent() }
/// ```
///
/// The resource reads the cache once, when the first observer is added or the first load is requested. Create one
/// resource for each URL, and share it.
public actor Resource {
    /// Gets the data from its origin. It can validate the stored entity, if there is one, instead.
    public typealias Loader = @Sendable (_ stored: Entity<any Sendable>?) async throws -> Response

    /// The result of a loader.
    public enum Response: Sendable {
        case newData(Entity<any Sendable>)
        /// The stored entity is still valid.
        case notModified
    }

    public nonisolated let url: URL
    /// How long data is up to date, in seconds.
    public nonisolated let expirationTime: TimeInterval
    private let cache: (any EntityCache)?
    private let now: @Sendable () -> Date
    private let loader: Loader

    /// The newest valid data, up to date or not. An error leaves it as it is.
    public private(set) var latestData: Entity<any Sendable>?
    /// The error of the last load; nil once a load has succeeded.
    public private(set) var latestError: (any Error)?
    private var isInvalidated = false
    /// How many times `latestData` was set.
    private var generation = 0
    private var currentLoad: Task<Entity<any Sendable>, any Error>?
    private var initialRead: Task<Void, Never>?
    private var cacheWork: Task<Void, Never>?
    var observers: [Observer] = []

    /// - Parameters:
    ///   - url: The origin, from which the cache derives its key.
    ///   - cache: Nil: none.
    ///   - expirationTime: How long data is up to date, in seconds, counted from its timestamp.
    ///   - now: The clock for `isUpToDate`.
    ///   - loader: Gets the data from its origin. One load runs at a time.
    public init(
        url: URL, cache: (any EntityCache)? = nil, expirationTime: TimeInterval = 30,
        now: @escaping @Sendable () -> Date = { Date() },
        loader: @escaping Loader
    ) {
        self.url = url
        self.cache = cache
        self.expirationTime = expirationTime
        self.now = now
        self.loader = loader
    }

    deinit {
        for observer in observers { observer.end() }
    }

    // MARK: Loading

    public var isLoading: Bool { currentLoad != nil }

    /// Whether the last load succeeded, the data is no older than the expiration time, and `invalidate` was not called.
    public var isUpToDate: Bool {
        guard !isInvalidated, latestError == nil, let latestData else { return false }
        return now().timeIntervalSinceReferenceDate - latestData.timestamp <= expirationTime
    }

    /// The data if it is up to date, possibly from the cache; otherwise loads. Joins a load that is under way.
    @discardableResult
    public func loadIfNeeded() async throws -> Entity<any Sendable> {
        await readCacheOnce().value
        if currentLoad == nil, isUpToDate, let latestData { return latestData }
        return try await load()
    }

    /// Always loads, or joins a load that is under way. Returns when observers and the cache have the result.
    ///
    /// Throws what the loader throws. Cancelling the waiting tasks does not cancel the load.
    @discardableResult
    public func load() async throws -> Entity<any Sendable> {
        if let currentLoad { return try await currentLoad.value }
        let task = Task { try await request() }
        currentLoad = task
        return try await task.value
    }

    /// Makes the next `loadIfNeeded` load. Keeps the data.
    public func invalidate() { isInvalidated = true }

    /// Replaces the data without a load, and removes the cached entity, which may be invalid now.
    public func overrideLocalData(with entity: Entity<any Sendable>) async {
        receive(entity, from: .localOverride)
        await inCache { await $0.remove(for: $1) }
    }

    private func request() async throws -> Entity<any Sendable> {
        await readCacheOnce().value
        notifyObservers(.requested)
        // After pending changes to the cache.
        await cacheWork?.value
        let fence = await cache?.fence(for: self) ?? nil
        let validated = latestData, generation = generation
        do {
            switch try await loader(validated) {
            case .newData(let entity):
                currentLoad = nil
                receive(entity, from: .network)
                await inCache { await $0.write(entity, for: $1, since: fence) }
                return entity
            case .notModified:
                guard let validated, let latestData else {
                    throw ShaleError(
                        code: .invalid,
                        message:
                            "the loader of \(url) returned notModified, but nothing is stored; return newData")
                }
                currentLoad = nil
                // The loader did not validate data that has arrived during the load.
                guard generation == self.generation else { return latestData }
                var entity = validated
                entity.timestamp = now().timeIntervalSinceReferenceDate
                update(entity)
                notifyObservers(.notModified)
                await inCache { [entity] in await $0.updateTimestamp(entity.timestamp, for: $1, of: validated) }
                return entity
            }
        } catch {
            currentLoad = nil
            latestError = error
            isInvalidated = false
            notifyObservers(.error)
            throw error
        }
    }

    private func receive(_ entity: Entity<any Sendable>, from source: ResourceEvent.NewDataSource) {
        update(entity)
        notifyObservers(.newData(source))
    }

    private func update(_ entity: Entity<any Sendable>) {
        latestData = entity
        generation += 1
        latestError = nil
        isInvalidated = false
    }

    // MARK: The cache

    @discardableResult
    func readCacheOnce() -> Task<Void, Never> {
        if let initialRead { return initialRead }
        let task = Task {
            // Data that has arrived since is newer.
            if let entity = await cache?.read(for: self), latestData == nil { receive(entity, from: .cache) }
        }
        initialRead = task
        return task
    }

    /// Serializes changes to the cache, whose queue may be concurrent.
    private func inCache(_ change: @escaping @Sendable (any EntityCache, Resource) async -> Void) async {
        guard let cache else { return }
        let before = cacheWork
        let task = Task {
            await before?.value
            await change(cache, self)
        }
        cacheWork = task
        await task.value
    }
}
