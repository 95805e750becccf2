import Glibc

/// Exits with `what` and the text of errno.
func fail(_ what: String) -> Never {
    fail(with: "\(what): \(String(cString: strerror(errno)))")
}

/// Exits with this message.
func fail(with message: String) -> Never {
    var line = message + "\n"
    _ = line.withUTF8 { write(STDERR_FILENO, $0.baseAddress, $0.count) }
    exit(1)
}

/// Maps a whole file for the rest of the process.
func mapFile(_ path: String, writable: Bool) -> UnsafeMutableRawBufferPointer {
    let file = open(path, (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC)
    var status = stat()
    guard file >= 0, fstat(file, &status) == 0 else { fail(path) }
    defer { close(file) }
    let size = Int(status.st_size)
    let protection = writable ? PROT_READ | PROT_WRITE : PROT_READ
    guard let start = mmap(nil, size, protection, writable ? MAP_SHARED : MAP_PRIVATE, file, 0), start != MAP_FAILED
    else { fail(path) }
    return UnsafeMutableRawBufferPointer(start: start, count: size)
}
