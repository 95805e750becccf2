import CShalePlatform

extension CacheFiles {
    /// `fd` below 0: memory that forked children share.
    func map(_ fd: Int32, _ count: Int, writable: Bool, _ file: StaticString) throws(Failure) -> Memory {
        var error = 0
        if let p = shim_sys_map(fd, count, writable, &error) { return p }
        let advice: StaticString =
            switch error {
            case -SHIM_ENOMEM: "raise the limit on virtual memory (ulimit -v), or use a smaller capacity"
            case -SHIM_EAGAIN:
                "raise the limit on locked memory (ulimit -l), or do not call mlockall(MCL_FUTURE)"
            case -SHIM_EOVERFLOW:
                "files of this file system cannot be that large; use a smaller capacity, or another file system"
            default: ""
            }
        throw Failure.system(
            "map", path, file, error, status: error == -SHIM_EOVERFLOW ? .invalid : nil, advice: advice)
    }
}

/// Disables large pages and read-ahead. File systems allocate all that a large page of the page cache covers once a
/// byte of it changes, also uncounted holes (ext4 on Linux 6.18: up to 1.9 MB beyond a table). Such pages come from
/// read-ahead, and, on a tmpfs that has them, from every access to a hole.
func keepPagesSmall(_ p: Memory, _ count: Int) {
    shim_sys_random_access(p, count)
    shim_sys_no_huge_pages(p, count)
}

extension Engine {
    /// Prefetches tables that are not in memory, up to 256 MiB, for the first handle: without read-ahead they would
    /// come page by page, each with a wait.
    func fetchTables() {
        let geometry = ref.pointee.geometry
        var left = 256 << 20
        for i in 0..<geometry.shards where left > 0 {
            let shard = Shard(ref, i)
            let index = ref.pointee.index
            let count = Table.bytes(of: shard.table.shape.extent)
            // (A few pages may come one by one.)
            if count < 128 << 10 { continue }
            left -= count
            let quarter = roundUp(count / 4, to: pageSize)
            if !shim_sys_is_resident(index + geometry.offset(i, inChunks: quarter))
                || !shim_sys_is_resident(index + geometry.offset(i, inChunks: 2 * quarter))
            {
                geometry.forEachPiece(i, from: 0, to: count) { offset, count in
                    shim_sys_will_need(index + offset, count)
                }
            }
        }
    }

    func unmap() {
        shim_owner_end(ref.pointee.owner)
        shim_sys_unmap(ref.pointee.data, ref.pointee.geometry.dataSize)
        shim_sys_unmap(ref.pointee.index, ref.pointee.geometry.indexSize)
    }
}
