#if DEBUG && !hasFeature(Embedded)
extension Engine {
    /// Returns the broken invariants of all shards. For tests: reads everything.
    func brokenInvariants() -> [String] {
        (0..<ref.pointee.geometry.shards).flatMap { i in
            guard let broken = try? Shard(ref, i).locked({ $0.brokenInvariants() }) else {
                return ["shard \(i): cannot be locked"]
            }
            return broken.map { "shard \(i): \($0)" }
        }
    }
}
#endif
