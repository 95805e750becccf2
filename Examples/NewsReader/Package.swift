// swift-tools-version: 6.2
import PackageDescription

let package = Package(
    name: "news-reader",
    dependencies: [
        .package(name: "shale", path: "../.."),
        .package(url: "https://github.com/apple/swift-argument-parser", exact: "1.8.2"),
        .package(url: "https://github.com/swift-server/async-http-client", exact: "1.37.0"),
        .package(url: "https://github.com/swhitty/FlyingFox", exact: "0.27.1"),
    ],
    targets: [
        .executableTarget(
            name: "NewsReader",
            dependencies: [
                .product(name: "Shale", package: "shale"),
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
                .product(name: "AsyncHTTPClient", package: "async-http-client"),
                .product(name: "FlyingFox", package: "FlyingFox"),
            ])
    ],
    swiftLanguageModes: [.v6]
)
