import CShalePlatform

/// Allocates the next frame before a call needs it, without the lock.
extension Log {
    struct Preparation { let frame: Int, takeovers: Int }
    enum Prepared { case done, full, failed }

    /// Without the lock: allocates a frame that `beginPreparing` has chosen, and populates it if the head fills fast.
    func prepare(_ frame: Int) -> Prepared {
        do throws(Failure) { try engine.pointee.files.allocateData(offset(ofFrame: frame), segmentSize) } catch {
            // Any other cause is this handle's own; the next roll reports it.
            return error.isDiskFull ? .full : .failed
        }
        PageCacheGuard(engine: engine).touchEnds(number, frame: frame)
        if isFast {
            if !geometry.hasSmallPages, !engine.pointee.files.isMemory { useHugePages(frame) }
            shim_sys_populate(engine.pointee.data + offset(ofFrame: frame), segmentSize)
        }
        return .done
    }

    func beginPreparing() -> Preparation? {
        if wantsFrame, header[Field.diskFullCountdown] == 0, header[Field.allocated] < budgetedFrames,
            let frame = firstFrame(.absent)
        {
            header.beginChange()
            PageCacheGuard(engine: engine).releasePages(number, frame: frame)
            changeAllocated(frame, to: .preparing, by: 1)
            header.endChange()
            return Preparation(frame: frame, takeovers: header[Field.takeovers])
        }
        return nil
    }

    func endPreparing(_ own: Preparation, _ result: Prepared) {
        // A frame that was taken over, used and given back may be in preparation again, by another caller. If that
        // cannot be ruled out, it stays as it is: the next caller that needs it takes it over.
        header.beginChange()
        defer { header.endChange() }
        guard state(ofFrame: own.frame) == .preparing, header[Field.takeovers] == own.takeovers else {
            // Given back before it was allocated: no count includes it.
            if result == .done, state(ofFrame: own.frame) == .absent {
                _ = engine.pointee.files.releaseData(offset(ofFrame: own.frame), segmentSize)
            }
            return
        }
        if result == .done { addFree(own.frame) } else { freeFrame(own.frame) }
        if result == .full { header[Field.diskFullCountdown] = Log.patience }
    }
}
