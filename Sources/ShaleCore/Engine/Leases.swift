import CShalePlatform

/// How callers that can load a value request it. Milliseconds.
public struct LeaseOptions {
    public static let standard: Int64 = 30_000

    public var read: ReadOptions = []
    /// How long a lease lasts at most.
    public var lease = standard
    /// How long to wait while another caller loads.
    public var wait: Int64 = 0
    /// See `RefreshAhead`; 0: no refresh before the age is over.
    public var refreshAhead: Int64 = 0
    /// Refuses a lease that is not recorded, which another caller may get as well.
    public var mustBeRecorded = false

    public init() {}
}

/// The answer to a request for a lease.
public enum LeaseAnswer: Sendable {
    case given(UInt64)
    /// There is a value, or another caller holds the lease.
    case none
    /// It could not be recorded: all cells that it may have are taken.
    case unrecorded

    public var token: UInt64? {
        if case .given(let token) = self { return token }
        return nil
    }
}

extension Engine {
    /// Grants the right to load a key to one caller at a time, of all processes. Returns a token, or nil if another
    /// caller holds the lease. If no cell is free, grants one that is not recorded.
    public func lease(_ bytes: Bytes, milliseconds: Int64) throws(Failure) -> UInt64? {
        let granted = try lease(try key(bytes), milliseconds, mustBeRecorded: false).token
        if granted != nil { count(IndexHead.leases) }
        return granted
    }

    /// Holders whose process has ended do not count. The kernel is asked about them under no lock, so the table is
    /// checked again afterwards.
    @inline(never)
    private func lease(_ key: Key, _ milliseconds: Int64, mustBeRecorded: Bool) throws(Failure) -> LeaseAnswer {
        try ref.checkWritable()
        try check(leaseTime: milliseconds)
        let owner = ref.pointee.owner, leases = Shard(ref, keyHash: key.hash).leases
        var dead: Holder?
        // How many of the key's cells were asked about, because all are taken.
        var asked = 0, isFull = false
        while true {
            var token: UInt64 = 0
            let answer = try withShard(of: key) { shard in
                if let dead { leases.end(dead, key.hash) }
                // (Under the lock: it is a token for fenced sets too.)
                token = shard.drawToken()
                let uptime = owner.uptime
                let holder = Holder(owner, until: uptime &+ milliseconds)
                let answer = leases.take(key.hash, token: token, holder: holder, uptime: uptime)
                if case .full = answer, isFull, !mustBeRecorded {
                    shard.header[ShardHeader.Field.leasesUnrecorded] &+= 1
                }
                return answer
            }
            switch answer {
            case .given: return .given(token)
            case .held(let holder):
                guard holder.isDead(owner) else { return .none }
                dead = holder
            case .full:
                if isFull { return mustBeRecorded ? .unrecorded : .given(token) }
                dead = leases.firstDead(key.hash, from: &asked, owner)
                isFull = dead == nil
            }
        }
    }

    /// Restarts a lease's time. Returns false if it was over, or the lease was never recorded.
    public func renew(_ bytes: Bytes, lease token: UInt64, milliseconds: Int64) throws(Failure) -> Bool {
        let key = try key(bytes)
        try ref.checkWritable()
        try check(leaseTime: milliseconds)
        let owner = ref.pointee.owner
        return try withShard(of: key) { shard in
            let uptime = owner.uptime
            let holder = Holder(owner, until: uptime &+ milliseconds)
            return shard.leases.renew(key.hash, token: token, holder: holder, uptime: uptime)
        }
    }

    /// Runs `body` under the lock of a key's shard. Needs a handle that may write.
    func withShard<R>(of key: Key, _ body: (borrowing ShardWriter) -> R) throws(Failure) -> R {
        try Shard(ref, keyHash: key.hash).locked(body)
    }

    @inline(never)
    private func check(leaseTime milliseconds: Int64) throws(Failure) {
        if milliseconds <= 0 || milliseconds > LeaseTable.longest {
            throw Failure.because(.invalid, "a lease lasts at least a millisecond and at most an hour")
        }
    }

    /// Releases a lease. Returns false if its time was over.
    public func release(_ bytes: Bytes, lease token: UInt64) throws(Failure) -> Bool {
        try release(try key(bytes), lease: token)
    }

    @inline(never)
    @discardableResult
    private func release(_ key: Key, lease token: UInt64) throws(Failure) -> Bool {
        try ref.checkWritable()
        return try withShard(of: key) { $0.leases.release(key.hash, token: token, uptime: ref.pointee.owner.uptime) }
    }

    /// Returns the current value and, if it needs loading, a lease that at most one caller in any process holds.
    ///
    /// Callers that get neither wait for the load, as long as the options say. A caller that gets a stale value never
    /// waits.
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
                // The previous holder may have stored the value meanwhile, or made it fresh again.
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
            // The first read was counted.
            read.insert(.peek)
        }
    }

    private func isDueEarly(_ found: Found, _ options: LeaseOptions) -> Bool {
        guard options.refreshAhead > 0, found.expires != Time48.never else { return false }
        let left = found.expires &- Time48.publicPoint(ref.pointee.clock.now48)
        guard RefreshAhead.mayBeDue(left: left, mean: options.refreshAhead) else { return false }
        var chance: UInt64 = 0
        return shim_sys_random(&chance, 8) == 8
            && RefreshAhead.isDue(left: left, mean: Double(options.refreshAhead), chance: chance)
    }
}
