import CShalePlatform

/// Who writes large values: their blobs, each with its writer's process and how long that may be silent.
///
/// Parts that no manifest names are kept while their blob is here and its writer is alive. A writer that is gone, or
/// that was stopped for longer than `patience`, is not waited for: whoever needs room drops its parts. So nothing may
/// depend on an entry here: a writer that goes on after that looks for its parts, and stores again what is missing.
struct LargeWriters {
    /// Milliseconds of uptime from one part to the next.
    static let patience: Int64 = 30_000

    let head: IndexHead

    /// A cell in the list, the blob's own unless more are written at once than have cells.
    struct Turn {
        fileprivate let blob: Memory
        fileprivate let writer: Memory
        let number: UInt64

        /// To be called before each part. False where the writer was given up meanwhile, or has lost its cell.
        @discardableResult
        func renew() -> Bool {
            guard blob.acquire(0) == number else { return false }
            let wasKept = LargeWriters.isAlive(writer.acquire(0))
            writer.release(0, LargeWriters.word())
            return wasKept
        }
        func end() { _ = shim_cas64(blob, number, 0) }
    }

    private func blob(_ i: Int) -> Memory { head.address(IndexHead.writing[i]) }
    private func writer(_ i: Int) -> Memory { head.address(IndexHead.writers[i]) }

    func begin(_ number: UInt64) -> Turn {
        let turn = Int(shim_add64(head.address(IndexHead.writingTurn), 1) % UInt64(IndexHead.writingCells))
        if let free = take(from: turn, number, where: { blob($0).acquire(0) == 0 }) { return free }
        if let left = take(from: turn, number, where: { !LargeWriters.isAlive(writer($0).acquire(0)) }) { return left }
        // More writers than cells.
        blob(turn).release(0, number)
        return started(turn, number)
    }

    private func take(from turn: Int, _ number: UInt64, where isFree: (Int) -> Bool) -> Turn? {
        for n in 0..<IndexHead.writingCells {
            let i = (turn + n) % IndexHead.writingCells, found = blob(i).acquire(0)
            if isFree(i), shim_cas64(blob(i), found, number) { return started(i, number) }
        }
        return nil
    }

    /// (Nobody asks for a blob that has no parts yet.)
    private func started(_ i: Int, _ number: UInt64) -> Turn {
        writer(i).release(0, LargeWriters.word())
        return Turn(blob: blob(i), writer: writer(i), number: number)
    }

    func isWriting(_ number: UInt64) -> Bool {
        for i in 0..<IndexHead.writingCells where blob(i).acquire(0) == number {
            return LargeWriters.isAlive(writer(i).acquire(0))
        }
        return false
    }

    /// Its parts have to go although it writes on: it notices with the next `renew`.
    func giveUp(_ number: UInt64) {
        for i in 0..<IndexHead.writingCells where blob(i).acquire(0) == number { writer(i).release(0, 0) }
    }

    /// Waits for nobody any more, where no other writer is attached. False where there was nobody.
    func giveUpAll() -> Bool {
        var found = false
        for i in 0..<IndexHead.writingCells where blob(i).u64(0) != 0 {
            writer(i).release(0, 0)
            found = true
        }
        return found
    }

    /// Forgets them, once their parts are gone.
    func removeAll() {
        for i in 0..<IndexHead.writingCells where blob(i).u64(0) != 0 { blob(i).release(0, 0) }
    }

    // MARK: A writer's word: its process in the high 22 bits, and the uptime at which it is given up

    private static let timeBits: UInt64 = 42

    private static func word() -> UInt64 {
        UInt64(shim_sys_process()) << timeBits | UInt64(bitPattern: shim_uptime_ms() &+ patience) & (1 << timeBits - 1)
    }
    private static func isAlive(_ word: UInt64) -> Bool {
        let left = Int64(word & (1 << timeBits - 1)) &- shim_uptime_ms()
        // (What seems to last longer is damage.)
        return left > 0 && left <= patience && shim_sys_has_process(UInt32(truncatingIfNeeded: word >> timeBits))
    }
}
