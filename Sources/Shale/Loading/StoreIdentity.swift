import ShaleCore

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#else
import Darwin
#endif

/// Identifies a store: equal for all objects that have it open in this process, also by different paths.
enum StoreIdentity: Hashable, Sendable {
    case directory(device: UInt64, inode: UInt64)
    case memory(ObjectIdentifier)

    init(_ store: Store) {
        var status = stat()
        if let directory = store.directory, stat(directory, &status) == 0 {
            self = .directory(device: UInt64(status.st_dev), inode: UInt64(status.st_ino))
        } else {
            self = .memory(ObjectIdentifier(store))
        }
    }
}
