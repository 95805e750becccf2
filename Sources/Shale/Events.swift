import ShaleCore

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#else
import Darwin
#endif

extension Cache {
    /// What this object reads and loads from now on. ``changes`` has what it inserts and removes, and what is evicted.
    ///
    /// As with those, each call gives a sequence of its own, which ends with the cache object, and one that is not read keeps
    /// the newest 1,024 events. They are read in a task of the reader's own, so it may use the cache, or fail, as it likes. While
    /// nobody listens, a read pays for one look whether somebody does.
    public var events: AsyncStream<Event> {
        waits.withLock { observed in
            guard observed == nil else { return }
            // Not the cache: its last reference must not go where the store calls.
            let told = told
            observed = store.observeWaits { sentence in
                told.send(.waiting(sentence))
                return told.isHeard
            }
        }
        return told.stream()
    }

    /// A read, or a step of a load, of this object.
    public enum Event: Sendable {
        case hit(Key, source: EntrySource, isStale: Bool)
        /// A read that found nothing that was asked for.
        case miss(Key, MissReason)
        /// A stored value did not decode. It is removed, and a miss.
        case undecodable(Key)
        /// A write through the subscript has failed, and changed nothing.
        case writeFailed(Key, ShaleError)
        /// A loader is about to be asked.
        case loadBegan(Key)
        /// It has answered, or thrown.
        case loadEnded(Key, after: Duration, error: (any Error)?)
        /// What was loaded is not stored, as something had happened to its key or its tags meanwhile.
        case conflict(Key)
        /// A call has waited for a lock of the store for a second, see `Store.Options.onWait`. The sentence names the process
        /// that holds it. While no stream of events is open, it is written to standard error.
        case waiting(String)
    }

    @usableFromInline
    func tell(of entry: Entry?, for key: Key, includingStale: Bool) {
        if let entry {
            told.send(.hit(key, source: entry.source, isStale: entry.isStale))
        } else {
            told.send(.miss(key, missReason(key, includingStale: includingStale)))
        }
    }

    func tell(ofFailedWrite error: ShaleError, for key: Key) {
        if counters.failedWrites.add(1, ordering: .relaxed).oldValue == 0 {
            writeToStandardError("shale: a write was lost, as are further ones without a word: \(error)")
        }
        told.send(.writeFailed(key, error))
    }

    /// Of a key that was just missed; a change since then may have given it another.
    private func missReason(_ key: Key, includingStale: Bool) -> MissReason {
        guard let storedKey = try? stored(key) else { return .absent }
        if let known = try? store.entry(for: storedKey, includingStale: includingStale), Meta.isMissing(known.meta) {
            return .missing
        }
        return switch try? store.miss(for: storedKey, includingStale: includingStale) {
        case .expired?: .expired
        case .invalidated?: .invalidated
        case .damaged?: .damaged
        default: .absent
        }
    }
}

/// Why a read found nothing.
public enum MissReason: Sendable {
    /// It is not there, or has been swept, evicted or dropped since.
    case absent
    /// It is past its age, and stale data was not asked for, or not kept.
    case expired
    /// One of its tags, or the whole cache, was invalidated.
    case invalidated
    case damaged
    /// A loader has found that there is none.
    case missing
}

/// In one piece, as others may write there too.
private func writeToStandardError(_ line: String) {
    _ = Array("\(line)\n".utf8).withUnsafeBytes { write(STDERR_FILENO, $0.baseAddress, $0.count) }
}
