import Foundation
import Testing

/// Holds the lock of a cache's only shard, by format.md alone: an owner has a number, a row that names its process, and
/// a lock of the kernel; the shard's lock is in its header, behind the index's head.
final class HeldLock: @unchecked Sendable {
    private static let owner: UInt32 = 1 << 29, rows = 160, lock = 3 * 4096 + 8, size = 4 * 4096

    private let fd: Int32
    private let memory: UnsafeMutableRawPointer

    init(of directory: String) throws {
        fd = open("\(directory)/shale.index", O_RDWR)
        try #require(fd >= 0)
        memory = try #require(mmap(nil, HeldLock.size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0))
        var byte = flock()
        byte.l_type = Int16(F_WRLCK)
        byte.l_whence = Int16(SEEK_SET)
        byte.l_start = 1 << 61 + Int(HeldLock.owner)
        byte.l_len = 1
        let setOpenFileDescriptionLock: Int32 = 37
        try #require(fcntl(fd, setOpenFileDescriptionLock, &byte) == 0)
        var namespace = stat()
        try #require(stat("/proc/self/ns/pid", &namespace) == 0)
        let row = UInt64(HeldLock.owner) | UInt64(namespace.st_ino & 0xFFF) << 30 | UInt64(getpid()) << 42
        memory.storeBytes(of: row, toByteOffset: HeldLock.rows + Int(HeldLock.owner % 32) * 8, as: UInt64.self)
        try #require(memory.load(fromByteOffset: HeldLock.lock, as: UInt32.self) == 0)
        memory.storeBytes(of: HeldLock.owner, toByteOffset: HeldLock.lock, as: UInt32.self)
    }

    func release() {
        memory.storeBytes(of: 0, toByteOffset: HeldLock.lock, as: UInt32.self)
        munmap(memory, HeldLock.size)
        close(fd)
    }
}
