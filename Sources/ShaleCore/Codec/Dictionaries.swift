import CShalePlatform

/// Dictionaries for small values: earlier values as they were, which compress
/// later ones nearly as well as a trained dictionary does. They live in a few
/// fixed places of the data file, outside the logs, and never move.
///
///     place   number · size · check (XXH3-64 of number, size and bytes) · 40 bytes free · bytes
///
/// Dictionary n lives in place n modulo the places. A number is never used
/// twice; a place is, once no current record names its number. The index holds
/// the hot copy of the numbers, which readers compare before and after use.
struct DictionaryCache {
    private static let headerSize = 64

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

    private enum Sampling {
        /// Every so manieth value is sampled; each round is spread twice as wide as the one before,
        /// so that the first dictionary comes early and the later ones know all kinds of values.
        static let firstInterval = 2, wider = 2, mostInterval = 8192
        /// Held back from the dictionary, to judge it by.
        static let trialBytes = Sizes.trialBytes
        /// Of one value at most, so that a dictionary is made of many.
        static let valueBytes = Sizes.sampleBytes
        /// What a new dictionary has to save, in percent: against none, and against the present one.
        static let firstGain = 10, laterGain = 2
    }

    init?(dictionarySize: Int) {
        sampleSize = dictionarySize == 0 ? 0 : dictionarySize - DictionaryCache.headerSize + Sampling.trialBytes
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

    private static func place(_ engine: EngineRef, _ number: UInt16) -> Memory {
        let g = engine.pointee.geometry
        return engine.pointee.data + g.dictionaries + Int(number) % g.dictionaryPlaces * g.dictionarySize
    }
    private static func numberWord(_ engine: EngineRef, _ number: UInt16) -> Memory {
        engine.pointee.index + IndexHead.dictionaryNumbers + Int(number) % max(1, engine.pointee.geometry.dictionaryPlaces) * 8
    }
    private static func check(_ p: Memory, size: Int, secret: UInt64) -> UInt64 {
        shim_hash(p + headerSize, size, secret ^ p.u64(0))
    }

    // MARK: Reading

    /// False where the dictionary is gone or damaged, and where the value is.
    @inline(__always)
    func decompress(_ engine: EngineRef, number: UInt16, _ stored: Memory, _ count: Int, _ out: Memory, _ size: Int) -> Bool {
        guard number != 0, engine.pointee.geometry.dictionaryPlaces > 0 else { return false }
        let word = DictionaryCache.numberWord(engine, number)
        guard word.acquire(0) == UInt64(number) else { return false }
        let p = DictionaryCache.place(engine, number)
        let dictionarySize = Int(truncatingIfNeeded: p.u64(8))
        guard dictionarySize > 0, dictionarySize <= engine.pointee.geometry.dictionarySize - DictionaryCache.headerSize, isSound(engine, number, p) else { return false }
        let n = shim_lz4_decompress_with(p + DictionaryCache.headerSize, Int32(truncatingIfNeeded: dictionarySize), stored, out, Int32(truncatingIfNeeded: count), Int32(truncatingIfNeeded: size))
        shim_fence_acquire()
        return Int(n) == size && word.acquire(0) == UInt64(number)
    }

    /// Checked once by each handle.
    @inline(__always)
    private func isSound(_ engine: EngineRef, _ number: UInt16, _ p: Memory) -> Bool {
        let verified = memory + Word.verified + Int(number) & 15 * 8
        return verified.u64(0) == UInt64(number) || verify(engine, number, p)
    }
    @inline(never)
    private func verify(_ engine: EngineRef, _ number: UInt16, _ p: Memory) -> Bool {
        guard DictionaryCache.isSound(p, number: number, engine) else { return false }
        (memory + Word.verified + Int(number) & 15 * 8).set(0, UInt64(number))
        return true
    }
    private static func isSound(_ p: Memory, number: UInt16, _ engine: EngineRef) -> Bool {
        let size = Int(truncatingIfNeeded: p.u64(8))
        return p.u64(0) == UInt64(number) && size > 0 && size <= engine.pointee.geometry.dictionarySize - headerSize
            && p.u64(16) == check(p, size: size, secret: engine.pointee.secret)
    }

    /// Fills the index's numbers from the data file.
    static func restore(_ engine: EngineRef) throws(Failure) {
        let g = engine.pointee.geometry
        let size = try engine.pointee.files.dataSize(engine)
        var newest: UInt64 = 0
        for i in 0..<g.dictionaryPlaces {
            let offset = g.dictionaries + i * g.dictionarySize
            var number: UInt64 = 0
            guard offset + g.dictionarySize <= size, try engine.pointee.files.readData(engine, offset, into: &number, 8) else { continue }
            let p = engine.pointee.data + offset
            guard number > 0, number <= 65_535, Int(number) % g.dictionaryPlaces == i, isSound(p, number: UInt16(number), engine) else { continue }
            (engine.pointee.index + IndexHead.dictionaryNumbers + i * 8).release(0, number)
            newest = max(newest, number)
        }
        engine.pointee.index.release(IndexHead.dictionaryCurrent, newest)
        engine.pointee.index.release(IndexHead.dictionaryLast, newest)
    }

    // MARK: Compressing

    /// The newest dictionary, prepared; nil where there is none.
    @inline(__always)
    func current(_ engine: EngineRef) -> Prepared? {
        let number = engine.pointee.index.acquire(IndexHead.dictionaryCurrent)
        if number == 0 { return nil }
        if let node = Memory(bitPattern: UInt(memory.acquire(Word.prepared))), node.u64(8) == number {
            return Prepared(number: UInt16(truncatingIfNeeded: number), stream: UnsafeRawPointer(node + 64))
        }
        return prepare(engine, UInt16(truncatingIfNeeded: number))
    }

    /// Loads the dictionary into a stream that compressions copy: once for each dictionary and handle.
    @inline(never)
    private func prepare(_ engine: EngineRef, _ number: UInt16) -> Prepared? {
        guard shim_cas64(memory + Word.lock, 0, 1) else { return nil }
        defer { memory.release(Word.lock, 0) }
        let p = DictionaryCache.place(engine, number)
        guard DictionaryCache.numberWord(engine, number).acquire(0) == UInt64(number), verify(engine, number, p),
              let node = shim_aligned(64, 64 + shim_lz4_stream_size()) else { return nil }
        node.set(0, memory.u64(Word.prepared))
        node.set(8, UInt64(number))
        shim_lz4_load_dictionary(node + 64, p + DictionaryCache.headerSize, Int32(truncatingIfNeeded: p.u64(8)))
        memory.release(Word.prepared, UInt64(UInt(bitPattern: node)))
        return Prepared(number: number, stream: UnsafeRawPointer(node + 64))
    }

    // MARK: Making

    /// Takes samples, and now and then looks whether the ratio has decayed.
    @inline(__always)
    func observe(_ engine: EngineRef, _ value: UnsafeRawPointer, _ count: Int, stored: Int, _ scratch: Scratch) {
        memory.set(Word.raw, memory.u64(Word.raw) &+ UInt64(count))
        memory.set(Word.stored, memory.u64(Word.stored) &+ UInt64(stored))
        let left = memory.int(Word.countdown) - 1
        memory.set(Word.countdown, int: left)
        if left <= 0 { sample(engine, value, count, scratch) }
    }

    @inline(never)
    private func sample(_ engine: EngineRef, _ value: UnsafeRawPointer, _ count: Int, _ scratch: Scratch) {
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
        // How well the present dictionary did in this round, against its best.
        let ratio = max(1, memory.u64(Word.stored) &* 1024 / max(1, memory.u64(Word.raw)))
        let best = memory.u64(Word.best)
        let hasDecayed = best != 0 && ratio > best + best / 6 + 8
        let isNew = make(engine, fill, typical: taken, scratch)
        memory.set(Word.best, isNew || hasDecayed ? 0 : best == 0 ? ratio : min(best, ratio))
        memory.set(Word.fill, 0)
        memory.set(Word.raw, 0)
        memory.set(Word.stored, 0)
        let interval = hasDecayed ? Sampling.firstInterval : min(Sampling.mostInterval, memory.int(Word.interval) * Sampling.wider)
        memory.set(Word.interval, int: interval)
        memory.set(Word.countdown, int: interval)
    }

    /// Makes a dictionary of the samples if it saves enough on those that were held back.
    private func make(_ engine: EngineRef, _ fill: Int, typical: Int, _ scratch: Scratch) -> Bool {
        let samples = memory + Word.samples
        let trialCount = Sampling.trialBytes, size = fill - trialCount
        let bytes = samples, trial = samples + size
        guard size > Sizes.leastDictionary, let stream = shim_aligned(64, shim_lz4_stream_size() + Int(shim_lz4_bound(512))) else { return false }
        defer { shim_free(stream) }
        let out = stream + shim_lz4_stream_size()
        shim_lz4_load_dictionary(stream, bytes, Int32(size))
        let before = engine.pointee.index.acquire(IndexHead.dictionaryCurrent)
        let present = Memory(bitPattern: UInt(memory.u64(Word.prepared))).flatMap { $0.u64(8) == before ? $0 + 64 : nil }
        // In pieces of a value's size: small ones gain most.
        let piece = max(64, min(512, typical)), room = shim_lz4_bound(512)
        var old = 0, new = 0
        for at in stride(from: 0, through: trialCount - piece, by: piece) {
            old += min(piece, Int(present.map { shim_lz4_compress_with(scratch.stream, $0, trial + at, out, Int32(piece), room) }
                    ?? shim_lz4_compress(scratch.stream, trial + at, out, Int32(piece), room)))
            new += min(piece, Int(shim_lz4_compress_with(scratch.stream, stream, trial + at, out, Int32(piece), room)))
        }
        let gain = before == 0 ? Sampling.firstGain : Sampling.laterGain
        return new * 100 <= old * (100 - gain) && store(engine, bytes, size, expecting: before)
    }

    /// Puts a dictionary into a place that no current record needs. False where there is none.
    private func store(_ engine: EngineRef, _ bytes: Memory, _ size: Int, expecting before: UInt64) -> Bool {
        let index = engine.pointee.index
        let g = engine.pointee.geometry
        let result = shim_mutex_lock(index + IndexHead.dictionaryLock)
        guard result == 0 || result == shim_owner_dead() else { return false }
        defer { shim_mutex_unlock(index + IndexHead.dictionaryLock) }
        guard index.acquire(IndexHead.dictionaryCurrent) == before else { return false }
        let last = index.u64(IndexHead.dictionaryLast)
        for next in (last + 1)...(last + UInt64(g.dictionaryPlaces)) where next <= 65_535 {
            let number = UInt16(next)
            let word = DictionaryCache.numberWord(engine, number)
            let victim = word.acquire(0)
            if victim != 0 {
                if victim == before || isNeeded(engine, number) { continue }
                // From here on no put takes it any more; who has the lock now is waited for.
                index.release(IndexHead.dictionaryRetiring, victim)
                shim_fence()
                if isNeeded(engine, number, locked: true) { continue }
            }
            let p = DictionaryCache.place(engine, number)
            guard (try? engine.pointee.files.allocateData(p - engine.pointee.data, g.dictionarySize)) != nil else { return false }
            word.release(0, 0)
            // A shard that was rebuilt since it was asked may have found old records that name the number, before it
            // was gone.
            if victim != 0, isNeeded(engine, number, locked: true) {
                word.release(0, victim)
                continue
            }
            // A number that is retired for good would stay so after a kill from here on, and may be the next one made.
            index.release(IndexHead.dictionaryRetiring, 0)
            shim_fence()
            p.set(16, 0)
            p.set(0, next)
            p.set(8, UInt64(size))
            shim_copy(p + DictionaryCache.headerSize, bytes, size)
            p.release(16, DictionaryCache.check(p, size: size, secret: engine.pointee.secret))
            word.release(0, next)
            index.release(IndexHead.dictionaryLast, next)
            index.release(IndexHead.dictionaryCurrent, next)
            return true
        }
        return false
    }

    private func isNeeded(_ engine: EngineRef, _ number: UInt16, locked: Bool = false) -> Bool {
        for i in 0..<engine.pointee.geometry.shards {
            let shard = Shard(engine, i)
            if locked {
                guard (try? shard.lock()) != nil else { return true }
                defer { shard.unlock() }
                if shard.header[shard.dictionaryField(number)] != 0 { return true }
            } else if shard.header[shard.dictionaryField(number)] != 0 { return true }
        }
        return false
    }

    /// No later dictionary gets a number that a record names, also where its own dictionary is lost.
    @inline(__always)
    static func reserve(_ engine: EngineRef, _ number: UInt16) {
        let last = engine.pointee.index + IndexHead.dictionaryLast
        while true {
            let known = last.u64(0)
            if known >= UInt64(number) || shim_cas64(last, known, UInt64(number)) { return }
        }
    }

    static func has(_ engine: EngineRef, _ number: UInt16) -> Bool {
        engine.pointee.geometry.dictionaryPlaces > 0 && numberWord(engine, number).acquire(0) == UInt64(number)
    }

    /// Whether a record that names the dictionary may still be appended. Under a shard's lock.
    @inline(__always)
    static func mayUse(_ engine: EngineRef, _ number: UInt16) -> Bool {
        // In this order: who retires a number ends that only once the number is gone from its place.
        engine.pointee.index.acquire(IndexHead.dictionaryRetiring) != UInt64(number) && numberWord(engine, number).acquire(0) == UInt64(number)
    }
}
