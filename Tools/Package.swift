// swift-tools-version: 6.2
import PackageDescription

// A package of its own, so that users of the library do not depend on argument-parser. `make tool` builds a
// self-contained executable; that of `swift build --package-path Tools` needs liblz4 and Swift's libraries.
let package = Package(
    name: "shale-tools",
    products: [.executable(name: "shale", targets: ["ShaleTool"])],
    dependencies: [
        .package(name: "shale", path: ".."),
        .package(url: "https://github.com/apple/swift-argument-parser.git", from: "1.5.0"),
    ],
    targets: [
        // C functions that Swift cannot import.
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
