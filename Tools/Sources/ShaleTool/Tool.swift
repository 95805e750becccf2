import ArgumentParser
import CTool
import Glibc
import ShaleCore

@main
struct Tool: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "shale",
        abstract: "Looks into a Shale cache, and changes it.",
        discussion: """
            A cache is a directory. What only reads opens it read-only, beside any number of programs that use it; \
            nothing makes a cache but --create. Keys are UTF-8, where \\xNN stands for a byte that is no printable text \
            and \\\\ for a backslash: 'shale ls' writes them so, and every command reads them so.

            Exit status: 0 done; 1 the answer is no: no such entry, or something was found that is not in order; \
            64 wrong usage; 65 a line or a member of an import, or a file that is no cache; 66 there is no cache; 69 the file system \
            cannot hold one; 73 no space; 74 reading or writing failed; 75 in use by others in a way that rules this \
            out; 76 a cache of another version; 77 no permission.
            """,
        version: String(cString: tool_version()),
        groupedSubcommands: [
            CommandGroup(
                name: "Look", subcommands: [Stats.self, Top.self, Report.self, List.self, Inspect.self, Doctor.self]),
            CommandGroup(
                name: "Entries",
                subcommands: [Get.self, Set.self, Remove.self, Expire.self, Tags.self, Export.self, Import.self]),
            CommandGroup(
                name: "The whole cache",
                subcommands: [Verify.self, Purge.self, Evict.self, Clear.self]),
        ])

    /// As argument-parser's own, but with this tool's exit statuses and one line for an error.
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
        // What was written before it is worth having; where that fails as well, the first failure is the one to name.
        try? Output.shared.flush()
        Terminal.endProgress()
        if let message = failure.message { Terminal.say("shale: \(message)") }
        Glibc.exit(failure.status.rawValue)
    }
}

/// The numbers are those of sysexits.h, as argument-parser's own 64 is.
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
    /// Nil: all has been said.
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

    /// A system call that has just failed, by errno.
    init(_ what: String) {
        self.init(.inputOutput, "\(what): \(String(cString: strerror(Glibc.errno)))")
    }
}
