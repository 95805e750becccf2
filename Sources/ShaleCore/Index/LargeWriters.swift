import CShalePlatform

/// Who writes large values: their blobs, each with its writer's process and how long that may be silent (`Holder`).
///
/// Parts that no manifest names are kept while their blob is here and its writer is alive. A writer that is gone, or
/// that was stopped for longer than `patience`, is not waited for: whoever needs room drops its parts. So nothing may
/// depend on an entry here: a writer that goes on after that looks for its parts, and stores again what is missing.
///
/// Each shard's region has some of the cells, in groups; a blob's hash names the shard and the group. They are used
/// without the shard's lock. But the cleaner asks under it whether a blob is being written: so times are judged first,
/// the kernel is asked only about a writer whose time is not over, and what it says of one that is gone is noted.
struct LargeWriters {
    /// Milliseconds of uptime from one part to the next.
    static let patience: Int64 = 30_000

    private static let cellSize = 16, groupSize = Sizes.writers.group * cellSize
    // Of a cell.
    private static let blob = 0, writer = 8

    static func groups(frameBytes: Int) -> Int {
        min(Sizes.writers.most, max(Sizes.writers.least, frameBytes / Sizes.writers.bytesPerGroup))
    }
    static func size(groups: Int) -> Int { groups * groupSize }

    /// Its high half names the shard, its low half the group.
    static func hash(_ blob: UInt64) -> UInt64 {
        withUnsafeBytes(of: blob) { shim_hash($0.start, $0.count, 0) }
    }

    let at: Memory
    let groups: Int

    /// A cell in the list.
    struct Turn {
        fileprivate let cell: Memory
        let number: UInt64

        /// To be called before each part. False where the writer was given up meanwhile, or has lost its cell.
        @discardableResult
        func renew() -> Bool {
            guard cell.acquire(LargeWriters.blob) == number else { return false }
            let wasKept = !LargeWriters.isSilent(cell)
            cell.release(LargeWriters.writer, LargeWriters.own().word)
            return wasKept
        }
        func end() { _ = shim_cas64(cell + LargeWriters.blob, number, 0) }
    }

    /// Nil where others write in all cells of the blob's group.
    func begin(_ number: UInt64) -> Turn? {
        let group = group(number)
        return take(group, number) { $0.acquire(LargeWriters.blob) == 0 }
            ?? take(group, number) { !LargeWriters.isAlive($0) }
    }

    private func take(_ group: Memory, _ number: UInt64, where isFree: (Memory) -> Bool) -> Turn? {
        for cell in cells(group) {
            let found = cell.acquire(LargeWriters.blob)
            if isFree(cell), shim_cas64(cell + LargeWriters.blob, found, number) {
                // (Nobody asks for a blob that has no parts yet. Whoever takes the cell for a dead writer's in this
                // moment is noticed at the first part.)
                cell.release(LargeWriters.writer, LargeWriters.own().word)
                return Turn(cell: cell, number: number)
            }
        }
        return nil
    }

    func isWriting(_ number: UInt64) -> Bool { cell(of: number).map(LargeWriters.isAlive) ?? false }

    /// Its parts have to go although it writes on: it notices with the next `renew`.
    func giveUp(_ number: UInt64) { cell(of: number)?.release(LargeWriters.writer, 0) }

    /// Waits for nobody any more, where no other writer is attached. False where there was nobody.
    func giveUpAll() -> Bool {
        var found = false
        for cell in allCells where cell.u64(LargeWriters.blob) != 0 {
            cell.release(LargeWriters.writer, 0)
            found = true
        }
        return found
    }

    /// Forgets them, once their parts are gone.
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

    private static func own() -> Holder {
        Holder(process: shim_sys_process(), until: shim_uptime_ms() &+ patience)
    }
    private static func isSilent(_ cell: Memory) -> Bool {
        Holder(cell.acquire(writer)).isOver(at: shim_uptime_ms(), longest: patience)
    }
    private static func isAlive(_ cell: Memory) -> Bool {
        let holder = Holder(cell.acquire(writer))
        if holder.isOver(at: shim_uptime_ms(), longest: patience) { return false }
        if !holder.isGone(own: shim_sys_process()) { return true }
        // From here on its time says so.
        _ = shim_cas64(cell + writer, holder.word, 0)
        return false
    }
}
