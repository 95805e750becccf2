/// What happens to an entry after filling; see demo/corpus.py.
enum Role: Int {
    case plain, refreshed, invalidated, shortLived
}

/// The corpus: all inputs in one mapped file. demo/corpus.py describes its layout.
struct Corpus {
    struct Entry {
        let key: UnsafeRawBufferPointer
        let value: UnsafeRawBufferPointer
        let role: Role
    }

    let entries: [Entry]

    init(path: String) {
        let file = UnsafeRawBufferPointer(mapFile(path, writable: false))
        guard file.prefix(8).elementsEqual("SHALEDM1".utf8) else { fail(with: "\(path) is not a corpus") }
        let count = Int(file.loadUnaligned(fromByteOffset: 8, as: UInt64.self))
        var entries: [Entry] = []
        entries.reserveCapacity(count)
        var position = 16
        for _ in 0..<count {
            let keySize = Int(file.loadUnaligned(fromByteOffset: position, as: UInt32.self))
            let tagSize = Int(file.loadUnaligned(fromByteOffset: position + 4, as: UInt16.self))
            let role = Int(file.loadUnaligned(fromByteOffset: position + 6, as: UInt16.self))
            let valueSize = Int(file.loadUnaligned(fromByteOffset: position + 8, as: UInt64.self))
            let key = position + 16
            let value = key + keySize + tagSize
            entries.append(
                Entry(
                    key: UnsafeRawBufferPointer(rebasing: file[key..<key + keySize]),
                    value: UnsafeRawBufferPointer(rebasing: file[value..<value + valueSize]),
                    role: Role(rawValue: role) ?? .plain))
            position = (value + valueSize + 7) / 8 * 8
        }
        self.entries = entries
    }
}
