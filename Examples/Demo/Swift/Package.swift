// swift-tools-version: 6.0
import PackageDescription

let package = Package(
    name: "DemoSwift",
    dependencies: [.package(name: "shale", path: "../../..")],
    targets: [
        .executableTarget(
            name: "demo-swift", dependencies: [.product(name: "ShaleCore", package: "shale")],
            path: "Sources/DemoSwift")
    ]
)
