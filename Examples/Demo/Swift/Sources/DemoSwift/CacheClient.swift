import ShaleCore

/// All calls of the cache.
struct CacheClient {
    enum Answer {
        case missing
        case found
        case failed(String)
    }

    private let store: Store

    init(directory: String, capacity: Int) {
        do {
            store = try Store(at: directory, options: Store.Options(capacity: capacity))
        } catch {
            fail(with: error.message)
        }
    }

    /// Calls `body` with the value if the key is found.
    func get(
        _ key: UnsafeRawBufferPointer,
        _ body: (_ value: UnsafeRawBufferPointer, _ hasAge: Bool) -> Void
    ) -> Answer {
        do {
            let found: Void? = try store.withValue(for: key) { entry, value in body(value, entry.expiresAt != nil) }
            return found == nil ? .missing : .found
        } catch {
            return .failed(error.message)
        }
    }

    /// Returns an error message, or nil.
    func set(_ key: UnsafeRawBufferPointer, to value: UnsafeRawBufferPointer) -> String? {
        problem { () throws(ShaleError) in try store.insert(value, for: key) }
    }

    /// Returns an error message, or nil.
    func invalidate(_ tag: String) -> String? {
        problem { () throws(ShaleError) in try store.removeAll(tagged: tag) }
    }

    /// Returns an error message, or nil.
    func close() -> String? {
        problem { () throws(ShaleError) in try store.close() }
    }

    private func problem<Result>(_ body: () throws(ShaleError) -> Result) -> String? {
        do {
            _ = try body()
            return nil
        } catch {
            return error.message
        }
    }
}
