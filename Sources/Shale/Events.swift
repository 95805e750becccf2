import ShaleCore

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#else
import Darwin
#endif

extension Cache {
    /// A stream of this object's reads and loads. ``changes`` has its insertions, removals and evictions.
    ///
    /// Each call returns a new stream, which ends when the cache object is freed. A stream buffers the newest 1,024
    /// unread events. Its reader may use the cache. Without streams, a read costs one atomic load more.
    public var events: AsyncStream<Event> {
        waits.withLock { observed in
            guard observed == nil else { return }
            // The observer does not capture the cache: the store must not release its last reference.
            let eventBroadcast = eventBroadcast
            observed = store.observeWaits { sentence in
                eventBroadcast.send(.waiting(sentence))
                return eventBroadcast.hasListeners
            }
        }
        return eventBroadcast.stream()
    }

    /// A read, or a step of a load, of this object.
    public enum Event: Sendable {
        case hit(Key, source: EntrySource, isStale: Bool)
        /// A read that returned nil.
        case miss(Key, MissReason)
        /// A stored value did not decode: the read is a miss.
        case undecodable(Key)
        /// A write through the subscript failed and changed nothing.
        case writeFailed(Key, ShaleError)
        /// The cache is about to call a loader.
        case loadBegan(Key)
        /// A loader returned or threw.
        case loadEnded(Key, after: Duration, error: (any Error)?)
        /// A loaded value was not stored, as its key or one of its tags changed during the load.
        case conflict(Key)
        /// A call has waited for a lock of the store for a second, see `Store.Options.onWait`. The message names the
        /// process that holds it. While no event stream is open, the message goes to standard error.
        case waiting(String)
    }

    @usableFromInline
    func emitRead(_ entry: Entry?, for key: Key, includingStale: Bool) {
        if let entry {
            eventBroadcast.send(.hit(key, source: entry.source, isStale: entry.isStale))
        } else {
            eventBroadcast.send(.miss(key, missReason(key, includingStale: includingStale)))
        }
    }

    func reportFailedWrite(_ error: ShaleError, for key: Key) {
        if counters.failedWrites.add(1, ordering: .relaxed).oldValue == 0 {
            writeToStandardError(
                "shale: a subscript write failed; further failures only count in failedWrites: \(error)")
        }
        eventBroadcast.send(.writeFailed(key, error))
    }

    /// Why the key was just missed. A change since the read can yield a later reason.
    private func missReason(_ key: Key, includingStale: Bool) -> MissReason {
        guard let storedKey = try? stored(key) else { return .absent }
        if let known = try? store.entry(for: storedKey, includingStale: includingStale) {
            return Meta.isMissing(known.meta) ? .missing : .undecodable
        }
        return switch try? store.miss(for: storedKey, includingStale: includingStale) {
        case .expired?: .expired
        case .invalidated?: .invalidated
        case .damaged?: .damaged
        default: .absent
        }
    }
}

/// Why a read found no entry.
public enum MissReason: Sendable {
    /// The store has no entry: it was never inserted, or was removed, evicted or purged.
    case absent
    /// The entry is past its max age, and the read did not ask for stale data or the cache no longer keeps it.
    case expired
    /// One of the entry's tags, or the whole cache, was invalidated.
    case invalidated
    /// The entry's record is damaged.
    case damaged
    /// A loader has found that the key has no value.
    case missing
    /// The stored value does not decode.
    case undecodable
}

/// One `write` call, so that output of other writers does not split the line.
private func writeToStandardError(_ line: String) {
    _ = Array("\(line)\n".utf8).withUnsafeBytes { write(STDERR_FILENO, $0.baseAddress, $0.count) }
}
