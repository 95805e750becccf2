// swift-tools-version: 6.2
import PackageDescription

// Beside the main package, so that what these products depend on never reaches those who use the cache alone.
let package = Package(
    name: "shale-servers",
    products: [
        .library(name: "ShaleObservability", targets: ["ShaleObservability"]),
        .library(name: "ShaleHTTP", targets: ["ShaleHTTP"]),
        .library(name: "ShaleHummingbird", targets: ["ShaleHummingbird"]),
    ],
    dependencies: [
        .package(name: "shale", path: ".."),
        .package(url: "https://github.com/apple/swift-log.git", from: "1.6.0"),
        .package(url: "https://github.com/apple/swift-metrics.git", from: "2.5.0"),
        .package(url: "https://github.com/apple/swift-nio.git", from: "2.81.0"),
        .package(url: "https://github.com/hummingbird-project/hummingbird.git", from: "2.5.0"),
        .package(url: "https://github.com/swift-server/async-http-client.git", from: "1.24.0"),
    ],
    targets: [
        .target(
            name: "ShaleObservability",
            dependencies: [
                .product(name: "Shale", package: "shale"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "Metrics", package: "swift-metrics"),
            ]),
        .target(
            name: "ShaleHummingbird",
            dependencies: [
                .product(name: "Shale", package: "shale"),
                .product(name: "Hummingbird", package: "hummingbird"),
            ]),
        .target(
            name: "ShaleHTTP",
            dependencies: [
                .product(name: "ShaleCore", package: "shale"),
                .product(name: "AsyncHTTPClient", package: "async-http-client"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOHTTP1", package: "swift-nio"),
            ]),
        // What the public tests of HTTP caches are run against: `make cache-tests`.
        .executableTarget(
            name: "CacheProxy",
            dependencies: [
                "ShaleHTTP",
                .product(name: "HummingbirdCore", package: "hummingbird"),
                .product(name: "NIOPosix", package: "swift-nio"),
            ]),
        .testTarget(
            name: "ShaleHTTPTests",
            dependencies: ["ShaleHTTP", .product(name: "NIOPosix", package: "swift-nio")]),
        .testTarget(
            name: "ShaleObservabilityTests",
            dependencies: ["ShaleObservability", .product(name: "MetricsTestKit", package: "swift-metrics")]),
        .testTarget(
            name: "ShaleHummingbirdTests",
            dependencies: ["ShaleHummingbird", .product(name: "HummingbirdTesting", package: "hummingbird")]),
    ],
    swiftLanguageModes: [.v6]
)
