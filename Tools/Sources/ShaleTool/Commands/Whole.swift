import ArgumentParser
import Glibc
import ShaleCore

struct Verify: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Reads every current record and checks it.",
        discussion: "It changes nothing, unless --drop is given. The exit status is 1 where a record is damaged.")

    @OptionGroup var path: CachePath
    @Flag(help: "Drop what is damaged, so that it is a miss for good.")
    var drop = false

    func run() throws {
        let store = try drop ? path.openToWrite() : path.openToRead()
        let report = try store.verify()
        try store.close()
        let what = "\(grouped(report.records)) records, \(ByteCount.text(report.bytes))"
        if report.corruptRecords == 0 { return try Output.shared.line("\(path.cache): \(what), all sound") }
        try Output.shared.line("\(path.cache): \(what) sound, \(grouped(report.corruptRecords)) damaged")
        let next = drop ? "they were dropped" : "'shale verify --drop' drops them; a program that meets them does too"
        throw ToolFailure(.no, "\(path.cache): \(grouped(report.corruptRecords)) damaged records; \(next)")
    }
}

struct Purge: ParsableCommand {
    static let configuration = CommandConfiguration(abstract: "Removes what is past its age and its stale period.")

    @OptionGroup var path: CachePath

    func run() throws {
        let store = try path.openToWrite()
        let count = try store.purge()
        try store.close()
        try Output.shared.line("\(grouped(count)) entries removed")
    }
}

struct Evict: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Evicts entries, those first that would leave first to make room.")

    @OptionGroup var path: CachePath
    @Argument(help: "How many.")
    var count: Int

    func validate() throws {
        if count < 0 { throw ValidationError("a number that is not negative is wanted") }
    }

    func run() throws {
        let store = try path.openToWrite()
        let evicted = try store.evict(count)
        try store.close()
        try Output.shared.line("\(grouped(evicted)) entries evicted")
    }
}

struct Clear: ParsableCommand {
    static let configuration = CommandConfiguration(abstract: "Removes every entry, pinned ones too.")

    @OptionGroup var path: CachePath
    @Flag(name: .shortAndLong, help: "Do not ask.")
    var yes = false

    func run() throws {
        let store = try path.openToWrite()
        let count = grouped(try store.statistics().entries)
        if !yes {
            guard isatty(STDIN_FILENO) == 1, Terminal.isError else {
                throw ToolFailure(.no, "\(path.cache): to remove its \(count) entries without being asked, say --yes")
            }
            Terminal.say("\(path.cache): remove all \(count) entries? [y/N]")
            guard let answer = readLine()?.lowercased(), answer == "y" || answer == "yes" else {
                throw ToolFailure(.no, "nothing was removed")
            }
        }
        try store.removeAll()
        try store.close()
        try Output.shared.line("\(count) entries removed")
    }
}
