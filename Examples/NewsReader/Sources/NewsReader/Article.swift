/// The server publishes articles, and the reader caches them.
struct Article: Codable, Sendable {
    /// The first line.
    let title: String
    let text: String

    init(text: String) {
        title = String(text.prefix { !$0.isNewline })
        self.text = text
    }
}
