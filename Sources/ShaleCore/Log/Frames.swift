import CShalePlatform

/// The frames of the data file that a log has, takes and gives back.
extension Log {
    func firstFrame(_ state: Log.FrameState) -> Int? {
        for frame in 0..<geometry.framesPerShard where self.state(ofFrame: frame) == state { return frame }
        return nil
    }

    /// Ensures that a frame is free; prefers one on disk. `overdraws`: takes one beyond the budget if there is none.
    func provideFree(overdraws: Bool) throws(Failure) {
        if header[Field.diskFullCountdown] > 0 { header[Field.diskFullCountdown] -= 1 }
        if freeFrames > 0 { return }
        let allowed = overdraws || header[Field.allocated] < budgetedFrames
        var cause: Failure?
        // Even if the disk was full lately: otherwise the call fails for certain.
        if allowed, let frame = firstFrame(.absent) {
            do throws(Failure) {
                try allocate(frame)
                return
            } catch { cause = error }
        }
        do throws(Failure) { try takeOverAll() } catch { cause = cause ?? error }
        if freeFrames == 0 { throw cause ?? filled() }
    }

    /// Adds a frame that holds no segment to the free ones, as the first of them.
    func addFree(_ frame: Int) {
        header.begin()
        setQueued(-1 - header[Field.freeCount], frame)
        change(frame: frame, to: .free)
        header.commit(Field.freeCount, by: 1)
    }

    /// Changes the state of a frame that begins to take space on disk, or ceases to.
    func changeAllocated(_ frame: Int, to state: Log.FrameState, by step: Int) {
        header.begin()
        change(frame: frame, to: state)
        header.commit(Field.allocated, by: step)
    }

    /// Counts the frame first, so that a kill in between never lets the directory exceed its capacity.
    private func allocate(_ frame: Int) throws(Failure) {
        PageCacheGuard(engine: engine).releasePages(number, frame: frame)
        changeAllocated(frame, to: .preparing, by: 1)
        do throws(Failure) { try takeSpace(frame) } catch {
            freeFrame(frame)
            throw error
        }
        PageCacheGuard(engine: engine).touchEnds(number, frame: frame)
        addFree(frame)
    }

    private func takeSpace(_ frame: Int) throws(Failure) {
        do throws(Failure) { try engine.pointee.files.allocateData(offset(ofFrame: frame), segmentSize) } catch {
            if error.isDiskFull { header[Field.diskFullCountdown] = Log.patience }
            throw error
        }
    }

    /// Takes over frames that other callers prepare, which may be slow or dead: allocating twice is harmless. A frame
    /// for which the disk has no room stays counted and not free, because its preparer may still be working on it; it
    /// does not keep the others from being taken over.
    func takeOverAll() throws(Failure) {
        guard hasPreparations else { return }
        var cause: Failure?
        for frame in 0..<geometry.framesPerShard where state(ofFrame: frame) == .preparing {
            do throws(Failure) {
                try takeSpace(frame)
                header[Field.takeovers] += 1
                addFree(frame)
            } catch { cause = error }
        }
        if let cause { throw cause }
    }

    /// Frees the frames that dead writers were preparing. Requires that no other writer is attached.
    func abandonPreparations() {
        for frame in 0..<geometry.framesPerShard where state(ofFrame: frame) == .preparing { freeFrame(frame) }
    }

    /// Whether frames are on disk that are neither in the log nor free.
    var hasPreparations: Bool { header[Field.allocated] - count > freeFrames }

    /// Gives a frame's space back. If that fails, the frame still counts as being prepared.
    @inline(never)
    func freeFrame(_ frame: Int) {
        guard engine.pointee.files.releaseData(offset(ofFrame: frame), segmentSize) else { return }
        changeAllocated(frame, to: .absent, by: -1)
    }

    /// Allocates until so many frames are free, regardless of the budget: while a cache shrinks, the larger one is in
    /// force.
    func provide(_ frames: Int) throws(Failure) {
        if freeFrames >= frames { return }
        try takeOverAll()
        while freeFrames < frames, let frame = firstFrame(.absent) {
            try allocate(frame)
        }
    }

    /// Allocates the frames with which pinned entries were admitted, and the cleaner's reserve beside unpinned ones: a
    /// rebuild has given back frames that held nothing. (Fails silently if the disk has filled up meanwhile.)
    func providePinned() {
        let bytes = header[Field.pinnedBytes]
        if bytes == 0 || engine.pointee.isReadOnly { return }
        let wanted = max(frames(for: bytes, most: header[Field.pinnedMost]), count + reserve)
        try? provide(min(budgetedFrames, wanted) - count)
    }

    /// Gives free frames back to the file system until the budget holds with `extra` more bytes.
    func trim(extra: Int = 0) {
        while header[Field.allocated] * segmentSize + indexBytes + extra > geometry.shardBudget,
            freeFrames > reserve, releaseFree()
        {}
    }

    /// Gives free frames back until at most so many are on disk.
    func giveBack(downTo most: Int) {
        while header[Field.allocated] > most, releaseFree() {}
    }

    /// Gives the first free frame back to the file system.
    private func releaseFree() -> Bool {
        guard freeFrames > 0, !engine.pointee.isReadOnly else { return false }
        let frame = queued(-header[Field.freeCount])
        numberWord(frame).release(0, 0)
        shim_fence_release()
        // Even if its blocks stay, no later rebuild may find this segment after newer ones have left the log.
        SegmentHeader.destroy(at: engine.pointee.data + offset(ofFrame: frame))
        // Before its blocks are freed: a kill in between must not leave a hole that passes for a frame.
        header.begin()
        change(frame: frame, to: .preparing)
        header.commit(Field.freeCount, by: -1)
        shim_fence_release()
        guard engine.pointee.files.releaseData(offset(ofFrame: frame), segmentSize) else {
            addFree(frame)
            return false
        }
        changeAllocated(frame, to: .absent, by: -1)
        PageCacheGuard(engine: engine).touchNeighbours(number, frame: frame)
        return true
    }
}
