import Foundation

/// The files of a cache, by their documented names.
public struct CacheFiles: Sendable {
    public let directory: String

    public init(_ directory: String) { self.directory = directory }

    public var data: String { "\(directory)/shale.data" }
    public var index: String { "\(directory)/shale.index" }

    /// Makes the next open rebuild everything from the data file.
    public func removeIndex() throws { try FileManager.default.removeItem(atPath: index) }

    /// Allocated bytes of the directory and its files: what `du` says.
    public func diskUsage() throws -> Int {
        var total = try Self.allocated(directory)
        for name in try FileManager.default.contentsOfDirectory(atPath: directory) {
            // The index may be replaced between the listing and its stat.
            total += (try? Self.allocated("\(directory)/\(name)")) ?? 0
        }
        return total
    }

    private static func allocated(_ path: String) throws -> Int {
        var information = stat()
        guard lstat(path, &information) == 0 else { throw POSIXFailure(path) }
        return Int(information.st_blocks) * 512
    }
}

public struct POSIXFailure: Error, CustomStringConvertible {
    public let description: String

    public init(_ path: String) { description = "\(path): \(String(cString: strerror(errno)))" }
}

/// A whole file. Sparse places read as zeros.
public func contents(of path: String) throws -> Blob {
    try Blob(copying: Data(contentsOf: URL(fileURLWithPath: path)))
}

/// Replaces a whole file.
public func write(_ bytes: some Bytes, to path: String) throws {
    try Data(bytes.bytes).write(to: URL(fileURLWithPath: path))
}

/// Overwrites a few bytes in the middle of a file and leaves the rest, holes included.
public func patch(_ path: String, at offset: Int, with bytes: some Bytes) throws {
    let bytes = bytes.bytes
    let descriptor = open(path, O_WRONLY)
    guard descriptor >= 0 else { throw POSIXFailure(path) }
    defer { close(descriptor) }
    guard bytes.withUnsafeBytes({ pwrite(descriptor, $0.baseAddress, $0.count, off_t(offset)) }) == bytes.count else {
        throw POSIXFailure(path)
    }
}

public func exists(_ path: String) -> Bool {
    var information = stat()
    return lstat(path, &information) == 0
}
