import ArgumentParser
import CTool
import Glibc
import ShaleCore

@main
struct Tool: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "shale",
        abstract: "Inspects and changes a Shale cache.",
        discussion: """
            A cache is a directory. Commands that only read open it read-only, while programs use it. Only --create \
            creates a cache. Keys are UTF-8; \\xNN stands for a byte that is not printable text, and \\\\ for a \
            backslash. 'shale ls' writes keys in this form, and every command reads it.

            Exit status: 0 success; 1 no such entry, or a check found a problem; 64 wrong usage; 65 invalid line or \
            member of an import, or a file that is not a cache; 66 no cache; 69 unsuitable file system; 73 no space; \
            74 reading or writing failed; 75 in use in a way that conflicts with the command; 76 a cache of another \
            version; 77 no permission.
            """,
        version: String(cString: tool_version()),
        groupedSubcommands: [
            CommandGroup(
                name: "Read", subcommands: [Stats.self, Top.self, Report.self, List.self, Inspect.self, Doctor.self]),
            CommandGroup(
                name: "Entries",
                subcommands: [Get.self, Set.self, Remove.self, Expire.self, Tags.self, Export.self, Import.self]),
            CommandGroup(
                name: "The whole cache",
                subcommands: [Verify.self, Purge.self, Evict.self, Clear.self]),
        ])

    /// Like argument-parser's `main`, but with this tool's exit statuses and one-line errors.
    static func main() {
        do {
            var command = try parseAsRoot()
            try command.run()
            try Output.shared.flush()
        } catch let failure as ToolFailure {
            end(failure)
        } catch let error as ShaleError {
            end(ToolFailure(error))
        } catch {
            try? Output.shared.flush()
            exit(withError: error)
        }
    }

    private static func end(_ failure: ToolFailure) -> Never {
        // Output before the failure is useful. If flushing fails as well, report the first failure.
        try? Output.shared.flush()
        Terminal.endProgress()
        if let message = failure.message { Terminal.say("shale: \(message)") }
        Glibc.exit(failure.status.rawValue)
    }
}

/// The numbers are from sysexits.h, like argument-parser's 64.
enum ExitStatus: Int32 {
    case no = 1
    case badData = 65
    case noCache = 66
    case unavailable = 69
    case noSpace = 73
    case inputOutput = 74
    case busy = 75
    case otherVersion = 76
    case noPermission = 77
}

struct ToolFailure: Error {
    let status: ExitStatus
    /// Nil: the command has already printed the reason.
    let message: String?

    init(_ status: ExitStatus, _ message: String? = nil) {
        self.status = status
        self.message = message
    }

    init(_ error: ShaleError) {
        status =
            switch error.code {
            case .invalid, .tooLarge, .notAStore: .badData
            case .full: .noSpace
            case .busy: .busy
            case .otherVersion: .otherVersion
            case .permission: .noPermission
            case .unsuitableFileSystem: .unavailable
            case .inputOutput, .outOfMemory, .closed:
                error.errno == EACCES || error.errno == EPERM
                    ? .noPermission : error.errno == ENOENT ? .noCache : .inputOutput
            }
        message = error.message
    }

    /// The error of the last system call, from errno.
    init(_ what: String) {
        self.init(.inputOutput, "\(what): \(String(cString: strerror(Glibc.errno)))")
    }
}
