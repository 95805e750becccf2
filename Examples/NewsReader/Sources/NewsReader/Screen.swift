import Foundation

/// Prints events as text or JSON.
struct Screen: Sendable {
    let isJSON: Bool

    func show(_ event: Event) throws {
        let line = isJSON ? String(decoding: try JSONEncoder().encode(event), as: UTF8.self) : text(event)
        // One write, so that a kill cannot leave a part of the line unwritten.
        try FileHandle.standardOutput.write(contentsOf: Data((line + "\n").utf8))
    }

    private func text(_ event: Event) -> String {
        func row(_ source: Source, _ milliseconds: Double, _ rest: String) -> String {
            String(format: "%9.3f ms  ", milliseconds)
                + source.rawValue.padding(toLength: 12, withPad: " ", startingAt: 0) + rest
        }
        return switch event {
        case .list(let count, let source, let milliseconds): row(source, milliseconds, "\(count) articles")
        case .article(_, let article, let source, let milliseconds): row(source, milliseconds, article.title)
        case .failure(let name, let cause): "failed: \(name): \(cause)"
        case .arrived(let name): "new: \(name)"
        case .roundEnded: "Press Enter to read again, Ctrl-D to quit."
        }
    }
}
