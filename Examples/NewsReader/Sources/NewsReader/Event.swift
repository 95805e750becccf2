/// What the reader shows. With `--json`, each is a line of its output.
enum Event: Codable, Sendable {
    /// The list of articles, and how long it took from asking to showing.
    case list(count: Int, source: Source, milliseconds: Double)
    case article(name: String, Article, source: Source, milliseconds: Double)
    /// Nothing could be shown, or nothing newer.
    case failure(name: String, cause: String)
    /// The cache has announced that it has a new article, or a new version of one.
    case arrived(name: String)
    case roundEnded
}

/// Where it came from.
enum Source: String, Codable, CaseIterable, Sendable {
    case memory, disk, network
    /// What was stored, after the server said that it is still right.
    case revalidated
    /// What was stored, because the server failed.
    case stale
}
