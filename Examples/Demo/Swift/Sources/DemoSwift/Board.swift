import Synchronization

/// The number of entries that the writer has completed, in a mapped file; see demo/board.py.
struct Board {
    private let words: UnsafeMutablePointer<Atomic<UInt64>>

    init(path: String) {
        let file = mapFile(path, writable: true)
        guard let start = file.baseAddress else { fail(with: "\(path) is empty") }
        words = start.assumingMemoryBound(to: Atomic<UInt64>.self)
    }

    var completed: Int {
        Int(words.pointee.load(ordering: .acquiring))
    }
}
