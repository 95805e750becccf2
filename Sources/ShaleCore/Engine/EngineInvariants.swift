#if DEBUG && !hasFeature(Embedded)
extension Engine {
    /// What is wrong in any shard; empty where nothing is. For tests: reads everything.
    func brokenInvariants() -> [String] {
        (0..<ref.pointee.geometry.shards).flatMap { i in
            let shard = Shard(ref, i)
            guard (try? shard.lock()) != nil else { return ["shard \(i): cannot be locked"] }
            defer { shard.unlock() }
            return shard.brokenInvariants().map { "shard \(i): \($0)" }
        }
    }
}
#endif
