// A first cache: open it, store, read, load what is missing, and forget.
//
//     swift run --package-path Examples/FirstCache FirstCache DIRECTORY
import Foundation
import Shale

struct Rock: Codable, Sendable {
    var name: String
    var hardness: Int
}

guard CommandLine.arguments.count == 2 else { fatalError("usage: FirstCache DIRECTORY") }
let directory = URL(fileURLWithPath: CommandLine.arguments[1])
let rocks = try Cache<String, Rock>(at: directory, maxAge: .seconds(3600), maxEntries: 10_000)

try rocks.insert(Rock(name: "Slate", hardness: 5), for: "slate", tags: ["metamorphic"])
print("slate:", try rocks.value(for: "slate")?.hardness ?? "nothing")
print("marl:", try rocks.value(for: "marl")?.hardness ?? "nothing")

// However many tasks ask for what is missing, one of them loads it, and the others wait for the same value.
try await withThrowingTaskGroup { group in
    for _ in 0..<10 {
        group.addTask { try await rocks.value(for: "marl") { Rock(name: "Marl", hardness: 3) } }
    }
    for try await rock in group { print(rock.name, terminator: " ") }
}
print("loads:", rocks.statistics.loads)

// One call forgets all that carries a tag.
try rocks.removeAll(tagged: "metamorphic")
print("left:", try await rocks.allKeys())
