import Foundation
import Testing

/// This package enables none of Shale's traits.
@Suite("A package without traits")
struct DependencyTests {
    private struct WorkspaceState: Decodable {
        struct Object: Decodable { var dependencies: [Dependency] }
        struct Dependency: Decodable { var packageRef: Reference }
        struct Reference: Decodable { var identity, kind: String }
        var object: Object
    }

    @Test("fetches and builds no dependency of the products for servers")
    func dependencies() throws {
        let files = FileManager.default
        let products = URL(fileURLWithPath: CommandLine.arguments[0]).resolvingSymlinksInPath()
            .deletingLastPathComponent()
        // SwiftPM's scratch folder is an ancestor of the folder with the tests' program.
        var scratch = products
        while scratch.path != "/",
            !files.fileExists(atPath: scratch.appendingPathComponent("workspace-state.json").path)
        {
            scratch.deleteLastPathComponent()
        }
        let state = try Data(contentsOf: scratch.appendingPathComponent("workspace-state.json"))
        let packages = try JSONDecoder().decode(WorkspaceState.self, from: state).object.dependencies.map(\.packageRef)
        #expect(packages.count == 2 && packages.allSatisfy { $0.kind == "fileSystem" }, "\(packages)")
        for folder in ["checkouts", "repositories"] {
            let fetched = try? files.contentsOfDirectory(atPath: scratch.appendingPathComponent(folder).path)
            #expect(fetched ?? [] == [])
        }

        let modules = try files.contentsOfDirectory(atPath: products.appendingPathComponent("Modules").path)
        #expect(modules.contains("Shale.swiftmodule"))
        for product in ["ShaleHummingbird", "ShaleHTTP", "ShaleObservability"] {
            #expect(!modules.contains("\(product).swiftmodule"))
        }
    }
}
