import ArgumentParser
import Foundation

/// A package's changelog, as Debian installs it below `/usr/share/doc`.
struct Changelog: Sendable {
    /// Package and file: `bash/changelog.Debian`.
    let name: String
    /// The whole file, decompressed. The newest entry comes first.
    let text: String
    /// Whether the newest entry belongs to today's edition only.
    let isNews: Bool

    /// The changelogs of the packages with documents in a directory; an even selection if there are more than `count`.
    /// Omits changelogs of more than 64 KiB, compressed, and those that are not UTF-8.
    static func installed(below directory: String, atMost count: Int) throws -> [Changelog] {
        let files = FileManager.default
        var names: [String] = []
        // A file that is not a directory has no contents.
        for package in (try? files.contentsOfDirectory(atPath: directory).sorted()) ?? [] {
            for file in (try? files.contentsOfDirectory(atPath: "\(directory)/\(package)").sorted()) ?? []
            where file.hasPrefix("changelog") && file.hasSuffix(".gz") {
                let attributes = try files.attributesOfItem(atPath: "\(directory)/\(package)/\(file)")
                if let size = attributes[.size] as? Int, size <= 64 << 10 {
                    names.append("\(package)/\(file.dropLast(3))")
                }
            }
        }
        let chosen = names.count <= count ? names : (0..<count).map { names[$0 * names.count / count] }
        let changelogs = try chosen.enumerated().compactMap { index, name in
            String(validating: try decompressed("\(directory)/\(name).gz"), as: UTF8.self).map {
                Changelog(name: name, text: $0, isNews: index.isMultiple(of: 3))
            }
        }
        if changelogs.isEmpty {
            throw Failure(
                description:
                    "\(directory) has no */changelog*.gz: install a package with documents, or use another --changelogs"
            )
        }
        return changelogs
    }

    /// The part that is published in an edition.
    func text(in edition: Edition) -> String {
        guard edition == .yesterday, isNews else { return text }
        // The first line of an entry is not indented.
        let lines = text.split(separator: "\n", omittingEmptySubsequences: false)
        guard let next = lines.dropFirst().firstIndex(where: { $0.first?.isWhitespace == false }) else { return text }
        return lines[next...].joined(separator: "\n")
    }

    private static func decompressed(_ path: String) throws -> Data {
        let gzip = Process(), output = Pipe()
        gzip.executableURL = URL(fileURLWithPath: "/usr/bin/env")
        gzip.arguments = ["gzip", "-dc", path]
        gzip.standardOutput = output
        try gzip.run()
        let data = output.fileHandleForReading.readDataToEndOfFile()
        gzip.waitUntilExit()
        if gzip.terminationStatus != 0 {
            throw Failure(description: "\(path) cannot be decompressed: gzip exited with \(gzip.terminationStatus)")
        }
        return data
    }
}

/// Yesterday's edition lacks the newest entry of every third changelog.
enum Edition: String, ExpressibleByArgument {
    case yesterday, today
}
