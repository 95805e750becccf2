import ShaleCore
import Synchronization

/// Runs one load at a time for a key, however many wait for it.
///
/// A load runs in a task of its own for as long as somebody holds it: those who wait for its result, and those
/// who want it to finish without waiting. When the last of them lets go, it is cancelled. One that is asked for
/// after that begins when the cancelled one has ended, so that there are never two at once. So does one that is asked
/// for after something has happened to the key, and that the load under way may not know of.
final class Loader<Key: Hashable & Sendable, Output: Sendable>: Sendable {
    /// What is going on with a key. It is there while there is a load, or somebody looks whether there is to be one.
    private struct Place {
        var flight: Flight<Output>?
        var lookers = 0
        /// Loads that have ended while somebody looked.
        var ended = 0
    }
    private let places = Mutex<[Key: Place]>([:])

    /// Holds the load of a key that is under way, or begins one. Where none is under way and `stored` finds what
    /// would be loaded, that is the answer. A load stores its result before it leaves, and whoever looked while one left looks
    /// again: so nobody begins another who only came late. `isUntouched` says whether nothing has happened to the key
    /// since the load under way was begun. Both are asked under no lock.
    func join(
        _ key: Key, while isUntouched: (Condition) -> Bool, unless stored: () throws -> Output?,
        load: @escaping @Sendable (LoadFence) async throws -> Output
    ) throws -> Joined<Output> {
        while true {
            let (present, ended) = beginLook(key)
            var begun: Flight<Output>?
            do {
                defer { endLook(key) }
                if let present, present.mayServe(isUntouched), let hold = present.hold() { return .load(hold) }
                if let output = try stored() { return .stored(output) }
                begun = begin(key, after: present, ended)
            }
            if let flight = begun {
                return .load(flight.begin(after: present, load) { [weak self] in self?.leave(key, flight) })
            }
        }
    }

    private func beginLook(_ key: Key) -> (present: Flight<Output>?, ended: Int) {
        places.withLock { places in
            var place = places[key] ?? Place()
            place.lookers += 1
            places[key] = place
            return (place.flight, place.ended)
        }
    }

    private func endLook(_ key: Key) {
        places.withLock { places in
            guard var place = places[key] else { return }
            place.lookers -= 1
            places[key] = place.flight == nil && place.lookers == 0 ? nil : place
        }
    }

    /// Nil where another load has ended, or was begun, since the look began.
    private func begin(_ key: Key, after present: Flight<Output>?, _ ended: Int) -> Flight<Output>? {
        let flight = Flight<Output>()
        return places.withLock { places in
            guard let place = places[key], place.flight === present, place.ended == ended else { return nil }
            places[key]?.flight = flight
            return flight
        }
    }

    private func leave(_ key: Key, _ flight: Flight<Output>) {
        places.withLock { places in
            guard let place = places[key], place.flight === flight else { return }
            places[key] = place.lookers > 0 ? Place(lookers: place.lookers, ended: place.ended + 1) : nil
        }
    }
}

enum Joined<Output: Sendable>: Sendable {
    case load(Hold<Output>)
    case stored(Output)
}
