/// An item of the reader's output; with `--json`, a line.
enum Event: Codable, Sendable {
    /// The list of articles, and the time from the request to the output.
    case list(count: Int, source: Source, milliseconds: Double)
    case article(name: String, Article, source: Source, milliseconds: Double)
    /// The article, or its newer version, could not be loaded.
    case failure(name: String, cause: String)
    /// The cache has announced a new article, or a new version of one.
    case arrived(name: String)
    case roundEnded
}

/// The source of an article or list.
enum Source: String, Codable, CaseIterable, Sendable {
    case memory, disk, network
    /// From the cache, after the server confirmed it.
    case revalidated
    /// From the cache, because the server failed.
    case stale
}
