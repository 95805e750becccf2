/// Why an observer is called.
public enum ResourceEvent: Sendable, Equatable {
    /// The observer was added, and can show what is there already. It alone is called.
    case observerAdded
    /// A load has begun.
    case requested
    /// `latestData` is another.
    case newData(NewDataSource)
    /// A load found `latestData` still right; it has a new timestamp.
    case notModified
    /// A load has failed, see `latestError`.
    case error

    /// Where new data comes from.
    public enum NewDataSource: Sendable { case network, cache, localOverride }
}

/// Is called on the resource's executor, so that it can read the resource's state as it was left by the event.
public typealias ResourceObserverClosure = @Sendable (isolated Resource, ResourceEvent) -> Void

struct Observer: Sendable {
    weak var owner: (any AnyObject & Sendable)?
    let closure: ResourceObserverClosure
    /// Called when the resource goes.
    var end: @Sendable () -> Void = {}
}

/// An event with what it left, so that whoever shows it need not ask the resource.
public struct ResourceUpdate: Sendable {
    public let event: ResourceEvent
    public let latestData: Entity<any Sendable>?
    public let latestError: (any Error)?
}

extension Resource {
    /// Calls the closure with all events to come, in their order, for as long as its owner lives. The resource does not keep the owner alive.
    public func addObserver(owner: any AnyObject & Sendable, closure: @escaping ResourceObserverClosure) {
        addObserver(Observer(owner: owner, closure: closure))
    }

    /// All events to come, in their order, the first of them `observerAdded`; for one reader, in whatever isolation:
    ///
    /// ```swift
    /// @MainActor func show() async {
    ///     for await update in await front.events { story = update.latestData?.typedContent() }
    /// }
    /// ```
    ///
    /// Each call gives a sequence of its own, which ends with the resource, or with its reader's task. One that is not read keeps the
    /// newest 1,024 events.
    public var events: AsyncStream<ResourceUpdate> {
        final class Owner: Sendable {}
        let (stream, continuation) = AsyncStream.makeStream(
            of: ResourceUpdate.self, bufferingPolicy: .bufferingNewest(1024))
        let owner = Owner()
        // It lives as long as the stream.
        continuation.onTermination = { _ in withExtendedLifetime(owner) {} }
        addObserver(
            Observer(
                owner: owner,
                closure: { resource, event in
                    continuation.yield(
                        ResourceUpdate(
                            event: event, latestData: resource.latestData, latestError: resource.latestError))
                }, end: { continuation.finish() }))
        return stream
    }

    private func addObserver(_ observer: Observer) {
        observers.append(observer)
        observer.closure(self, .observerAdded)
        readCacheOnce()
    }

    public func removeObservers(ownedBy owner: any AnyObject & Sendable) {
        observers.removeAll { $0.owner === owner }
    }

    func notifyObservers(_ event: ResourceEvent) {
        observers.removeAll { $0.owner == nil }
        for observer in observers { observer.closure(self, event) }
    }
}
