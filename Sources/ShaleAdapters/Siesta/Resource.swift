#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif
import Shale

/// The state of something that is loaded from a URL, for observers: its latest data, from a cache first and then from its origin.
///
/// ```swift
/// let front = Resource(url: url, cache: cache) { stored in try await download(url, unless: stored?.etag) }
/// await front.addObserver(owner: view) { resource, _ in view.show(resource.latestData?.typedContent()) }
/// try await front.loadIfNeeded()
/// ```
///
/// The cache is read once, when the first observer is added or the first load is asked for. Make one resource for a URL, and share it.
public actor Resource {
    /// Gets the data from its origin, which it may ask whether what is stored, if there is any, is still right.
    public typealias Loader = @Sendable (_ stored: Entity<any Sendable>?) async throws -> Response

    /// What a load found.
    public enum Response: Sendable {
        case newData(Entity<any Sendable>)
        /// What is stored is still right.
        case notModified
    }

    public nonisolated let url: URL
    /// Seconds for which data is up to date.
    public nonisolated let expirationTime: TimeInterval
    private let cache: (any EntityCache)?
    private let now: @Sendable () -> Date
    private let loader: Loader

    /// The newest valid data, up to date or not. An error leaves it as it is.
    public private(set) var latestData: Entity<any Sendable>?
    /// What the last load threw; nil once one has succeeded.
    public private(set) var latestError: (any Error)?
    private var isInvalidated = false
    /// How often `latestData` was set.
    private var generation = 0
    private var currentLoad: Task<Entity<any Sendable>, any Error>?
    private var initialRead: Task<Void, Never>?
    private var cacheWork: Task<Void, Never>?
    var observers: [Observer] = []

    /// - Parameters:
    ///   - url: What the cache's key is made of.
    ///   - cache: Nil: none.
    ///   - expirationTime: Seconds for which data is up to date, counted from its timestamp.
    ///   - now: The clock by which that is judged.
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

    /// Whether the last load succeeded, the data is no older than the expiration time, and nobody has invalidated it.
    public var isUpToDate: Bool {
        guard !isInvalidated, latestError == nil, let latestData else { return false }
        return now().timeIntervalSinceReferenceDate - latestData.timestamp <= expirationTime
    }

    /// The data if it is up to date, perhaps from the cache; else what a load gives. Joins a load that is under way.
    @discardableResult
    public func loadIfNeeded() async throws -> Entity<any Sendable> {
        await readCacheOnce().value
        if currentLoad == nil, isUpToDate, let latestData { return latestData }
        return try await load()
    }

    /// Loads, whatever is there, or joins a load that is under way. Returns when observers and the cache have got the result.
    ///
    /// Throws what the loader throws. A load goes to its end, also where the tasks that wait for it are cancelled.
    @discardableResult
    public func load() async throws -> Entity<any Sendable> {
        if let currentLoad { return try await currentLoad.value }
        let task = Task { try await request() }
        currentLoad = task
        return try await task.value
    }

    /// Lets the next `loadIfNeeded` load, and leaves the data as it is.
    public func invalidate() { isInvalidated = true }

    /// Replaces the data without a load. What the cache holds is removed, as it may be wrong now.
    public func overrideLocalData(with entity: Entity<any Sendable>) async {
        receive(entity, from: .localOverride)
        await inCache { await $0.remove(for: $1) }
    }

    private func request() async throws -> Entity<any Sendable> {
        await readCacheOnce().value
        notifyObservers(.requested)
        // After the changes that are on their way.
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
                            "the loader of \(url) says \"not modified\", but nothing is stored: answer with new data")
                }
                currentLoad = nil
                // What has come meanwhile was not asked about.
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
            // What came meanwhile is newer.
            if let entity = await cache?.read(for: self), latestData == nil { receive(entity, from: .cache) }
        }
        initialRead = task
        return task
    }

    /// Changes reach the cache in their order: its queue may be a concurrent one.
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
