// swift-tools-version: 6.2
import PackageDescription

// A package that depends on this one as anybody's does, and uses what is public.
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
                .product(name: "FirstCache", package: "first-cache"), // a program, built here and run by a test
            ],
            path: "Tests")
    ],
    swiftLanguageModes: [.v6]
)
