import Foundation

extension FileHandle {
    /// What comes in, line by line, to its end. A last line without an end is left out: who wrote it was killed.
    var lines: AsyncStream<String> {
        AsyncStream { continuation in
            // Reading blocks, and the pool of threads that tasks run on may have one alone.
            Thread.detachNewThread {
                var line = Data()
                while case var chunk = self.availableData, !chunk.isEmpty {
                    while let end = chunk.firstIndex(of: UInt8(ascii: "\n")) {
                        continuation.yield(String(decoding: line + chunk[..<end], as: UTF8.self))
                        line = Data()
                        chunk = chunk[(end + 1)...]
                    }
                    line += chunk
                }
                continuation.finish()
            }
        }
    }
}
