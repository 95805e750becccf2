import Foundation

/// A directory that is removed with its last reference.
final class Directory: Sendable {
    let url = FileManager.default.temporaryDirectory.appendingPathComponent("shale-consumer-\(UUID().uuidString)")
    deinit { try? FileManager.default.removeItem(at: url) }
}
