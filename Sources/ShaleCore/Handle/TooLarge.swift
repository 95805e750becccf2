/// The error for a value or an entry that is too large for a cache.
extension EngineState {
    enum SizeBound {
        /// Limits a value alone.
        case value
        /// Limit a record: key, meta and the stored form of the value.
        case segment, shard
    }

    @inline(never)
    func tooLarge(_ bytes: Int, most: Int, _ bound: SizeBound) -> Failure {
        let (what, why): (StaticString, StaticString) =
            switch bound {
            case .value: ("value", " bytes, a quarter of its capacity and at most 1 GiB")
            case .segment:
                (
                    "entry",
                    " bytes with key and meta, which is what a segment holds; use a larger capacity or segment_size"
                )
            case .shard: ("entry", " bytes with key and meta, which is what a shard holds; raise the capacity")
            }
        return Message().adding("the ").adding(what).adding(" takes ").adding(bytes).adding(" bytes; ").adding(
            files.path
        ).adding(" takes up to ").adding(most).adding(why).failure(.tooLarge)
    }
}
