// swift-tools-version: 6.2
import PackageDescription

// A package that depends on this one as anybody's does, and uses what is public.
let package = Package(
    name: "consumer",
    dependencies: [.package(name: "shale", path: "../..")],
    targets: [
        .testTarget(
            name: "ConsumerTests",
            dependencies: [
                .product(name: "ShaleCore", package: "shale"),
                .product(name: "Shale", package: "shale"),
                .product(name: "ShaleAdapters", package: "shale"),
            ],
            path: "Tests"),
    ],
    swiftLanguageModes: [.v6]
)
