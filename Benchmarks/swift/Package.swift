// swift-tools-version: 6.1
import PackageDescription

let package = Package(
    name: "shale-benchmarks",
    dependencies: [
        .package(name: "shale", path: "../.."),
        .package(url: "https://github.com/ordo-one/benchmark", exact: "1.38.1", traits: []),
        .package(url: "https://github.com/groue/GRDB.swift", exact: "7.10.0"),
    ],
    targets: [
        .executableTarget(
            name: "Caches",
            dependencies: [
                "CountAllocations",
                .product(name: "Shale", package: "shale"),
                .product(name: "Benchmark", package: "benchmark"),
                .product(name: "GRDB", package: "GRDB.swift"),
            ],
            path: "Benchmarks/Caches",
            plugins: [.plugin(name: "BenchmarkPlugin", package: "benchmark")]),
        .target(name: "CountAllocations", path: "Benchmarks/CountAllocations"),
    ],
    swiftLanguageModes: [.v6]
)
