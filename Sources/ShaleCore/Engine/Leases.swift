import CShalePlatform

/// How a value is asked for by those who can load it. Milliseconds.
public struct LeaseOptions {
    public static let standard: Int64 = 30_000

    public var read: ReadOptions = []
    /// How long the right to load lasts at most.
    public var lease = standard
    /// How long to wait while another loads.
    public var wait: Int64 = 0
    /// See `RefreshAhead`; 0: not before the age is over.
    public var refreshAhead: Int64 = 0
    /// Rather none than one that is not recorded, which another may get as well.
    public var mustBeRecorded = false

    public init() {}
}

/// The answer to a request for a lease.
public enum LeaseAnswer: Sendable {
    /// Its token.
    case given(UInt64)
    /// There is a value, or another has the lease.
    case none
    /// It could not be recorded: all cells that it may have are taken.
    case unrecorded

    public var token: UInt64? {
        if case .given(let token) = self { return token }
        return nil
    }
}

extension Engine {
    /// Grants one at a time, of all who ask in all processes, the right to load a key. Returns a token, or nil where
    /// another has it. Where no cell is free, it grants one that is not recorded.
    public func lease(_ bytes: Bytes, milliseconds: Int64) throws(Failure) -> UInt64? {
        let granted = try lease(try key(bytes), milliseconds, mustBeRecorded: false).token
        if granted != nil { count(IndexHead.leases) }
        return granted
    }

    /// Holders whose process has ended do not count. The kernel is asked about them under no lock, so the table is asked
    /// again afterwards.
    @inline(never)
    private func lease(_ key: Key, _ milliseconds: Int64, mustBeRecorded: Bool) throws(Failure) -> LeaseAnswer {
        try ref.checkWritable()
        try check(leaseTime: milliseconds)
        let own = shim_sys_process(), leases = Shard(ref, keyHash: key.hash).leases
        var gone: Holder?
        // Of the key's cells, those that were asked about because all are taken.
        var asked = 0, isFull = false
        while true {
            var token: UInt64 = 0
            let answer = try withShard(of: key) { shard in
                if let gone { leases.end(gone, key.hash) }
                // (Under the lock: it is a token for fenced sets too.)
                token = shard.drawToken()
                let uptime = shim_uptime_ms()
                let holder = Holder(process: own, until: uptime &+ milliseconds)
                let answer = leases.take(key.hash, token: token, holder: holder, uptime: uptime)
                if case .full = answer, isFull, !mustBeRecorded {
                    shard.header[ShardHeader.Field.leasesUnrecorded] &+= 1
                }
                return answer
            }
            switch answer {
            case .given: return .given(token)
            case .held(let holder):
                guard holder.isGone(own: own) else { return .none }
                gone = holder
            case .full:
                if isFull { return mustBeRecorded ? .unrecorded : .given(token) }
                gone = leases.firstGone(key.hash, from: &asked, own: own)
                isFull = gone == nil
            }
        }
    }

    /// Begins a lease's time again. False where it was over, or the lease was never recorded.
    public func renew(_ bytes: Bytes, lease token: UInt64, milliseconds: Int64) throws(Failure) -> Bool {
        let key = try key(bytes)
        try ref.checkWritable()
        try check(leaseTime: milliseconds)
        let own = shim_sys_process()
        return try withShard(of: key) { shard in
            let uptime = shim_uptime_ms()
            let holder = Holder(process: own, until: uptime &+ milliseconds)
            return shard.leases.renew(key.hash, token: token, holder: holder, uptime: uptime)
        }
    }

    /// Under the lock of a key's shard, for a handle that may write.
    func withShard<R>(of key: Key, _ body: (borrowing ShardWriter) -> R) throws(Failure) -> R {
        try Shard(ref, keyHash: key.hash).locked(body)
    }

    @inline(never)
    private func check(leaseTime milliseconds: Int64) throws(Failure) {
        if milliseconds <= 0 || milliseconds > LeaseTable.longest {
            throw Failure.because(.invalid, "a lease lasts at least a millisecond and at most an hour")
        }
    }

    /// Gives a lease back. False where its time was over.
    public func release(_ bytes: Bytes, lease token: UInt64) throws(Failure) -> Bool {
        try release(try key(bytes), lease: token)
    }

    @inline(never)
    @discardableResult
    private func release(_ key: Key, lease token: UInt64) throws(Failure) -> Bool {
        try ref.checkWritable()
        return try withShard(of: key) { $0.leases.release(key.hash, token: token, uptime: shim_uptime_ms()) }
    }

    /// Reads a value, and where it has to be loaded gives the right to do so to one of all who ask.
    ///
    /// Whoever gets no value waits for the one who loads, as long as the options say. Nobody waits who gets a stale
    /// one.
    public func get(
        _ bytes: Bytes, _ options: LeaseOptions, _ buffer: inout ValueBuffer, _ found: inout Found,
        lease answer: inout LeaseAnswer
    ) throws(Failure) -> Status {
        answer = .none
        let key = try key(bytes)
        guard options.wait >= 0, options.refreshAhead >= 0 else {
            throw Failure.because(.invalid, "wait_ms or refresh_ahead_ms is negative")
        }
        try check(leaseTime: options.lease)
        let end = shim_uptime_ms() &+ min(options.wait, .max / 2)
        var read = options.read
        var pause = 1
        while true {
            var status = try getOutlined(bytes, read, &buffer, &found)
            answer = .none
            if status == .ok, !isDueEarly(found, options) { return .ok }
            let asked = try lease(key, options.lease, mustBeRecorded: options.mustBeRecorded)
            if let granted = asked.token {
                // Whoever had it may have stored the value meanwhile, or made it fresh again.
                let before = (status, found.version, found.expires)
                do throws(Failure) { status = try getOutlined(bytes, read.union(.peek), &buffer, &found) } catch {
                    _ = try? release(key, lease: granted)
                    throw error
                }
                if status == .ok, (status, found.version, found.expires) != before {
                    try release(key, lease: granted)
                } else {
                    answer = asked
                    count(IndexHead.leases)
                }
                return status
            }
            answer = asked
            let left = end &- shim_uptime_ms()
            if status != .miss || left <= 0 { return status }
            shim_sleep_us(min(pause, Int(left)) * 1000)
            pause = min(pause * 2, 16)
            // The first look was counted.
            read.insert(.peek)
        }
    }

    private func isDueEarly(_ found: Found, _ options: LeaseOptions) -> Bool {
        guard options.refreshAhead > 0, found.expires != Age.never else { return false }
        let left = found.expires &- Age.publicPoint(ref.pointee.clock.now48)
        guard RefreshAhead.mayBeDue(left: left, mean: options.refreshAhead) else { return false }
        var chance: UInt64 = 0
        return shim_sys_random(&chance, 8) == 8
            && RefreshAhead.isDue(left: left, mean: Double(options.refreshAhead), chance: chance)
    }
}
