import ArgumentParser
import Glibc
import ShaleCore

/// The cache that a command is about.
struct CachePath: ParsableArguments {
    @Argument(help: "The cache's directory.", completion: .directory)
    var cache: String

    /// For what only reads: it changes nothing, neither the order of use nor a counter, and needs no right to write.
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

    /// Says in the tool's own words what is most often wrong: the path.
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
            throw ToolFailure(.noCache, "\(cache) holds no cache: there is no shale.data in it")
        }
    }
}

/// For what may make the cache.
struct Creation: ParsableArguments {
    @Flag(help: "Make the cache if there is none; without it, a mistyped path is an error.")
    var create = false
    @Option(help: "Of a cache that is made: bytes on disk, as 64MiB or 2GB (default: 1GiB).")
    var capacity: ByteCount?

    func validate() throws {
        if capacity != nil, !create { throw ValidationError("--capacity is for a cache that is made: add --create") }
    }

    func open(_ path: CachePath) throws -> Store {
        var status = stat()
        // The capacity of a cache that is there stays as it is.
        if !create || stat("\(path.cache)/shale.data", &status) == 0 { return try path.openToWrite() }
        return try Store(at: path.cache, options: Store.Options(capacity: capacity?.bytes))
    }
}
