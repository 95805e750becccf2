// swift-tools-version: 6.2
import PackageDescription

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
    ],
    swiftLanguageModes: [.v6]
)
