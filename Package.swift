// swift-tools-version: 6.2
import PackageDescription

// The tests of the engine speak to the C interface alone, so that the same ones
// run against both builds: this package's ordinary Swift, and, where
// SHALE_EMBEDDED names the folder of a libshale.so, the Embedded library there.
let embedded = Context.environment["SHALE_EMBEDDED"]

let package = Package(
    name: "shale",
    products: [
        .library(name: "ShaleCore", targets: ["ShaleCore"]),
        .library(name: "ShaleC", targets: ["ShaleC"]),
    ],
    targets: [
        // Headers with inline shims, and one C file for thread-locals.
        .target(name: "CShalePlatform", linkerSettings: [.linkedLibrary("lz4")]),
        // The C interface's header: the contract that ShaleC implements.
        .systemLibrary(name: "CShale", path: "Include"),
        .target(name: "ShaleCore", dependencies: ["CShalePlatform"]),
        .target(name: "ShaleC", dependencies: ["ShaleCore", "CShale", "CShalePlatform"]),

        .target(name: "ShaleTestSupport", dependencies: ["CShale"], path: "Tests/ShaleTestSupport"),
        .testTarget(
            name: "EngineTests",
            dependencies: embedded == nil ? ["CShale", "ShaleTestSupport", "ShaleC"] : ["CShale", "ShaleTestSupport"],
            linkerSettings: embedded.map { [.unsafeFlags(["-L\($0)", "-lshale", "-Xlinker", "-rpath", "-Xlinker", $0])] } ?? []),
        .testTarget(name: "ShaleCoreTests", dependencies: ["ShaleCore", "CShalePlatform"]),
    ],
    swiftLanguageModes: [.v6]
)
