#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

extension Cache {
    /// A value with what is known of it.
    public struct Entry: Sendable {
        public let value: Value
        public let createdAt: Date
        /// Nil: never.
        public let expiresAt: Date?
        /// Past its age when it was read.
        public let isStale: Bool
        /// The validator that it was inserted with.
        public let etag: String?
        public let tags: [String]
        /// Changes with every insertion; 0: a value that was loaded and could not be stored.
        public let version: UInt64
        public let isPinned: Bool
        /// Where this read found it.
        public let source: EntrySource
        /// Milliseconds that the loader took; 0: it was not loaded.
        let loadTime: Int64
    }
}

/// Where a read found an entry.
public enum EntrySource: Sendable {
    /// In this object's memory, after the store had confirmed it.
    case memory
    case store
    /// Loaded just now.
    case loader
}

extension Cache.Entry {
    init(_ value: Value, _ known: Store.Entry, source: EntrySource) {
        let meta = Meta(known.meta)
        self.init(value: value, createdAt: Date(millisecondsSince1970: known.createdAt), expiresAt: known.expiresAt.map(Date.init(millisecondsSince1970:)),
                  isStale: known.isStale, etag: meta.etag, tags: meta.tags, version: known.version, isPinned: known.isPinned, source: source, loadTime: meta.loadTime)
    }
}

/// What the cache keeps beside a value, in the store's meta bytes:
///
///     meta   = empty | form (1) loadTime etag tag*
///     etag   = 0 | length + 1, bytes
///     tag    = length, bytes
///
/// Numbers are LEB128. Tags are kept because the store has their hashes alone, and an archive needs them.
struct Meta: Equatable {
    var etag: String?
    var tags: [String] = []
    /// Milliseconds.
    var loadTime: Int64 = 0
}

extension Meta {
    private static let form: UInt8 = 1

    var bytes: [UInt8] {
        if self == Meta() { return [] }
        var bytes = [Meta.form]
        bytes.append(leb128: UInt64(loadTime))
        bytes.append(leb128: etag.map { UInt64($0.utf8.count) + 1 } ?? 0)
        if let etag { bytes += etag.utf8 }
        for tag in tags {
            bytes.append(leb128: UInt64(tag.utf8.count))
            bytes += tag.utf8
        }
        return bytes
    }

    /// Bytes of another form, written by somebody else, say nothing.
    init(_ bytes: [UInt8]) {
        var rest = bytes[...]
        guard rest.popFirst() == Meta.form, let time = rest.popLEB128(), let etagLength = rest.popLEB128() else { return }
        loadTime = Int64(clamping: time)
        if etagLength > 0 {
            guard let text = rest.popText(etagLength - 1) else { return }
            etag = text
        }
        while let length = rest.popLEB128(), let tag = rest.popText(length) { tags.append(tag) }
    }
}
