import CShalePlatform

extension CacheFiles {
    private static let otherDirectory: StaticString = "choose a path where you can create a directory"

    mutating func openDirectory(_ configuration: Configuration) throws(Failure) {
        var opened = shim_sys_open_directory(path)
        if opened == -SHIM_ENOENT, configuration.mayCreate {
            _ = try configuration.newSuperblock(secret: 0, now: 0)
            let made = CacheFiles.makeDirectories(path.unsafelyUnwrapped)
            opened = shim_sys_open_directory(path)
            if opened == -SHIM_ENOENT, made < 0 {
                throw Failure.system("create the directory", path, "", made, advice: CacheFiles.otherDirectory)
            }
        }
        if opened < 0 {
            throw Failure.system(
                "open the directory", path, "", opened,
                advice: configuration.mayCreate
                    ? CacheFiles.otherDirectory
                    : "open it without SHALE_OPEN_MUST_EXIST and SHALE_OPEN_READ_ONLY to create it")
        }
        directory = Int32(opened)
        directoryIdentity = Identity(try look(directory, ""))
        startIdentity = identity(at: start)
        var type: UInt64 = 0
        _ = shim_sys_filesystem(directory, &type)
        isOverlay = type == 0x794C_7630
        isTmpfs = type == 0x0102_1994
        if CacheFiles.isRemote(type) {
            throw Message().adding(path)
                .adding(
                    " is on a file system that cannot share mappings between machines; keep the cache on a local one"
                )
                .failure(.filesystem)
        }
    }

    /// `type`: as from statfs.
    private static func isRemote(_ type: UInt64) -> Bool {
        switch type {
        case 0x6969: true // NFS
        case 0x517B, 0xFE53_4D42, 0xFF53_4D42: true // SMB, SMB2, CIFS
        case 0x5346_414F: true // AFS
        case 0x7375_7245: true // Coda
        case 0x564C: true // NCP
        case 0x0102_1997: true // 9P
        case 0x00C3_6400: true // Ceph
        case 0x0BD0_0BD0: true // Lustre
        case 0x0116_1970: true // GFS2
        case 0x7461_636F: true // OCFS2
        default: false
        }
    }

    /// Creates missing parents too. Returns the first error; opening the directory shows whether it matters.
    private static func makeDirectories(_ path: UnsafeMutablePointer<CChar>) -> Int {
        var i = 1
        var failed = 0
        while path[i - 1] != 0 {
            if path[i] == UInt8(ascii: "/") || path[i] == 0 {
                let end = path[i]
                path[i] = 0
                let made = shim_sys_mkdir(path, end == 0 ? 0o700 : 0o777)
                if failed == 0, made != -SHIM_EEXIST { failed = made }
                path[i] = end
            }
            i += 1
        }
        return failed
    }

    func refuseForeignFiles() throws(Failure) {
        var buffer: (UInt64, UInt64, UInt64, UInt64, UInt64, UInt64, UInt64, UInt64) = (0, 0, 0, 0, 0, 0, 0, 0)
        try withUnsafeMutableBytes(of: &buffer) { raw throws(Failure) in
            let text = raw.baseAddress.unsafelyUnwrapped.assumingMemoryBound(to: CChar.self)
            let found = shim_sys_has_foreign_files(
                directory, CacheFiles.dataName.cString, CacheFiles.indexName.cString, text, raw.count)
            if found < 0 { throw Failure.system("list", path, "", found) }
            if found > 0 {
                throw Message().adding(path).adding(" holds other files (").adding(UnsafePointer(text))
                    .adding(") and no cache; choose an empty directory").failure(.format)
            }
        }
    }

    /// Reads the boot ID and the PID namespace; they stay unknown without /proc. Any other failure is an error: no
    /// other handle would trust the index.
    mutating func identifySystem() throws(Failure) {
        func check(_ result: Int, _ file: StaticString) throws(Failure) {
            if result < 0, result != -SHIM_ENOENT, result != -SHIM_EACCES {
                throw Failure.system("read", nil, file, result)
            }
        }
        let bootID: StaticString = "/proc/sys/kernel/random/boot_id"
        var text: (UInt64, UInt64, UInt64, UInt64, UInt64, UInt64) = (0, 0, 0, 0, 0, 0)
        let n = withUnsafeMutableBytes(of: &text) { shim_sys_read_file(bootID.cString, $0.baseAddress, 48) }
        try check(n, bootID)
        // Without the newline.
        if n >= 36 { boot = withUnsafeBytes(of: &text) { (shim_hash($0.start, 36, 1), shim_hash($0.start, 36, 2)) } }
        try check(shim_sys_pid_namespace(&pidNamespace), "/proc/self/ns/pid")
    }
}

/// `path`: for the error's message.
func randomWord(_ path: UnsafePointer<CChar>?) throws(Failure) -> UInt64 {
    var word: UInt64 = 0
    let result = shim_sys_random(&word, 8)
    guard result == 8 else {
        throw Failure.system(
            "get random numbers for", path, path == nil ? "the cache in memory" : "", result, advice: "try again")
    }
    return word
}
