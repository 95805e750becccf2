/// Why an observer is called.
public enum ResourceEvent: Sendable, Equatable {
    /// The observer was added and can show the current state. Only the new observer is called.
    case observerAdded
    /// A load has begun.
    case requested
    /// `latestData` has changed.
    case newData(NewDataSource)
    /// A load has validated `latestData`, which has a new timestamp.
    case notModified
    /// A load has failed, see `latestError`.
    case error

    /// The source of new data.
    public enum NewDataSource: Sendable { case network, cache, localOverride }
}

/// Called on the resource's executor, where it can read the state after the event.
public typealias ResourceObserverClosure = @Sendable (isolated Resource, ResourceEvent) -> Void

struct Observer: Sendable {
    weak var owner: (any AnyObject & Sendable)?
    let closure: ResourceObserverClosure
    /// Called when the resource is freed.
    var end: @Sendable () -> Void = {}
}

/// An event with the state after it, so that its reader need not call the resource.
public struct ResourceUpdate: Sendable {
    public let event: ResourceEvent
    public let latestData: Resource.Entity<any Sendable>?
    public let latestError: (any Error)?
}

extension Resource {
    /// Calls the closure with all later events, in order, while its owner lives. The resource does not retain the
    /// owner.
    public func addObserver(owner: any AnyObject & Sendable, closure: @escaping ResourceObserverClosure) {
        addObserver(Observer(owner: owner, closure: closure))
    }

    /// All later events, in order, starting with `observerAdded`, for one reader in any isolation:
    ///
    /// ```swift
    /// @MainActor func show() async {
    ///     for await update in await front.events { story = update.latestData?.typedContent() }
    /// }
    /// ```
    ///
    /// Each call returns a new stream, which ends when the resource is freed or its reader's task is cancelled. A
    /// stream buffers the newest 1,024 unread events.
    public var events: AsyncStream<ResourceUpdate> {
        final class Owner: Sendable {}
        let (stream, continuation) = AsyncStream.makeStream(
            of: ResourceUpdate.self, bufferingPolicy: .bufferingNewest(1024))
        let owner = Owner()
        // The owner lives as long as the stream.
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
