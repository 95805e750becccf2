import CShalePlatform

/// The frames of the data file that a log has, and those that it takes and gives back.
extension Log {
    func firstFrame(_ state: Log.FrameState) -> Int? {
        for frame in 0..<geometry.framesPerShard where self.state(ofFrame: frame) == state { return frame }
        return nil
    }

    /// Sees that a frame is free. Prefers what exists on disk. `overdraws`: one beyond the budget where there is none.
    func provideFree(overdraws: Bool) throws(Failure) {
        if header[Field.diskFullCountdown] > 0 { header[Field.diskFullCountdown] -= 1 }
        if freeFrames > 0 { return }
        let allowed = overdraws || header[Field.allocated] < budgetedFrames
        var cause: Failure?
        // Also where the disk was full lately: otherwise the call fails for certain.
        if allowed, let frame = firstFrame(.absent) {
            do throws(Failure) {
                try allocate(frame)
                return
            } catch { cause = error }
        }
        do throws(Failure) { try takeOverAll() } catch { cause = cause ?? error }
        if freeFrames == 0 { throw cause ?? filled() }
    }

    /// A frame that holds no segment is free, and goes first.
    func addFree(_ frame: Int) {
        header.begin()
        setQueued(-1 - header[Field.freeCount], frame)
        change(frame: frame, to: .free)
        header.commit(Field.freeCount, by: 1)
    }

    /// A frame that takes space from here on, or takes none any more.
    func changeAllocated(_ frame: Int, to state: Log.FrameState, by step: Int) {
        header.begin()
        change(frame: frame, to: state)
        header.commit(Field.allocated, by: step)
    }

    /// Counted first, so that a kill in between never lets the directory outgrow its capacity.
    private func allocate(_ frame: Int) throws(Failure) {
        Holes(engine: engine).forget(number, frame: frame)
        changeAllocated(frame, to: .preparing, by: 1)
        do throws(Failure) { try takeSpace(frame) } catch {
            giveUp(frame)
            throw error
        }
        Holes(engine: engine).touchEnds(number, frame: frame)
        addFree(frame)
    }

    private func takeSpace(_ frame: Int) throws(Failure) {
        do throws(Failure) { try engine.pointee.files.allocateData(offset(ofFrame: frame), segmentSize) } catch {
            if error.isDiskFull { header[Field.diskFullCountdown] = Log.patience }
            throw error
        }
    }

    /// Frames that others prepare, who are slow, or dead: allocating twice does no harm. One that the disk has no room for
    /// stays as it is, counted and not free, because its preparer may still be at it; it keeps none of the others back.
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

    /// Where nobody else is attached: what writers were preparing that are gone.
    func abandonPreparations() {
        for frame in 0..<geometry.framesPerShard where state(ofFrame: frame) == .preparing { giveUp(frame) }
    }

    /// What is on disk, neither in the log nor free.
    var hasPreparations: Bool { header[Field.allocated] - count > freeFrames }

    /// What could be allocated of a frame goes back, or counts as a frame that is not ready yet.
    @inline(never)
    func giveUp(_ frame: Int) {
        guard engine.pointee.files.releaseData(offset(ofFrame: frame), segmentSize) else { return }
        changeAllocated(frame, to: .absent, by: -1)
    }

    /// Allocates until so many frames are free, whatever the budget: while a cache shrinks, the larger one is in force.
    func provide(_ frames: Int) throws(Failure) {
        if freeFrames >= frames { return }
        try takeOverAll()
        while freeFrames < frames, let frame = firstFrame(.absent) {
            try allocate(frame)
        }
    }

    /// What was admitted with pinned entries, and the cleaner's reserve beside what is not pinned: a rebuild has given back
    /// the frames that held nothing. (A disk that was filled meanwhile does not give them again.)
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

    /// Gives free frames back until there are no more than so many frames on disk.
    func giveBack(downTo most: Int) {
        while header[Field.allocated] > most, releaseFree() {}
    }

    /// Gives the first of the free frames back to the file system.
    private func releaseFree() -> Bool {
        guard freeFrames > 0, !engine.pointee.isReadOnly else { return false }
        let frame = queued(-header[Field.freeCount])
        numberWord(frame).release(0, 0)
        shim_fence_release()
        // Whatever becomes of its blocks, no later rebuild finds this segment after newer ones have gone.
        SegmentHeader.destroy(at: engine.pointee.data + offset(ofFrame: frame))
        // Before its blocks go: a kill in between must not leave a hole that passes for a frame.
        header.begin()
        change(frame: frame, to: .preparing)
        header.commit(Field.freeCount, by: -1)
        shim_fence_release()
        guard engine.pointee.files.releaseData(offset(ofFrame: frame), segmentSize) else {
            addFree(frame)
            return false
        }
        changeAllocated(frame, to: .absent, by: -1)
        Holes(engine: engine).touchNeighbours(number, frame: frame)
        return true
    }
}
