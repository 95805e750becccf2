import Foundation

/// A directory for one test, removed with its contents when the last reference is released. It lies below TMPDIR.
public final class TemporaryDirectory: Sendable {
    public let path: String

    public init() {
        let parent = ProcessInfo.processInfo.environment["TMPDIR"] ?? "/tmp"
        var template = Array("\(parent)/shale-test-XXXXXX".utf8CString)
        guard mkdtemp(&template) != nil else {
            fatalError("no temporary directory in \(parent): errno \(errno)")
        }
        path = String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }

    deinit { try? FileManager.default.removeItem(atPath: path) }

    /// A path below the directory; nothing is created.
    public func path(_ name: String) -> String { "\(path)/\(name)" }
}
