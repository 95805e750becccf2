import Foundation

/// A value of about 1 KiB, encoded, with a number.
protocol Sample: Codable, Sendable {
    init(_ number: Int)
    var number: Int { get }
    /// For subjects without a coder.
    func encoded() throws -> Data
    static func decoded(_ data: Data) throws -> Self
}

struct Article: Sample {
    let number: Int
    let title: String
    let author: String
    let published: Double
    let tags: [String]
    let body: String

    init(_ number: Int) {
        self.number = number
        title = words(6, number)
        author = words(2, number + 1)
        published = 1_800_000_000 + Double(number)
        tags = [words(1, number + 2), words(1, number + 3)]
        body = words(126, number + 4)
    }

    func encoded() throws -> Data { try encoder.encode(self) }
    static func decoded(_ data: Data) throws -> Article { try decoder.decode(Article.self, from: data) }
}

/// The number, then text.
extension Data: Sample {
    init(_ number: Int) {
        self = Swift.withUnsafeBytes(of: number.littleEndian) { Data($0) } + words(200, number).utf8.prefix(1016)
    }

    var number: Int { withUnsafeBytes { $0.loadUnaligned(as: Int.self) } }
    func encoded() -> Data { self }
    static func decoded(_ data: Data) -> Data { data }
}

private let encoder = JSONEncoder(), decoder = JSONDecoder()

private func words(_ count: Int, _ seed: Int) -> String {
    var random = SplitMix64(state: UInt64(seed) &* 0xd134_2543_de82_ef95)
    return (0..<count).map { _ in vocabulary.randomElement(using: &random) ?? "" }.joined(separator: " ")
}

private let vocabulary = """
    aquifer basalt batholith boulder breccia caldera canyon chalk clay cobble conglomerate crust delta dolomite drift dune erosion fault \
    feldspar fold fossil gabbro geode glacier gneiss granite gravel gypsum hornfels lava limestone loess magma mantle marble marl mica \
    moraine mudstone obsidian oolite outcrop peat pumice quartz rhyolite sandstone schist scree sediment shale silt slate stratum tuff
    """.split(separator: " ").map(String.init)
