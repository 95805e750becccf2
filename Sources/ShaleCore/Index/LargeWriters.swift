import CShalePlatform

/// The writers of large values: each blob that is being written, with its writer's process and the time until which
/// that may be silent (`Holder`).
///
/// Parts that no manifest names are kept while their blob is listed and its writer is alive. Once the writer's process
/// has ended, or was stopped for longer than `patience`, a caller that needs room frees them. So no caller may rely on
/// an entry here: a writer that resumes checks its parts and stores missing ones again.
///
/// Each shard's region has some of the cells, in groups; a blob's hash selects shard and group. Cells need no lock, but
/// the cleaner reads them under a shard's: so times are checked first, the kernel is asked only about a writer whose
/// time has not ended, and a dead writer is marked in its cell.
struct LargeWriters {
    /// Milliseconds of uptime that a writer may take between two parts.
    static let patience: Int64 = 30_000

    private static let cellSize = 16, groupSize = Sizes.writers.group * cellSize
    // Offsets in a cell.
    private static let blob = 0, writer = 8

    static func groups(frameBytes: Int) -> Int {
        min(Sizes.writers.most, max(Sizes.writers.least, frameBytes / Sizes.writers.bytesPerGroup))
    }
    static func size(groups: Int) -> Int { groups * groupSize }

    /// The high half selects the shard, the low half the group.
    static func hash(_ blob: UInt64) -> UInt64 {
        withUnsafeBytes(of: blob) { shim_hash($0.start, $0.count, 0) }
    }

    let at: Memory
    let groups: Int
    let owner: Owner

    /// A registered writer's cell.
    struct Registration {
        fileprivate let cell: Memory
        let number: UInt64
        fileprivate let owner: Owner

        /// Renews the writer's time; to be called before each part. Returns false if the writer was ended, was silent
        /// for too long, or has lost its cell.
        @discardableResult
        func renew() -> Bool {
            guard cell.acquire(LargeWriters.blob) == number else { return false }
            let wasKept = !LargeWriters.isSilent(cell, owner)
            cell.release(LargeWriters.writer, LargeWriters.holder(owner).word)
            return wasKept
        }
        func end() { _ = shim_cas64(cell + LargeWriters.blob, number, 0) }
    }

    /// Registers a blob. Nil if live writers have all cells of its group.
    func begin(_ number: UInt64) -> Registration? {
        let group = group(number)
        return take(group, number) { $0.acquire(LargeWriters.blob) == 0 }
            ?? take(group, number) { !isAlive($0) }
    }

    private func take(_ group: Memory, _ number: UInt64, where isFree: (Memory) -> Bool) -> Registration? {
        for cell in cells(group) {
            let found = cell.acquire(LargeWriters.blob)
            if isFree(cell), shim_cas64(cell + LargeWriters.blob, found, number) {
                // (No caller asks for a blob that has no parts yet. If another writer takes the cell before this store,
                // as a dead writer's, `renew` notices at the first part.)
                cell.release(LargeWriters.writer, LargeWriters.holder(owner).word)
                return Registration(cell: cell, number: number, owner: owner)
            }
        }
        return nil
    }

    func isWriting(_ number: UInt64) -> Bool { cell(of: number).map(isAlive) ?? false }

    /// Ends a writer that is still writing, because its parts have to go: it notices at its next `renew`.
    func end(_ number: UInt64) { cell(of: number)?.release(LargeWriters.writer, 0) }

    /// Ends all writers, when no other writer is attached. Returns false if there was none.
    func endAll() -> Bool {
        var found = false
        for cell in allCells where cell.u64(LargeWriters.blob) != 0 {
            cell.release(LargeWriters.writer, 0)
            found = true
        }
        return found
    }

    /// Frees all cells, once the parts are gone.
    func removeAll() {
        for cell in allCells where cell.u64(LargeWriters.blob) != 0 { cell.release(LargeWriters.blob, 0) }
    }

    // MARK: Cells

    private typealias Cells = StrideTo<Memory>

    private var allCells: Cells {
        stride(from: at, to: at + LargeWriters.size(groups: groups), by: LargeWriters.cellSize)
    }
    private func cells(_ group: Memory) -> Cells {
        stride(from: group, to: group + LargeWriters.groupSize, by: LargeWriters.cellSize)
    }
    private func group(_ number: UInt64) -> Memory {
        at + scaled(UInt32(truncatingIfNeeded: LargeWriters.hash(number)), to: groups) * LargeWriters.groupSize
    }
    private func cell(of number: UInt64) -> Memory? {
        for cell in cells(group(number)) where cell.acquire(LargeWriters.blob) == number { return cell }
        return nil
    }

    private static func holder(_ owner: Owner) -> Holder { Holder(owner, until: owner.uptime &+ patience) }
    private static func isSilent(_ cell: Memory, _ owner: Owner) -> Bool {
        Holder(cell.acquire(writer)).isOver(at: owner.uptime, longest: patience)
    }
    private func isAlive(_ cell: Memory) -> Bool {
        let holder = Holder(cell.acquire(LargeWriters.writer))
        if holder.isOver(at: owner.uptime, longest: LargeWriters.patience) { return false }
        if !holder.isDead(owner) { return true }
        // Later callers see it in the time.
        _ = shim_cas64(cell + LargeWriters.writer, holder.word, 0)
        return false
    }
}
