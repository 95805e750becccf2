// swift-tools-version: 6.2
import PackageDescription

// The engine's tests speak to the C interface alone, so that the same ones run
// against both builds: this package's ordinary Swift, and, where SHALE_EMBEDDED
// names the folder of a libshale.so, the Embedded library that is there.
let embedded = Context.environment["SHALE_EMBEDDED"]

// Only who makes the documentation needs its plugin: SHALE_DOCUMENTATION, which `make documentation` sets.
let documentation = Context.environment["SHALE_DOCUMENTATION"] != nil

// What both builds of the engine's tests need.
let tests: [Target] = [
    // The C interface's header: the contract that ShaleC implements.
    .systemLibrary(name: "CShale", path: "Include"),
    .target(name: "ShaleTestSupport", dependencies: ["CShale"], path: "Tests/ShaleTestSupport"),
]

let library: [Target] = [
    // A header with inline shims, and C files for what has to be a function or a variable.
    .target(name: "CShalePlatform", dependencies: ["CLZ4"]),
    // What has to be installed to build: LZ4 1.9 or later. Before 1.10 a shared liblz4 lacks LZ4_attach_dictionary, and each
    // value that is compressed with a dictionary copies 16 KiB. (XXH3 is all in its header.)
    .systemLibrary(
        name: "CLZ4", pkgConfig: "liblz4",
        providers: [
            .apt(["liblz4-dev", "libxxhash-dev"]), .yum(["lz4-devel", "xxhash-devel"]), .brew(["lz4", "xxhash"]),
        ]),
    .target(name: "ShaleCore", dependencies: ["CShalePlatform"]),
    .target(name: "ShaleC", dependencies: ["ShaleCore", "CShale", "CShalePlatform"]),
    .target(name: "Shale", dependencies: ["ShaleCore"]),
    .target(name: "ShaleAdapters", dependencies: ["Shale"]),
    .testTarget(name: "EngineTests", dependencies: ["CShale", "ShaleTestSupport", "ShaleC"]),
    .testTarget(name: "ShaleCoreTests", dependencies: ["ShaleCore", "CShalePlatform"]),
    .testTarget(name: "ShaleTests", dependencies: ["Shale", "HistoryLoader"]),
    // For test_fence_history_swift.py.
    .executableTarget(name: "HistoryLoader", dependencies: ["Shale"], path: "Tests/HistoryLoader"),
    .testTarget(name: "ShaleAdaptersTests", dependencies: ["ShaleAdapters"]),
]

let products: [Product] = [
    .library(name: "ShaleCore", targets: ["ShaleCore"]),
    .library(name: "ShaleC", targets: ["ShaleC"]),
    .library(name: "Shale", targets: ["Shale"]),
    .library(name: "ShaleAdapters", targets: ["ShaleAdapters"]),
]

func againstEmbedded(_ folder: String) -> [Target] {
    [
        .testTarget(
            name: "EngineTests", dependencies: ["CShale", "ShaleTestSupport"],
            linkerSettings: [.unsafeFlags(["-L\(folder)", "-lshale", "-Xlinker", "-rpath", "-Xlinker", folder])])
    ]
}

let package = Package(
    name: "shale",
    products: embedded == nil ? products : [],
    dependencies: documentation ? [.package(url: "https://github.com/swiftlang/swift-docc-plugin", from: "1.5.0")] : [],
    targets: tests + (embedded.map(againstEmbedded) ?? library),
    swiftLanguageModes: [.v6]
)
