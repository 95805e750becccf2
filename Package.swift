// swift-tools-version: 6.3
import PackageDescription

// EngineTests use only the C interface, so that they run on both builds: on this package's ordinary Swift, and on the
// Embedded library, libshale.so, in the folder that SHALE_EMBEDDED names.
let embedded = Context.environment["SHALE_EMBEDDED"]

// `make documentation` sets it; other builds do without the plugin.
let documentation = Context.environment["SHALE_DOCUMENTATION"] != nil

// For the tests: a debug build whose core is optimised, and tests as much in half the time. SwiftPM accepts such flags from
// a root package alone.
let optimized: [SwiftSetting] =
    Context.environment["SHALE_OPTIMIZED"] == nil ? [] : [.unsafeFlags(["-O", "-assert-config", "Debug"])]

// For EngineTests on either build.
let tests: [Target] = [
    // The C header, which ShaleC implements.
    .systemLibrary(name: "CShale", path: "Include"),
    .target(name: "ShaleTestSupport", dependencies: ["CShale"], path: "Tests/ShaleTestSupport"),
]

let library: [Target] = [
    .target(name: "CShalePlatform", dependencies: ["CLZ4"]),
    // LZ4 1.9 or later, and the header of xxHash, which contains all of XXH3. A shared liblz4 before 1.10 lacks
    // LZ4_attach_dictionary: each value that is compressed with a dictionary then copies 16 KiB.
    .systemLibrary(
        name: "CLZ4", pkgConfig: "liblz4",
        providers: [.apt(["liblz4-dev", "libxxhash-dev"]), .yum(["lz4-devel", "xxhash-devel"])]),
    .target(name: "ShaleCore", dependencies: ["CShalePlatform"], swiftSettings: optimized),
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

// Each product for servers has a trait. SwiftPM fetches a product's dependencies only if its trait is enabled: every
// external dependency of its target has the trait as condition, and every source file is inside `#if`.
let traits: Set<Trait> = [
    .trait(name: "Hummingbird", description: "The product ShaleHummingbird; depends on hummingbird."),
    .trait(name: "HTTP", description: "The product ShaleHTTP; depends on async-http-client."),
    .trait(name: "Observability", description: "The product ShaleObservability; depends on swift-metrics."),
]

func dependency(_ name: String, of package: String, trait: String) -> Target.Dependency {
    .product(name: name, package: package, condition: .when(traits: [trait]))
}

let servers: [Target] = [
    .target(
        name: "ShaleHummingbird",
        dependencies: ["Shale", dependency("Hummingbird", of: "hummingbird", trait: "Hummingbird")]),
    .target(
        name: "ShaleHTTP",
        dependencies: [
            "ShaleCore",
            dependency("AsyncHTTPClient", of: "async-http-client", trait: "HTTP"),
            dependency("Logging", of: "swift-log", trait: "HTTP"),
            dependency("NIOCore", of: "swift-nio", trait: "HTTP"),
            dependency("NIOHTTP1", of: "swift-nio", trait: "HTTP"),
        ]),
    .target(
        name: "ShaleObservability",
        dependencies: [
            "Shale",
            dependency("Logging", of: "swift-log", trait: "Observability"),
            dependency("Metrics", of: "swift-metrics", trait: "Observability"),
        ]),
]

var dependencies: [Package.Dependency] = [
    .package(url: "https://github.com/apple/swift-log.git", from: "1.6.0"),
    .package(url: "https://github.com/apple/swift-metrics.git", from: "2.5.0"),
    .package(url: "https://github.com/apple/swift-nio.git", from: "2.81.0"),
    .package(url: "https://github.com/hummingbird-project/hummingbird.git", from: "2.5.0"),
    .package(url: "https://github.com/swift-server/async-http-client.git", from: "1.24.0"),
]
if documentation {
    dependencies.append(.package(url: "https://github.com/swiftlang/swift-docc-plugin", from: "1.5.0"))
}

let products: [Product] = [
    .library(name: "ShaleCore", targets: ["ShaleCore"]),
    .library(name: "ShaleC", targets: ["ShaleC"]),
    .library(name: "Shale", targets: ["Shale"]),
    .library(name: "ShaleAdapters", targets: ["ShaleAdapters"]),
    .library(name: "ShaleHummingbird", targets: ["ShaleHummingbird"]),
    .library(name: "ShaleHTTP", targets: ["ShaleHTTP"]),
    .library(name: "ShaleObservability", targets: ["ShaleObservability"]),
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
    // Shale runs on Linux only, which this list cannot express. The Swift sources need macOS 15 (Synchronization); the C
    // sources stop a build on macOS with an error.
    platforms: [.macOS(.v15)],
    products: embedded == nil ? products : [],
    traits: embedded == nil ? traits : [],
    dependencies: embedded == nil ? dependencies : [],
    targets: tests + (embedded.map(againstEmbedded) ?? library + servers),
    swiftLanguageModes: [.v6]
)
