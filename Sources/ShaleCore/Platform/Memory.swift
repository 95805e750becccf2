import CShalePlatform

/// Raw memory of a mapping or a buffer. Fields are accessed by byte offset, with the ordering that the use needs; no
/// other code of the core accesses memory.
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

    // Shared with threads that hold no lock.
    @inline(__always) func acquire(_ offset: Int) -> UInt64 { shim_load64_acquire(self + offset) }
    @inline(__always) func release(_ offset: Int, _ value: UInt64) { shim_store64_release(self + offset, value) }

    @inline(__always) func zero(_ count: Int) { shim_zero(self, count) }
}

/// Bytes lent by a caller for the length of a call.
public typealias Bytes = UnsafeRawBufferPointer

extension UnsafeRawBufferPointer {
    /// An address even for an empty buffer: C functions require one.
    @inline(__always) var start: UnsafeRawPointer {
        baseAddress ?? UnsafeRawPointer(bitPattern: 8).unsafelyUnwrapped
    }
}

@inline(__always) func roundUp(_ value: Int, to unit: Int) -> Int { (value + unit - 1) / unit * unit }

/// Which of `count` parts a hash falls into, in the order of the hashes.
@inline(__always) func scaled(_ hash: UInt32, to count: Int) -> Int {
    Int(truncatingIfNeeded: (UInt64(hash) &* UInt64(truncatingIfNeeded: count)) >> 32)
}

/// Pages are the kernel's units of allocation, which `du` counts.
let pageSize = Sizes.page
let hugePageSize = Int(SHIM_HUGE_PAGE)

/// Prefetches 2 KiB at most: the processor continues from there. A hint, at any address.
@inline(__always) func prefetchLines(_ p: Memory, from start: Int = 0, to end: Int) {
    var offset = start
    while offset < min(end, 2048) {
        shim_prefetch(p + offset)
        offset &+= 64
    }
}
