import CShalePlatform

extension ShardReader {
    /// Collects the parts of a large value. `bytes`: meta, then the manifest. (Takes words of the verified header:
    /// passing the header itself would make reads of small values copy it too.)
    @inline(never)
    func readLarge(
        _ bytes: Memory, _ metaLength: Int, check: UInt64, _ numberWord: Memory, _ segment: UInt64, _ key: Key,
        _ options: ReadOptions,
        _ buffer: inout ValueBuffer, _ found: inout Found
    ) -> Outcome {
        guard buffer.reserve(metaLength + Manifest.size) else { return .noMemory }
        memcpy(buffer.start, bytes, metaLength + Manifest.size)
        let body = buffer.start + metaLength
        guard
            bodyHash(
                meta: buffer.start, metaLength: metaLength, stored: body, storedLength: Manifest.size, secret: secret)
                == check
        else { return .damaged }
        shim_fence_acquire()
        guard numberWord.acquire(0) == segment else { return .moved }
        let manifest = Manifest(at: body)
        guard manifest.isPlausible else { return .damaged }
        let size = Int(manifest.rawLength)
        found.size = size
        found.storedSize = manifest.storedLength
        if options.contains(.info) { return .hit }
        guard buffer.reserve(size + metaLength) else { return .noMemory }
        memcpy(buffer.start + size, bytes, metaLength)
        let seed = metaLength == 0 ? secret : shim_hash(buffer.start + size, metaLength, secret)
        var words = manifest.words
        guard withUnsafeBytes(of: &words, { shim_hash($0.start, Manifest.size, seed) }) == check else {
            return .damaged
        }
        #if DEBUG && !hasFeature(Embedded)
        ReadHook.runBeforeParts()
        #endif
        let partLength = Int(manifest.partLength)
        for i in 0..<Int(manifest.partCount) {
            let length = min(partLength, size - i * partLength)
            let out = buffer.start + i * partLength
            let outcome = PartKey(blob: manifest.blob, owner: key.hash, part: i).withKey(engine) { shard, part in
                shard.reader.readPart(part, into: out, length)
            }
            // A part is missing: the manifest was replaced meanwhile, or the value is lost.
            if outcome != .hit { return outcome == .absent ? .incomplete : outcome }
        }
        return .hit
    }

    private func readPart(_ key: Key, into out: Memory, _ size: Int) -> Outcome {
        while true {
            let moment = header.moment
            if moment.isOfRebuild {
                do throws(Failure) { try shard.waitForRebuild() } catch {
                    return error.status == .busy ? .busy : .unavailable
                }
                continue
            }
            var outcome = Outcome.absent
            let table = self.table
            table.probe(key.hashBits) { slot, word0 in
                guard word0.isPart else { return false }
                outcome = readPart(slot, word0, key, into: out, size)
                return outcome != .otherKey
            }
            switch outcome {
            case .moved: continue
            case .absent, .otherKey:
                if header.isStill(moment) { return .absent }
            default: return outcome
            }
        }
    }

    @inline(never) // five calls in the probe
    private func readPart(_ slot: Slot, _ word0: SlotEntry, _ key: Key, into out: Memory, _ size: Int) -> Outcome {
        do throws(Outcome) {
            let sighting = try locate(slot, word0)
            let record = try match(sighting, key).header, spot = sighting.spot
            guard record.isKind(.part) else { throw .otherKey }
            let isSound =
                record.rawLength == size && record.metaLength == 0
                && readBody(record, spot.at, spot.address, into: ValueBuffer(data: out, capacity: size))
            return sighting.isUnchanged ? isSound ? .hit : .damaged : .moved
        } catch { return error }
    }
}
