#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// The entries of a ``MemoryCache``. Its lock guards the table, so the table neither hashes, compares nor frees: callers
/// compare between two calls, and free what is returned.
@usableFromInline
struct EntryTable<Key, Value> {
    @usableFromInline
    struct Entry {
        @usableFromInline let key: Key
        @usableFromInline let value: Value
        @usableFromInline let hash: Int
        @usableFromInline let expirationDate: Date
        @usableFromInline let cost: Int

        @inlinable
        init(key: Key, value: Value, hash: Int, expirationDate: Date, cost: Int) {
            self.key = key
            self.value = value
            self.hash = hash
            self.expirationDate = expirationDate
            self.cost = cost
        }

        @inlinable var deadline: Double { expirationDate.timeIntervalSinceReferenceDate }
    }

    @usableFromInline
    struct Found {
        @usableFromInline let entry: Entry
        @usableFromInline let place: Place

        @inlinable
        init(entry: Entry, place: Place) {
            self.entry = entry
            self.place = place
        }
    }

    /// By position; nil: free.
    @usableFromInline var entries: [Entry?] = []
    @usableFromInline var places = Places()
    @usableFromInline var totalCost = 0
    @usableFromInline let maximumCount: Int
    /// At most half of `Int.max`, so that the sum of a total and a cost does not overflow.
    @usableFromInline let maximumCost: Int

    @inlinable
    init(maximumCount: Int, maximumCost: Int) {
        self.maximumCount = maximumCount
        self.maximumCost = maximumCost
    }

    /// The newest entry with the hash.
    @inlinable
    func first(_ hash: Int) -> Found? { found(at: places.first(hash)) }

    /// The next older entry with the hash.
    @inlinable
    func next(after found: Found) -> Found? { self.found(at: places.next(after: found.place, found.entry.hash)) }

    @inlinable
    func found(at place: Place?) -> Found? {
        guard let place, let entry = entries[place.position] else { return nil }
        return Found(entry: entry, place: place)
    }

    /// Makes the entry the most recently used, if it is still present.
    @inlinable
    mutating func use(_ place: Place) { if places.holds(place) { places.use(place.position) } }

    /// Nil: it is no longer present.
    @inlinable
    mutating func remove(_ place: Place) -> Entry? { places.holds(place) ? remove(at: place.position) : nil }

    @inlinable
    mutating func remove(at position: Int) -> Entry? {
        places.release(position)
        let removed = entries[position].take()
        totalCost -= removed?.cost ?? 0
        return removed
    }

    /// Stores an entry in place of another one with the same key, and returns the entries that left. Returns nil and
    /// changes nothing if that one is no longer present.
    @inlinable
    mutating func replace(_ place: Place, with entry: Entry, at now: Date) -> [Entry]? {
        guard places.holds(place) else { return nil }
        if entry.cost > maximumCost { return remove(at: place.position).map { [$0, entry] } }
        places.renew(place.position, deadline: entry.deadline)
        let replaced = entries[place.position].take()
        entries[place.position] = entry
        totalCost += entry.cost - (replaced?.cost ?? 0)
        var left = trim(at: now)
        if let replaced { left.append(replaced) }
        return left
    }

    /// Stores an entry in place of the present one with the same key, or as a further one, and returns the entries that
    /// left. Returns nil and changes nothing if an entry with the hash is newer than `newest`, up to which the caller
    /// has searched: it may have the same key.
    @inlinable
    mutating func insert(_ entry: Entry, replacing present: Place?, upTo newest: Place?, at now: Date) -> [Entry]? {
        if let first = places.first(entry.hash), first.number != newest?.number { return nil }
        if let present, let left = replace(present, with: entry, at: now) { return left }
        if entry.cost > maximumCost { return [entry] }
        let position = places.add(entry.hash, deadline: entry.deadline)
        if position == entries.count { entries.append(entry) } else { entries[position] = entry }
        totalCost += entry.cost
        return trim(at: now)
    }

    /// Removes entries beyond the limits: expired ones, then the least recently used.
    @inlinable
    mutating func trim(at now: Date) -> [Entry] {
        var left: [Entry] = []
        while places.count > maximumCount || totalCost > maximumCost,
            let position = places.expired(at: now.timeIntervalSinceReferenceDate) ?? places.oldest,
            let victim = remove(at: position)
        {
            left.append(victim)
        }
        return left
    }

    @inlinable
    mutating func removeExpired(at now: Date) -> [Entry] {
        var left: [Entry] = []
        while let position = places.expired(at: now.timeIntervalSinceReferenceDate), let entry = remove(at: position) {
            left.append(entry)
        }
        return left
    }

    /// Returns what was stored.
    mutating func removeAll() -> [Entry?] {
        let all = entries
        entries = []
        totalCost = 0
        places.removeAll()
        return all
    }

    /// All entries, the least recently used first.
    var all: [Entry] {
        sequence(state: places.oldest) { position in
            defer { position = position.flatMap(places.next(after:)) }
            return position
        }.compactMap { entries[$0] }
    }
}

extension EntryTable: Sendable where Key: Sendable, Value: Sendable {}
extension EntryTable.Entry: Sendable where Key: Sendable, Value: Sendable {}
