// A first cache: open, store, read, load a missing value, remove.
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

// When several tasks request a missing value, one loads it and the others wait for it.
try await withThrowingTaskGroup { group in
    for _ in 0..<10 {
        group.addTask { try await rocks.value(for: "marl") { Rock(name: "Marl", hardness: 3) } }
    }
    for try await rock in group { print(rock.name, terminator: " ") }
}
print("loads:", rocks.statistics.loads)

// Removes all entries with a tag.
try rocks.removeAll(tagged: "metamorphic")
print("left:", try rocks.allKeys())
