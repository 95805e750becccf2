// swift-tools-version: 6.2
import PackageDescription

// Beside the main package, so that what the tool depends on never reaches those who use the cache alone.
// `make tool` builds it as one file; `swift build --package-path Tools` as one that needs liblz4 and Swift's libraries.
let package = Package(
    name: "shale-tools",
    products: [.executable(name: "shale", targets: ["ShaleTool"])],
    dependencies: [
        .package(name: "shale", path: ".."),
        .package(url: "https://github.com/apple/swift-argument-parser.git", from: "1.5.0"),
    ],
    targets: [
        // What Swift does not see by itself.
        .target(name: "CTool"),
        .executableTarget(
            name: "ShaleTool",
            dependencies: [
                "CTool",
                .product(name: "ShaleCore", package: "shale"),
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
            ]),
    ],
    swiftLanguageModes: [.v6]
)
