#if HTTP
import NIOHTTP1
import Synchronization

/// What the cache reads of a message at most, so that no message costs more than others by much. A request beyond these
/// limits is passed through; a response beyond them is not stored.
enum Limits {
    static let fields = 256
    /// In bytes, of all names and values. Keys contain values of a request: keys of the store have at most 64 KiB.
    static let size = 32 << 10
    /// In bytes.
    static let url = 16 << 10
    /// Directives of Cache-Control, and the field names in their arguments.
    static let directives = 64
    /// Names in a response's Vary.
    static let varyNames = 16
    /// Different sets of names in Vary, of the responses of a URL.
    static let varySets = 4
    /// In bytes. No date is longer.
    static let date = 40

    static func allow(_ headers: HTTPHeaders) -> Bool {
        headers.count <= fields && headers.reduce(0) { $0 + $1.name.utf8.count + $1.value.utf8.count } <= size
    }
}

/// Counts the bytes that a task's parsers examine: tests show by it that their cost is linear.
enum Steps {
    #if DEBUG
    final class Counter: Sendable {
        private let total = Mutex(0)
        var value: Int { total.withLock { $0 } }
        func add(_ count: Int) { total.withLock { $0 += count } }
    }

    @TaskLocal static var counter: Counter?

    static func add(_ count: Int) { counter?.add(count) }
    #else
    @inline(__always) static func add(_ count: Int) {}
    #endif
}
#endif
