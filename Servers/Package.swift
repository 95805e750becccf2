// swift-tools-version: 6.3
import PackageDescription

// `Tests/Fuzz/run` sets it, and links the target with libFuzzer, which has the main function.
let fuzz: [Target] =
    Context.environment["SHALE_FUZZ"] == nil
    ? []
    : [
        .executableTarget(
            name: "HTTPFuzz",
            dependencies: [
                .product(name: "ShaleHTTP", package: "shale"), .product(name: "NIOHTTP1", package: "swift-nio"),
            ])
    ]

// The tests of the products for servers, and a program for the public tests of HTTP caches: a package that depends on
// Shale and enables its traits.
let package = Package(
    name: "shale-servers",
    dependencies: [
        .package(name: "shale", path: "..", traits: ["Hummingbird", "HTTP", "Observability"]),
        .package(url: "https://github.com/apple/swift-metrics.git", from: "2.5.0"),
        .package(url: "https://github.com/apple/swift-nio.git", from: "2.81.0"),
        .package(url: "https://github.com/hummingbird-project/hummingbird.git", from: "2.5.0"),
    ],
    targets: [
        // A proxy for `make cache-tests`.
        .executableTarget(
            name: "CacheProxy",
            dependencies: [
                .product(name: "ShaleHTTP", package: "shale"),
                .product(name: "HummingbirdCore", package: "hummingbird"),
                .product(name: "NIOPosix", package: "swift-nio"),
            ]),
        .testTarget(
            name: "ShaleHTTPTests",
            dependencies: [
                .product(name: "ShaleHTTP", package: "shale"),
                .product(name: "NIOPosix", package: "swift-nio"),
            ]),
        .testTarget(
            name: "ShaleObservabilityTests",
            dependencies: [
                .product(name: "ShaleObservability", package: "shale"),
                .product(name: "MetricsTestKit", package: "swift-metrics"),
            ]),
        .testTarget(
            name: "ShaleHummingbirdTests",
            dependencies: [
                .product(name: "ShaleHummingbird", package: "shale"),
                .product(name: "HummingbirdTesting", package: "hummingbird"),
            ]),
    ] + fuzz,
    swiftLanguageModes: [.v6]
)
