#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif
import ShaleCore

extension Cache {
    /// A value with its metadata.
    public struct Entry: Sendable {
        public let value: Value
        /// Whether it was past its max age when it was read.
        public let isStale: Bool
        public let isPinned: Bool
        /// Changes with every insertion. 0: the value was loaded but not stored.
        public let version: UInt64
        /// Where this read found the value.
        public let source: EntrySource
        /// Why a stale value was served although the policy asked for a load: what the load threw, or a ``LoadError``
        /// for the limit that was reached or the load that was not tried. Otherwise nil.
        public internal(set) var error: (any Error)?
        /// Milliseconds since 1970.
        @usableFromInline let created: Int64
        /// Milliseconds since 1970; nil: never.
        @usableFromInline let expires: Int64?
        /// Decoded on demand: most reads need only the value.
        @usableFromInline let metaBytes: [UInt8]

        @inlinable
        init(_ value: Value, _ known: Store.Entry, source: EntrySource) {
            self.value = value
            isStale = known.isStale
            isPinned = known.isPinned
            version = known.version
            self.source = source
            created = known.createdAt
            expires = known.expiresAt
            metaBytes = known.meta
        }

        /// A loaded value that is not stored, or no longer stored: it is stale at once.
        init(loaded value: Value, version: UInt64, isPinned: Bool, _ meta: Meta, now: Int64) {
            self.value = value
            isStale = true
            self.isPinned = isPinned
            self.version = version
            source = .loader
            created = now
            expires = now
            metaBytes = meta.bytes
        }

        public var createdAt: Date { Date(millisecondsSince1970: created) }
        /// Nil: never.
        public var expiresAt: Date? { expires.map(Date.init(millisecondsSince1970:)) }
        /// The validator from its insertion.
        public var etag: String? { meta.etag }
        public var tags: [String] { meta.tags }
        var meta: Meta { Meta(metaBytes) }

        var stamp: Stamp { Stamp(version: version, expires: expires) }

        func served(for error: any Error) -> Entry {
            var entry = self
            entry.error = error
            return entry
        }
    }
}

/// Equal stamps mean that an entry was neither replaced nor given a new age.
struct Stamp: Equatable, Sendable {
    let version: UInt64
    let expires: Int64?

    init(version: UInt64, expires: Int64?) {
        self.version = version
        self.expires = expires
    }
    init(_ known: Store.Entry) { self.init(version: known.version, expires: known.expiresAt) }
}

/// Where a read found an entry.
public enum EntrySource: Sendable {
    /// In this object's memory; the store has confirmed the version.
    case memory
    case store
    /// Just loaded.
    case loader
}

/// The metadata of a value, in the store's meta bytes:
///
///     meta   = empty | form (1; 2: known to be missing, the value is empty) loadTime etag tag*
///     etag   = 0 | length + 1, bytes
///     tag    = length, bytes
///
/// Numbers are LEB128. Archives need the tags, of which the store itself has only hashes.
@usableFromInline
struct Meta: Equatable, Sendable {
    var etag: String?
    var tags: [String] = []
    /// Milliseconds.
    var loadTime: Int64 = 0
    /// The key is known to have no value.
    var isMissing = false

    @usableFromInline
    init(etag: String? = nil, tags: [String] = [], loadTime: Int64 = 0, isMissing: Bool = false) {
        self.etag = etag
        self.tags = tags
        self.loadTime = loadTime
        self.isMissing = isMissing
    }
}

extension Meta {
    private static let form: UInt8 = 1
    @usableFromInline static let missingForm: UInt8 = 2

    @inlinable
    static func isMissing(_ bytes: [UInt8]) -> Bool { bytes.first == missingForm }

    var bytes: [UInt8] {
        if self == Meta() { return [] }
        var bytes = [isMissing ? Meta.missingForm : Meta.form]
        bytes.append(leb128: UInt64(loadTime))
        bytes.append(leb128: etag.map { UInt64($0.utf8.count) + 1 } ?? 0)
        if let etag { bytes += etag.utf8 }
        for tag in tags {
            bytes.append(leb128: UInt64(tag.utf8.count))
            bytes += tag.utf8
        }
        return bytes
    }

    /// Ignores bytes of another form, which other writers of the store may use.
    init(_ bytes: [UInt8]) {
        var rest = bytes[...]
        isMissing = Meta.isMissing(bytes)
        guard let form = rest.popFirst(), form == Meta.form || form == Meta.missingForm, let time = rest.popLEB128(),
            let etagLength = rest.popLEB128()
        else {
            return
        }
        loadTime = Int64(clamping: time)
        if etagLength > 0 {
            guard let text = rest.popText(etagLength - 1) else { return }
            etag = text
        }
        while let length = rest.popLEB128(), let tag = rest.popText(length) { tags.append(tag) }
    }
}
