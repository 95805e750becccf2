import ArgumentParser
import Glibc
import ShaleCore

/// The cache that a command works on.
struct CachePath: ParsableArguments {
    @Argument(help: "The cache's directory.", completion: .directory)
    var cache: String

    /// Opens the cache read-only: changes nothing, not even the order of use or a counter, and needs no write
    /// permission.
    func openToRead() throws -> Store {
        try check()
        var options = Store.Options()
        options.isReadOnly = true
        options.mustExist = true
        return try Store(at: cache, options: options)
    }

    func openToWrite() throws -> Store {
        try check()
        var options = Store.Options()
        options.mustExist = true
        return try Store(at: cache, options: options)
    }

    /// Reports the most frequent mistake, a wrong path, more precisely than the store does.
    private func check() throws {
        var status = stat()
        if stat(cache, &status) != 0 {
            if Glibc.errno == ENOENT { throw ToolFailure(.noCache, "\(cache): there is no such directory") }
            return
        }
        if status.st_mode & S_IFMT != S_IFDIR {
            throw ToolFailure(.noCache, "\(cache) is a file; name the directory that the cache is in")
        }
        if stat("\(cache)/shale.data", &status) != 0, Glibc.errno == ENOENT {
            throw ToolFailure(.noCache, "\(cache) holds no cache: it has no shale.data")
        }
    }
}

/// Options of commands that may create the cache.
struct Creation: ParsableArguments {
    @Flag(help: "Create the cache if there is none; otherwise a wrong path is an error.")
    var create = false
    @Option(help: "Bytes on disk for a new cache, such as 64MiB or 2GB (default: 1GiB).")
    var capacity: ByteCount?

    func validate() throws {
        if capacity != nil, !create { throw ValidationError("--capacity applies to a new cache: add --create") }
    }

    func open(_ path: CachePath) throws -> Store {
        var status = stat()
        // Does not change the capacity of an existing cache.
        if !create || stat("\(path.cache)/shale.data", &status) == 0 { return try path.openToWrite() }
        return try Store(at: path.cache, options: Store.Options(capacity: capacity?.bytes))
    }
}
