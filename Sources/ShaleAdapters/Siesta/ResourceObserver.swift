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

struct Observer {
    weak var owner: (any AnyObject & Sendable)?
    let closure: ResourceObserverClosure
}

extension Resource {
    /// Calls the closure with all events to come, in their order, for as long as its owner lives. The resource does not keep the owner alive.
    public func addObserver(owner: any AnyObject & Sendable, closure: @escaping ResourceObserverClosure) {
        observers.append(Observer(owner: owner, closure: closure))
        closure(self, .observerAdded)
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
