#if DEBUG && !hasFeature(Embedded)
extension Store {
    func brokenInvariants() -> [String] { engine.brokenInvariants() }
}
#endif
