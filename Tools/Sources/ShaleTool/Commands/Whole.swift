import ArgumentParser
import Glibc
import ShaleCore

struct Verify: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Reads every current record and checks it.",
        discussion: "Changes nothing without --drop. The exit status is 1 if a record is damaged.")

    @OptionGroup var path: CachePath
    @Flag(help: "Remove damaged records.")
    var drop = false

    func run() throws {
        let store = try drop ? path.openToWrite() : path.openToRead()
        let report = try store.verify()
        try store.close()
        let what = "\(grouped(report.records)) records, \(ByteCount.text(report.bytes))"
        if report.corruptRecords == 0 { return try Output.shared.line("\(path.cache): \(what), all intact") }
        try Output.shared.line("\(path.cache): \(what) intact, \(grouped(report.corruptRecords)) damaged")
        let next =
            drop ? "they were removed" : "'shale verify --drop' removes them; so does a program that reads them"
        throw ToolFailure(.no, "\(path.cache): \(grouped(report.corruptRecords)) damaged records; \(next)")
    }
}

struct Purge: ParsableCommand {
    static let configuration = CommandConfiguration(abstract: "Removes entries past their stale periods.")

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
        abstract: "Evicts entries, in the order in which a full cache evicts them.")

    @OptionGroup var path: CachePath
    @Argument(help: "The number of entries.")
    var count: Int

    func validate() throws {
        if count < 0 { throw ValidationError("the number of entries must not be negative") }
    }

    func run() throws {
        let store = try path.openToWrite()
        let evicted = try store.evict(count)
        try store.close()
        try Output.shared.line("\(grouped(evicted)) entries evicted")
    }
}

struct Clear: ParsableCommand {
    static let configuration = CommandConfiguration(abstract: "Removes every entry, including pinned ones.")

    @OptionGroup var path: CachePath
    @Flag(name: .shortAndLong, help: "Do not ask.")
    var yes = false

    func run() throws {
        let store = try path.openToWrite()
        let count = grouped(try store.statistics().entries)
        if !yes {
            guard isatty(STDIN_FILENO) == 1, Terminal.isError else {
                throw ToolFailure(.no, "\(path.cache): to remove its \(count) entries without confirmation, use --yes")
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
