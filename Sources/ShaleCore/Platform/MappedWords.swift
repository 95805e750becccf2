import CShalePlatform

/// Named words in mapped memory: the name of another structure's word does not compile.
protocol MappedWords {
    static var size: Int { get }
    var at: Memory { get }
}

struct MappedWord<Owner: MappedWords> {
    let offset: Int
    init(_ offset: Int) { self.offset = offset }
    @inline(__always) subscript(_ i: Int) -> MappedWord { MappedWord(offset &+ i &* 8) }
}

extension MappedWords {
    @inline(__always) func address(_ word: MappedWord<Self>) -> Memory {
        assert(word.offset & 7 == 0 && word.offset >= 0 && word.offset < Self.size, "a word of the structure")
        return at + word.offset
    }
    @inline(__always) subscript(_ word: MappedWord<Self>) -> UInt64 {
        get { address(word).u64(0) }
        nonmutating set { address(word).set(0, newValue) }
    }
    @inline(__always) func acquire(_ word: MappedWord<Self>) -> UInt64 { address(word).acquire(0) }
    @inline(__always) func release(_ word: MappedWord<Self>, _ value: UInt64) { address(word).release(0, value) }
}
