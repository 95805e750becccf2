import Foundation

extension FileHandle {
    /// The lines until end of file. Omits an incomplete last line, whose writer was killed.
    var lines: AsyncStream<String> {
        AsyncStream { continuation in
            // A thread, since reading blocks and the thread pool of tasks may have only one thread.
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
