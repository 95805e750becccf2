// swift-tools-version: 6.2
import PackageDescription

let package = Package(
    name: "first-cache",
    products: [.executable(name: "FirstCache", targets: ["FirstCache"])],
    dependencies: [.package(name: "shale", path: "../..")],
    targets: [.executableTarget(name: "FirstCache", dependencies: [.product(name: "Shale", package: "shale")])],
    swiftLanguageModes: [.v6]
)
