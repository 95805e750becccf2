import CShalePlatform

/// Raw memory of a mapping or a buffer. Fields are reached by byte offset, each
/// with the ordering that its use needs; nothing else in the core touches memory.
typealias Memory = UnsafeMutableRawPointer

extension UnsafeMutableRawPointer {
    // Relaxed: under the shard's lock, or validated afterwards.
    @inline(__always) func u64(_ offset: Int) -> UInt64 { shim_load64(self + offset) }
    @inline(__always) func u32(_ offset: Int) -> UInt32 { shim_load32(self + offset) }
    @inline(__always) func int(_ offset: Int) -> Int { Int(truncatingIfNeeded: shim_load64(self + offset)) }
    @inline(__always) func set(_ offset: Int, _ value: UInt64) { shim_store64(self + offset, value) }
    @inline(__always) func set32(_ offset: Int, _ value: UInt32) { shim_store32(self + offset, value) }
    @inline(__always) func set(_ offset: Int, int value: Int) {
        shim_store64(self + offset, UInt64(truncatingIfNeeded: value))
    }
    @inline(__always) func add(_ offset: Int, _ value: Int) {
        shim_store64(self + offset, shim_load64(self + offset) &+ UInt64(truncatingIfNeeded: value))
    }

    // Published to, or read from, threads that hold no lock.
    @inline(__always) func acquire(_ offset: Int) -> UInt64 { shim_load64_acquire(self + offset) }
    @inline(__always) func release(_ offset: Int, _ value: UInt64) { shim_store64_release(self + offset, value) }

    @inline(__always) func zero(_ count: Int) { shim_zero(self, count) }
}

/// Bytes that a caller lends for the length of a call.
public typealias Bytes = UnsafeRawBufferPointer

extension UnsafeRawBufferPointer {
    /// An address even for an empty buffer: C functions want one.
    @inline(__always) var start: UnsafeRawPointer {
        baseAddress ?? UnsafeRawPointer(bitPattern: 8).unsafelyUnwrapped
    }
}

@inline(__always) func roundUp(_ value: Int, to unit: Int) -> Int { (value + unit - 1) / unit * unit }

/// Which of so many parts a 32-bit hash falls into. They are in the order of the hashes.
@inline(__always) func scaled(_ hash: UInt32, to count: Int) -> Int {
    Int(truncatingIfNeeded: (UInt64(hash) &* UInt64(truncatingIfNeeded: count)) >> 32)
}

/// Pages are what the kernel allocates, and what `du` counts.
let pageSize = Sizes.page
let hugePageSize = Int(SHIM_HUGE_PAGE)

/// Fetches bytes into the processor's cache, 2 KiB at most: the processor itself goes on from there. A hint, wherever
/// they are.
@inline(__always) func prefetchLines(_ p: Memory, from start: Int = 0, to end: Int) {
    var offset = start
    while offset < min(end, 2048) {
        shim_prefetch(p + offset)
        offset &+= 64
    }
}
