import ArgumentParser
import CTool
import Glibc
import ShaleCore

/// One finding of the doctor.
private struct Finding: Encodable {
    enum Grade: String, Encodable { case good, note, problem }
    let grade: Grade
    let about: String
    let text: String
}

struct Doctor: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Checks a cache, its directory, the file system and the limits for problems.",
        discussion: """
            Run it in each container that is to share a cache: it shows what would keep this one out. Changes nothing; \
            what it tries, it tries in a file without a name. The cache need not exist yet. The exit status is 1 if there \
            is a problem; notes are not problems.
            """)

    @Argument(help: "The directory of the cache, or of a planned one.", completion: .directory)
    var directory: String
    @Option(help: "Bytes on disk of a planned cache (default: 1GiB).")
    var capacity: ByteCount?
    @Flag(help: "As JSON, one object per line.")
    var json = false

    func run() throws {
        var findings: [Finding] = []
        func add(_ grade: Finding.Grade, _ about: String, _ text: String) {
            findings.append(Finding(grade: grade, about: about, text: text))
        }
        let place = existingAncestor()
        let isCache = access("\(directory)/shale.data", F_OK) == 0
        let layout = isCache ? try? Layout(directory) : nil
        let wanted = layout.map { $0.capacity } ?? UInt64(capacity?.bytes ?? 1 << 30)

        examineFileSystem(place, add)
        examineDirectory(place, isCache: isCache, add)
        examineAbilities(place, add)
        examineUsers(place, isCache: isCache, add)
        var onDisk: UInt64 = 0
        if isCache {
            examineOthers(add)
            onDisk = examineCache(layout, add)
        }
        examineSpace(place, wanted, onDisk: onDisk, add)
        examineLimits(wanted, layout, add)

        for each in findings {
            if json {
                try Output.shared.json(each, pretty: false)
            } else {
                let colour: Terminal.Colour =
                    switch each.grade {
                    case .good: .green
                    case .note: .yellow
                    case .problem: .red
                    }
                try Output.shared.line(
                    "\(Terminal.paint(each.grade.rawValue.padded(to: 7), colour))  \(each.about): \(each.text)")
            }
        }
        if findings.contains(where: { $0.grade == .problem }) { throw ToolFailure(.no) }
    }

    private typealias Add = (Finding.Grade, String, String) -> Void

    /// The closest existing directory, whose file system can be examined before the cache exists.
    private func existingAncestor() -> String {
        var path = directory[...]
        while access(String(path), F_OK) != 0, let slash = path.lastIndex(of: "/") {
            path = slash == path.startIndex ? "/" : path[..<slash]
            if path == "/" { break }
        }
        return access(String(path), F_OK) == 0 ? String(path) : "."
    }

    private static let network: [Int64: String] = [
        0x6969: "NFS", 0x517B: "SMB", 0xFF53_4D42: "CIFS", 0xFE53_4D42: "SMB2", 0x5346_414F: "AFS", 0x7375_7245: "Coda",
        0x564C: "NCP", 0x0102_1997: "9P", 0x00C3_6400: "Ceph", 0x0BD0_0BD0: "Lustre", 0x0116_1970: "GFS2",
        0x7461_636F: "OCFS2",
    ]

    private func examineFileSystem(_ place: String, _ add: Add) {
        let kind = tool_file_system(place)
        if kind < 0 { return add(.problem, "file system", "\(place): \(String(cString: strerror(errno)))") }
        if let name = Doctor.network[kind] {
            return add(
                .problem, "file system",
                "\(name) is a network file system, which cannot share mappings; use a local one")
        }
        switch kind {
        case 0x0102_1994:
            add(
                .note, "file system", "tmpfs: in memory; the cache is lost when it is unmounted or the machine restarts"
            )
            var status = stat()
            if stat(place, &status) == 0, status.st_blksize > sysconf(Int32(_SC_PAGESIZE)) {
                add(
                    .note, "file system",
                    "huge pages: files take multiples of \(ByteCount.text(status.st_blksize)), and before Linux 5.14 more "
                        + "than the capacity")
            }
        case 0x9123_683E: add(.note, "file system", "btrfs: a write can raise SIGBUS if the disk is full")
        case 0x2FC1_2FC1, 0xCA45_1A4E:
            add(.note, "file system", "copy-on-write: a write can raise SIGBUS if the disk is full")
        case 0x6573_5546: add(.note, "file system", "FUSE: make sure that the underlying file system is local")
        case 0x794C_7630:
            add(
                .note, "file system",
                "overlayfs: the cache is deleted with the container, and no other container sees it; mount a volume")
        case 0xEF53: add(.good, "file system", "local, ext4")
        case 0x5846_5342: add(.good, "file system", "local, XFS")
        case 0xF2F5_2010: add(.good, "file system", "local, F2FS")
        default: add(.good, "file system", "local, type 0x\(String(kind, radix: 16))")
        }
    }

    private func examineDirectory(_ place: String, isCache: Bool, _ add: Add) {
        if access(place, W_OK | X_OK) != 0 {
            let why = errno == EROFS ? "\(place) is mounted read-only: " : "this user cannot write to \(place): "
            add(.note, "directory", why + "only read-only handles work here")
        }
        guard place == directory, let opened = opendir(directory) else { return }
        defer { closedir(opened) }
        var others: [String] = []
        while let entry = readdir(opened) {
            let name = withUnsafeBytes(of: entry.pointee.d_name) {
                String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self)
            }
            if [".", "..", "shale.data", "shale.index"].contains(name) { continue }
            if name == "shale.index.new" {
                add(.note, "directory", "shale.index.new was left by a killed process; the next writer removes it")
            } else {
                others.append(name)
            }
        }
        if others.isEmpty { return }
        let names = others.sorted().prefix(3).map { Bytes.text(Array($0.utf8)) }.joined(separator: ", ")
        if isCache {
            add(.note, "directory", "contains \(others.count) other files: \(names)")
        } else {
            add(
                .problem, "directory",
                "contains \(others.count) other files (\(names)); a cache needs a directory of its own")
        }
    }

    private func examineAbilities(_ place: String, _ add: Add) {
        func message(_ error: Int32) -> String { String(cString: strerror(error)) }
        if access(place, W_OK | X_OK) != 0 {
            return add(.good, "abilities", "not checked, since this user cannot write to \(place)")
        }
        let found = tool_try_abilities(place)
        if found.file != 0 {
            return add(.note, "abilities", "not checked, since no temporary file can be made: \(message(found.file))")
        }
        let kinds: [(error: Int32, grade: Finding.Grade, text: String)] = [
            (found.lock, .problem, "locks of open file descriptions, which a cache needs, do not work"),
            (found.allocation, .problem, "fallocate, which a cache needs, does not work"),
            (found.hole, .note, "hole punching does not work: a cache never shrinks"),
            (found.wiping, .problem, "MADV_WIPEONFORK does not work: do not use a cache in forked children"),
        ]
        let missing = kinds.filter { $0.error != 0 }
        for each in missing { add(each.grade, "abilities", "\(each.text) (\(message(each.error)))") }
        if missing.isEmpty {
            add(.good, "abilities", "locks, fallocate, hole punching and MADV_WIPEONFORK work")
        }
    }

    /// Who owns what, and who may therefore open it: a cache uses only files of root or its own user.
    private func examineUsers(_ place: String, isCache: Bool, _ add: Add) {
        func mode(_ status: stat) -> String { String(status.st_mode & 0o7777, radix: 8) }
        var status = stat()
        guard stat(place, &status) == 0 else { return }
        var owners = ["\(place) \(status.st_uid):\(status.st_gid) \(mode(status))"]
        var users: [UInt32] = []
        for name in isCache ? ["shale.data", "shale.index"] : [] {
            guard stat("\(directory)/\(name)", &status) == 0 else { continue }
            owners.append("\(name) \(status.st_uid):\(status.st_gid) \(mode(status))")
            users.append(status.st_uid)
        }
        add(.good, "users", "this is \(geteuid()):\(getegid()); " + owners.joined(separator: ", "))
        guard let other = users.first(where: { $0 != 0 && $0 != geteuid() }) else { return }
        add(
            .problem, "users",
            Doctor.isMapped(other)
                ? "the cache belongs to user \(other): only that user may open it"
                : "the cache belongs to a user that this user namespace does not map: map the users of all containers "
                    + "alike, or mount the volume with mapped users")
    }

    /// Whether the number of a file's owner stands for a user, and not for all that the user namespace does not map.
    private static func isMapped(_ user: UInt32) -> Bool {
        guard let file = fopen("/proc/self/uid_map", "re") else { return true }
        defer { fclose(file) }
        var line = [CChar](repeating: 0, count: 128)
        while fgets(&line, Int32(line.count), file) != nil {
            let words = String(decoding: line.prefix { $0 != 0 }.map(UInt8.init(bitPattern:)), as: UTF8.self)
                .split(whereSeparator: \.isWhitespace).compactMap { UInt64($0) }
            if words.count == 3, words[0] <= UInt64(user), UInt64(user) < words[0] + words[2] { return true }
        }
        return false
    }

    /// Which handles others have open, by the locks that each keeps until it is closed or its process ends: format.md.
    private func examineOthers(_ add: Add) {
        let data = open("\(directory)/shale.data", O_RDONLY | O_CLOEXEC)
        if data < 0 { return }
        defer { close(data) }
        let setup: Int64 = 0x1000_0000_0000_0000
        func isLocked(_ byte: Int64) -> Bool { tool_next_lock(data, byte) == byte }
        if tool_next_lock(data, setup) < -1 { return }
        var found: [String] = []
        if isLocked(setup + 1) {
            let count = countOwners()
            found.append(count == 0 ? "writers" : count == 1 ? "a writer" : "\(grouped(count)) writers")
        }
        if isLocked(setup + 2) { found.append("readers") }
        var text = found.isEmpty ? "no process has it open" : "opened by " + found.joined(separator: " and ")
        if isLocked(setup) { text += "; a process opens or closes it" }
        if isLocked(setup + 3) { text += "; its index is being rebuilt" }
        add(.good, "others", text)
    }

    /// How many handles have a number by which they own locks: each locks a byte of the index.
    private func countOwners() -> Int {
        let index = open("\(directory)/shale.index", O_RDONLY | O_CLOEXEC)
        if index < 0 { return 0 }
        defer { close(index) }
        let first: Int64 = 1 << 61
        var count = 0, next = first
        while count < 10_000 {
            let byte = tool_next_lock(index, next)
            if byte < first || byte >= first + 1 << 30 { break }
            (count, next) = (count + 1, byte + 1)
        }
        return count
    }

    /// Returns the bytes that the cache occupies on disk.
    private func examineCache(_ layout: Layout?, _ add: Add) -> UInt64 {
        for name in ["shale.data", "shale.index"] {
            var status = stat()
            guard stat("\(directory)/\(name)", &status) == 0 else { continue }
            if status.st_mode & 0o007 != 0 {
                add(.note, name, "every user of this machine can open it (\(String(status.st_mode & 0o777, radix: 8)))")
            }
        }
        if let layout, !layout.hasIndex {
            add(.note, "index", "missing: the next writer rebuilds it from the data; the order of use is lost")
        } else if let layout, !layout.knowsIndex {
            add(
                .note, "index",
                "of another version of the library (\(layout.indexVersion), here \(Layout.indexVersion)): a writer of this "
                    + "version rebuilds it while no other has the cache open")
        } else if layout != nil {
            add(.good, "index", "version \(Layout.indexVersion), which all that share the cache must have")
        }
        do {
            let store = try CachePath.parse([directory]).openToRead()
            let statistics = try store.statistics()
            add(.good, "cache", "opens: \(grouped(statistics.entries)) entries")
            if statistics.corruptRecords > 0 {
                add(
                    .problem, "damage",
                    "\(grouped(statistics.corruptRecords)) damaged records were found; check the disk, "
                        + "and run 'shale verify'")
            }
            if statistics.evictedTimed > 0, statistics.evictedIdle / statistics.evictedTimed < 60_000 {
                add(
                    .note, "capacity",
                    "evicted entries were last used less than a minute earlier; a larger capacity gives more hits")
            }
            return statistics.dataBytes + statistics.indexBytes
        } catch {
            let message = (error as? ShaleError)?.message ?? (error as? ToolFailure)?.message ?? "\(error)"
            add(.problem, "cache", message)
            return 0
        }
    }

    private func examineSpace(_ place: String, _ wanted: UInt64, onDisk: UInt64, _ add: Add) {
        var space = statvfs()
        guard statvfs(place, &space) == 0 else { return }
        let free = UInt64(space.f_bavail) * UInt64(space.f_frsize), missing = wanted - min(wanted, onDisk)
        let text = "\(ByteCount.text(free)) free; the cache may still take \(ByteCount.text(missing))"
        add(free < missing ? .problem : .good, "space", text)
    }

    private func examineLimits(_ wanted: UInt64, _ layout: Layout?, _ add: Add) {
        func limit(_ resource: __rlimit_resource) -> UInt64 {
            var limits = rlimit()
            return getrlimit(Int32(resource.rawValue), &limits) == 0 ? UInt64(limits.rlim_cur) : .max
        }
        // Four times the capacity for the data, and nearly two thirds of that for the index.
        let addresses = wanted * 4 / 3 * 5
        if limit(RLIMIT_AS) < addresses {
            add(
                .problem, "limits",
                "ulimit -v is \(ByteCount.text(limit(RLIMIT_AS))); a cache of \(ByteCount.text(wanted)) needs "
                    + "\(ByteCount.text(addresses)) of address space")
        }
        if limit(RLIMIT_NOFILE) < 64 {
            add(.note, "limits", "ulimit -n is \(limit(RLIMIT_NOFILE)); each handle takes three descriptors")
        }
        // The file is sparse: its length exceeds its size on disk.
        let length = wanted + wanted / 4 + 64 << 20
        if limit(RLIMIT_FSIZE) < length {
            add(
                .problem, "limits",
                "ulimit -f is \(ByteCount.text(limit(RLIMIT_FSIZE))); the data file grows to a length of up to "
                    + "\(ByteCount.text(length))")
        }
    }
}
