import CShalePlatform

/// Working memory for compression, kept by the handle: a set allocates nothing in the steady state, and threads that
/// end leave nothing behind.
struct ScratchPool {
    private static let slots = 32
    /// One pointer to a cache line, so that threads do not share lines.
    private let slots: Memory

    /// Bytes of a scratch's buffer: meta and tags of an increment, or the compressed form of a part.
    let bufferSize: Int

    private let isDense: Bool

    init?(bufferSize: Int, isDense: Bool) {
        guard let memory = shim_aligned(64, ScratchPool.slots * 64) else { return nil }
        memory.zero(ScratchPool.slots * 64)
        slots = memory
        self.bufferSize = bufferSize
        self.isDense = isDense
    }

    func take() -> Scratch? {
        let start = Int(truncatingIfNeeded: shim_thread_number() &* 0x9E37_79B1)
        for i in 0..<4 {
            let slot = slots + ((start >> 8 &+ i) & (ScratchPool.slots - 1)) * 64
            if slot.u64(0) != 0, let memory = Memory(bitPattern: UInt(shim_exchange64(slot, 0))) {
                return Scratch(stream: memory, isDense: isDense)
            }
        }
        guard let memory = shim_malloc(Scratch.streamSize(isDense) + bufferSize) else { return nil }
        shim_lz4_stream_init(memory, isDense)
        return Scratch(stream: memory, isDense: isDense)
    }

    func give(_ scratch: Scratch) {
        let start = Int(truncatingIfNeeded: shim_thread_number() &* 0x9E37_79B1)
        for i in 0..<4 {
            let slot = slots + ((start >> 8 &+ i) & (ScratchPool.slots - 1)) * 64
            if slot.u64(0) == 0, shim_cas64(slot, 0, UInt64(UInt(bitPattern: scratch.stream))) { return }
        }
        shim_free(scratch.stream)
    }

    func free() {
        for i in 0..<ScratchPool.slots { shim_free(Memory(bitPattern: UInt((slots + i * 64).u64(0)))) }
        shim_free(slots)
    }
}

/// One compression stream and a buffer.
struct Scratch {
    static func streamSize(_ isDense: Bool) -> Int { roundUp(shim_lz4_stream_size(isDense), to: 64) }
    let stream: Memory
    let isDense: Bool
    var buffer: Memory { stream + Scratch.streamSize(isDense) }
}
