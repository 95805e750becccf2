/// The Swift program: opens the cache, then executes commands from stdin until it ends.
import Glibc

let lifetimeSeconds: UInt32 = 300 // ends this program even if the orchestrator hangs

func makeSteps() -> Steps {
    guard CommandLine.arguments.count == 5, let capacity = Int(CommandLine.arguments[4]) else {
        fail(with: "usage: demo-swift CORPUS BOARD DIRECTORY CAPACITY")
    }
    let corpus = Corpus(path: CommandLine.arguments[1])
    let board = Board(path: CommandLine.arguments[2])
    let start = nanoseconds()
    let cache = CacheClient(directory: CommandLine.arguments[3], capacity: capacity)
    Talk().say("ready", #"{"open_ns": \#(nanoseconds() - start)}"#)
    return Steps(corpus: corpus, board: board, cache: cache)
}

func execute(_ line: String, _ steps: inout Steps) {
    let words = line.split(separator: " ").map(String.init)
    switch words.first {
    case "follow":
        steps.follow()
    case "compare" where words.count == 2 && words[1].count == 4:
        steps.compare(Array(words[1]))
    case "rewrite" where words.count == 3:
        guard let part = Int(words[1]), let parts = Int(words[2]) else { fallthrough }
        steps.rewrite(part, of: parts)
    case "invalidate" where words.count == 2:
        steps.invalidate(words[1])
    default:
        fail(with: "unknown command: \(line)")
    }
}

alarm(lifetimeSeconds)
var steps = makeSteps()
while let line = readLine() { execute(line, &steps) }
steps.close()
