// swift-tools-version: 6.2
import PackageDescription

// A package that depends on Shale like any other, and uses its public interface.
let package = Package(
    name: "consumer",
    dependencies: [
        .package(name: "shale", path: "../.."),
        .package(name: "first-cache", path: "../../Examples/FirstCache"),
    ],
    targets: [
        .testTarget(
            name: "ConsumerTests",
            dependencies: [
                .product(name: "ShaleCore", package: "shale"),
                .product(name: "Shale", package: "shale"),
                .product(name: "ShaleAdapters", package: "shale"),
                .product(name: "FirstCache", package: "first-cache"), // a program that a test runs
            ],
            path: "Tests")
    ],
    swiftLanguageModes: [.v6]
)
