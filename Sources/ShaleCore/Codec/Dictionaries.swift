import CShalePlatform

/// Dictionaries for small values: unmodified earlier values, which compress later ones nearly as well as a trained
/// dictionary does. They lie in a few fixed frames of the data file, outside the logs, and never move.
///
///     frame   number · size · check (XXH3-64 of number, size and bytes) · 40 bytes free · bytes
///
/// Dictionary n is in frame n modulo the number of frames. A number is never reused; a frame is, once no current record
/// names its number. The index holds the hot copy of the numbers, which readers compare before and after use.
struct DictionaryFrames {
    static let headerSize = 64

    /// How many frames there are, and the bytes of each; 0 where the cache has no dictionaries.
    let count: Int
    let size: Int
    let secret: UInt64
    /// The first frame, in the data file.
    let region: Memory
    let head: IndexHead

    @inline(__always) func frame(_ number: UInt16) -> Memory { region + Int(number) % count * size }
    @inline(__always) func numberWord(_ number: UInt16) -> Memory {
        head.address(IndexHead.dictionaryNumbers[Int(number) % max(1, count)])
    }

    func check(_ p: Memory, size: Int) -> UInt64 { shim_hash(p + DictionaryFrames.headerSize, size, secret ^ p.u64(0)) }

    func isSound(_ p: Memory, number: UInt16) -> Bool {
        let length = Int(truncatingIfNeeded: p.u64(8))
        return p.u64(0) == UInt64(number) && length > 0 && length <= size - DictionaryFrames.headerSize
            && p.u64(16) == check(p, size: length)
    }

    func has(_ number: UInt16) -> Bool { count > 0 && numberWord(number).acquire(0) == UInt64(number) }

    /// Whether a record that names the dictionary may still be appended. Needs a shard's lock.
    @inline(__always)
    func mayUse(_ number: UInt16) -> Bool {
        // In this order: a retirement ends only once the number has left its frame.
        head.acquire(IndexHead.dictionaryRetiring) != UInt64(number) && numberWord(number).acquire(0) == UInt64(number)
    }

    /// Keeps later dictionaries from getting a number that a record names, even if its own dictionary is lost.
    @inline(__always)
    func reserve(_ number: UInt16) {
        let last = head.address(IndexHead.dictionaryLast)
        while true {
            let known = last.u64(0)
            if known >= UInt64(number) || shim_cas64(last, known, UInt64(number)) { return }
        }
    }

    /// Whether the index's numbers fit their frames, and the frames lie inside the file. `offset`: of the first frame.
    func isConsistent(from offset: Int, dataSize: Int) -> Bool {
        let current = head[IndexHead.dictionaryCurrent], last = head[IndexHead.dictionaryLast]
        guard last <= 65_535, current <= last, current == 0 || has(UInt16(current)) else { return false }
        for i in 0..<count {
            let number = head[IndexHead.dictionaryNumbers[i]]
            guard number == 0 || number <= last && Int(number) % count == i && offset + (i + 1) * size <= dataSize
            else { return false }
        }
        return true
    }

    /// Whether the data file has the dictionaries that the index names. `offset`: of the first frame.
    func areInFile(_ files: CacheFiles, from offset: Int) throws(Failure) -> Bool {
        for i in 0..<count {
            var number: UInt64 = 0
            let named = head[IndexHead.dictionaryNumbers[i]]
            if named == 0 { continue }
            guard try files.readData(offset + i * size, into: &number, 8), number == named else {
                return false
            }
        }
        return true
    }

    /// Fills the index's numbers from the data file. `offset`: of the first frame.
    func restore(_ files: CacheFiles, from offset: Int) throws(Failure) {
        let end = try files.dataSize()
        var newest: UInt64 = 0
        for i in 0..<count {
            let at = offset + i * size
            var number: UInt64 = 0
            guard at + size <= end, try files.readData(at, into: &number, 8) else { continue }
            guard number > 0, number <= 65_535, Int(number) % count == i,
                isSound(region + i * size, number: UInt16(number))
            else { continue }
            head.release(IndexHead.dictionaryNumbers[i], number)
            newest = max(newest, number)
        }
        head.release(IndexHead.dictionaryCurrent, newest)
        head.release(IndexHead.dictionaryLast, newest)
    }
}

/// A handle's dictionaries: prepared for compressing, checked for reading, and the samples of the next one.
struct DictionaryCache {
    /// A dictionary that this process has prepared for compressing.
    struct Prepared {
        let number: UInt16
        let stream: UnsafeRawPointer
    }

    /// One block of raw memory, shared by the handle's threads; words are read and written whole.
    ///   0 prepared list · 8 lock · 16 sample fill · 24 interval · 32 countdown · 40 raw sum · 48 stored sum
    ///   56 ratio of the current dictionary when new, in 1/1024 · 64... verified numbers, 16 words · 192 samples
    private let memory: Memory
    private enum Word {
        static let prepared = 0, lock = 8, fill = 16, interval = 24, countdown = 32, raw = 40, stored = 48, best = 56
        static let verified = 64, samples = 192
    }
    private let sampleSize: Int
    let frames: DictionaryFrames
    private let isDense: Bool

    private enum Sampling {
        /// Samples one value in `interval`; the interval doubles each round, so that the first dictionary comes early
        /// and later ones cover all kinds of values.
        static let firstInterval = 2, wider = 2, mostInterval = 8192
        /// Held back from the dictionary, to evaluate it.
        static let trialBytes = Sizes.trialBytes
        /// At most from one value, so that a dictionary covers many.
        static let valueBytes = Sizes.sampleBytes
        /// What a new dictionary must save, in percent: against none, and against the current one.
        static let firstGain = 10, laterGain = 2
    }

    init?(_ frames: DictionaryFrames, isDense: Bool) {
        self.frames = frames
        self.isDense = isDense
        sampleSize = frames.size == 0 ? 0 : frames.size - DictionaryFrames.headerSize + Sampling.trialBytes
        guard let memory = shim_calloc(Word.samples + sampleSize) else { return nil }
        self.memory = memory
        memory.set(Word.interval, int: Sampling.firstInterval)
        memory.set(Word.countdown, int: Sampling.firstInterval)
    }

    func free() {
        var node = Memory(bitPattern: UInt(memory.u64(Word.prepared)))
        while let here = node {
            node = Memory(bitPattern: UInt(here.u64(0)))
            shim_free(here)
        }
        shim_free(memory)
    }

    // MARK: Reading

    /// Returns false if the dictionary is missing or damaged, or the value is.
    @inline(__always)
    func decompress(number: UInt16, _ stored: Memory, _ count: Int, _ out: Memory, _ size: Int) -> Bool {
        guard number != 0, frames.count > 0 else { return false }
        let word = frames.numberWord(number)
        guard word.acquire(0) == UInt64(number) else { return false }
        let p = frames.frame(number)
        let dictionarySize = Int(truncatingIfNeeded: p.u64(8))
        guard dictionarySize > 0, dictionarySize <= frames.size - DictionaryFrames.headerSize, isSound(number, p) else {
            return false
        }
        let n = shim_lz4_decompress_with(
            p + DictionaryFrames.headerSize, Int32(truncatingIfNeeded: dictionarySize), stored, out,
            Int32(truncatingIfNeeded: count), Int32(truncatingIfNeeded: size))
        shim_fence_acquire()
        return Int(n) == size && word.acquire(0) == UInt64(number)
    }

    /// Checks once for each handle.
    @inline(__always)
    private func isSound(_ number: UInt16, _ p: Memory) -> Bool {
        let verified = memory + Word.verified + Int(number) & 15 * 8
        return verified.u64(0) == UInt64(number) || verify(number, p)
    }
    @inline(never)
    private func verify(_ number: UInt16, _ p: Memory) -> Bool {
        guard frames.isSound(p, number: number) else { return false }
        (memory + Word.verified + Int(number) & 15 * 8).set(0, UInt64(number))
        return true
    }

    // MARK: Compressing

    /// Returns the newest dictionary, prepared; nil if there is none.
    @inline(__always)
    func current() -> Prepared? {
        let number = frames.head.acquire(IndexHead.dictionaryCurrent)
        if number == 0 { return nil }
        if let node = Memory(bitPattern: UInt(memory.acquire(Word.prepared))), node.u64(8) == number {
            return Prepared(number: UInt16(truncatingIfNeeded: number), stream: UnsafeRawPointer(node + 64))
        }
        return prepare(UInt16(truncatingIfNeeded: number))
    }

    /// Loads the dictionary into a stream that compressions copy: once for each dictionary and handle.
    @inline(never)
    private func prepare(_ number: UInt16) -> Prepared? {
        guard shim_cas64(memory + Word.lock, 0, 1) else { return nil }
        defer { memory.release(Word.lock, 0) }
        let p = frames.frame(number)
        guard frames.numberWord(number).acquire(0) == UInt64(number), verify(number, p),
            let node = shim_aligned(64, 64 + shim_lz4_stream_size(isDense))
        else { return nil }
        node.set(0, memory.u64(Word.prepared))
        node.set(8, UInt64(number))
        shim_lz4_load_dictionary(
            node + 64, isDense, p + DictionaryFrames.headerSize, Int32(truncatingIfNeeded: p.u64(8)))
        memory.release(Word.prepared, UInt64(UInt(bitPattern: node)))
        return Prepared(number: number, stream: UnsafeRawPointer(node + 64))
    }

    // MARK: Making

    /// Counts a value that was compressed. Returns whether to sample it.
    @inline(__always)
    func observe(_ count: Int, stored: Int) -> Bool {
        memory.set(Word.raw, memory.u64(Word.raw) &+ UInt64(count))
        memory.set(Word.stored, memory.u64(Word.stored) &+ UInt64(stored))
        let left = memory.int(Word.countdown) - 1
        memory.set(Word.countdown, int: left)
        return left <= 0
    }

    /// Takes a sample. Once there are enough, makes a dictionary of them and checks whether the ratio has decayed.
    /// `store` publishes one in place of the current one, and returns false if it cannot.
    @inline(never)
    func sample(_ value: UnsafeRawPointer, _ count: Int, _ scratch: Scratch, store: (Candidate) -> Bool) {
        guard shim_cas64(memory + Word.lock, 0, 1) else { return }
        defer { memory.release(Word.lock, 0) }
        memory.set(Word.countdown, int: memory.int(Word.interval))
        let fill = memory.int(Word.fill)
        let taken = min(count, Sampling.valueBytes)
        if fill + taken <= sampleSize {
            memcpy(memory + Word.samples + fill, value, taken)
            memory.set(Word.fill, int: fill + taken)
            return
        }
        // How well the current dictionary did in this round, against its best.
        let ratio = max(1, memory.u64(Word.stored) &* 1024 / max(1, memory.u64(Word.raw)))
        let best = memory.u64(Word.best)
        let hasDecayed = best != 0 && ratio > best + best / 6 + 8
        let isNew = candidate(fill, typical: taken, scratch).map(store) ?? false
        memory.set(Word.best, isNew || hasDecayed ? 0 : best == 0 ? ratio : min(best, ratio))
        memory.set(Word.fill, 0)
        memory.set(Word.raw, 0)
        memory.set(Word.stored, 0)
        let interval =
            hasDecayed ? Sampling.firstInterval : min(Sampling.mostInterval, memory.int(Word.interval) * Sampling.wider)
        memory.set(Word.interval, int: interval)
        memory.set(Word.countdown, int: interval)
    }

    /// A possible dictionary, and the number of the current one that it was compared with.
    struct Candidate {
        let bytes: Memory
        let size: Int
        let present: UInt64
    }

    /// Returns a dictionary of the samples, if it saves enough on those that were held back.
    private func candidate(_ fill: Int, typical: Int, _ scratch: Scratch) -> Candidate? {
        let samples = memory + Word.samples
        let trialCount = Sampling.trialBytes, size = fill - trialCount
        let bytes = samples, trial = samples + size
        guard size > Sizes.leastDictionary,
            let stream = shim_aligned(64, shim_lz4_stream_size(isDense) + Int(shim_lz4_bound(512)))
        else { return nil }
        defer { shim_free(stream) }
        let out = stream + shim_lz4_stream_size(isDense)
        shim_lz4_load_dictionary(stream, isDense, bytes, Int32(size))
        let before = frames.head.acquire(IndexHead.dictionaryCurrent)
        let present = Memory(bitPattern: UInt(memory.u64(Word.prepared))).flatMap {
            $0.u64(8) == before ? $0 + 64 : nil
        }
        // In pieces of a typical value's size: small values gain most.
        let piece = max(64, min(512, typical)), room = shim_lz4_bound(512)
        var old = 0, new = 0
        for at in stride(from: 0, through: trialCount - piece, by: piece) {
            old += min(
                piece,
                Int(
                    present.map {
                        shim_lz4_compress_with(scratch.stream, isDense, $0, trial + at, out, Int32(piece), room)
                    }
                        ?? shim_lz4_compress(scratch.stream, isDense, trial + at, out, Int32(piece), room)))
            new += min(
                piece,
                Int(shim_lz4_compress_with(scratch.stream, isDense, stream, trial + at, out, Int32(piece), room)))
        }
        let gain = before == 0 ? Sampling.firstGain : Sampling.laterGain
        return new * 100 <= old * (100 - gain) ? Candidate(bytes: bytes, size: size, present: before) : nil
    }
}
