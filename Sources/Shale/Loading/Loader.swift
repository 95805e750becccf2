import ShaleCore
import Synchronization

/// Runs one load at a time for a key, however many wait for it.
///
/// A load runs in a task of its own for as long as somebody holds it: those who wait for its result, and those
/// who want it to finish without waiting. When the last of them lets go, it is cancelled. One that is asked for
/// after that begins when the cancelled one has ended, so that there are never two at once. So does one that is asked
/// for after something has happened to the key, and that the load under way may not know of.
final class Loader<Key: Hashable & Sendable, Output: Sendable>: Sendable {
    private let flights = Mutex<[Key: Flight<Output>]>([:])

    /// Holds the load of a key that is under way, or begins one. Where none is under way and `stored` finds what
    /// would be loaded, that is the answer. It is asked within the lock, and a load stores its result before it
    /// leaves: so nobody begins another who only came late. `isUntouched` says whether nothing has happened to the key
    /// since the load under way was begun.
    func join(
        _ key: Key, while isUntouched: (Condition) -> Bool, unless stored: () throws -> Output?,
        load: @escaping @Sendable (LoadFence) async throws -> Output
    ) throws -> Joined<Output> {
        try flights.withLock { flights in
            let present = flights[key]
            if let present, present.mayServe(isUntouched), let hold = present.hold() { return .load(hold) }
            if let output = try stored() { return .stored(output) }
            let flight = Flight<Output>()
            flights[key] = flight
            return .load(
                flight.begin(after: present, load) { [weak self] in
                    self?.flights.withLock { flights in
                        if flights[key] === flight { flights[key] = nil }
                    }
                })
        }
    }
}

enum Joined<Output: Sendable>: Sendable {
    case load(Hold<Output>)
    case stored(Output)
}
