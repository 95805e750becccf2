import ShaleCore

/// The calls into the cache, in one place.
struct CacheClient {
    enum Answer {
        case missing
        case found(hasAge: Bool)  // and `bytes` has the value
        case failed(String)
    }

    private let engine: Engine
    private var buffer = ValueBuffer()
    private var found = Found()

    init(directory: String, capacity: UInt64) {
        var configuration = Configuration()
        configuration.capacity = capacity
        do {
            engine = try Engine.open(directory, configuration)
        } catch {
            fail(with: "\(directory): \(error)")
        }
    }

    /// The value that the last `get` has found.
    var bytes: UnsafeRawBufferPointer {
        UnsafeRawBufferPointer(start: buffer.data, count: found.size)
    }

    mutating func get(_ key: UnsafeRawBufferPointer) -> Answer {
        do {
            let status = try engine.get(key, [], &buffer, &found)
            return status == .miss ? .missing : .found(hasAge: found.expires != .max)
        } catch {
            return .failed("\(error)")
        }
    }

    /// What went wrong, or nil.
    mutating func set(_ key: UnsafeRawBufferPointer, to value: UnsafeRawBufferPointer) -> String? {
        var version: UInt64 = 0
        do {
            _ = try engine.set(key, value, SetOptions(), version: &version)
            return nil
        } catch {
            return "\(error)"
        }
    }

    /// What went wrong, or nil.
    func invalidate(_ tag: String) -> String? {
        var tag = tag
        return tag.withUTF8 { bytes in
            do {
                try engine.invalidate(UnsafeRawBufferPointer(bytes))
                return nil
            } catch {
                return "\(error)"
            }
        }
    }

    /// What went wrong, or nil.
    func close() -> String? {
        do {
            try engine.close()
            return nil
        } catch {
            return "\(error)"
        }
    }
}
