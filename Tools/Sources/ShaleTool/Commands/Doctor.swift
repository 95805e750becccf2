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
            Changes nothing. The cache need not exist yet. The exit status is 1 if there is a problem; notes are not \
            problems.
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
        var onDisk: UInt64 = 0
        if isCache { onDisk = examineCache(layout, add) }
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
        case 0x0102_1994: add(.note, "file system", "tmpfs: the cache is lost when the machine restarts")
        case 0x9123_683E: add(.note, "file system", "btrfs: a write can raise SIGBUS if the disk is full")
        case 0x2FC1_2FC1, 0xCA45_1A4E:
            add(.note, "file system", "copy-on-write: a write can raise SIGBUS if the disk is full")
        case 0x6573_5546: add(.note, "file system", "FUSE: make sure that the underlying file system is local")
        case 0x794C_7630:
            add(.note, "file system", "overlayfs: the cache is deleted with the container; mount a volume")
        default: add(.good, "file system", "local")
        }
    }

    private func examineDirectory(_ place: String, isCache: Bool, _ add: Add) {
        if access(place, W_OK | X_OK) != 0 {
            add(.note, "directory", "this user cannot write to \(place), and can only read the cache")
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

    /// Returns the bytes that the cache occupies on disk.
    private func examineCache(_ layout: Layout?, _ add: Add) -> UInt64 {
        for name in ["shale.data", "shale.index"] {
            var status = stat()
            guard stat("\(directory)/\(name)", &status) == 0 else { continue }
            if status.st_uid != geteuid() {
                add(.note, name, "belongs to user \(status.st_uid); this is user \(geteuid())")
            }
            if status.st_mode & 0o007 != 0 {
                add(.note, name, "every user of this machine can open it (\(String(status.st_mode & 0o777, radix: 8)))")
            }
        }
        if let layout, !layout.hasIndex {
            add(.note, "index", "missing: the next writer rebuilds it from the data; the order of use is lost")
        } else if let layout, !layout.knowsIndex {
            add(.note, "index", "of another version of the library; a writer of this version rebuilds it")
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
