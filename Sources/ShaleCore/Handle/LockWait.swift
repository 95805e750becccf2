import CShalePlatform

/// How long the calls of a handle wait for locks, and the listener of long waits.
public struct WaitOptions: Sendable {
    public typealias Listener = @convention(c) (UnsafeMutableRawPointer?, UnsafePointer<CChar>) -> Void

    /// Milliseconds for each lock; 0: without limit.
    public var limit: Int64 = 0
    /// Called on the waiting thread, with a sentence that is valid until it returns.
    public var listener: Listener?
    nonisolated(unsafe) public var context: UnsafeMutableRawPointer?

    public init() {}
}

/// How long to wait for a lock.
enum Patience {
    /// As long as the handle's calls wait.
    case ofCall
    /// For work after a call that has succeeded, which may be left undone: a second at most.
    case short
    /// Not at all.
    case none
}

/// A wait for a lock, from the moment when it is found taken.
struct LockWait {
    enum Lock { case ofShard, ofSetup }

    /// Milliseconds after which a wait is reported.
    static let long: Int64 = 1000

    let lock: Lock
    let path: UnsafePointer<CChar>?
    let options: WaitOptions
    /// Nil for a handle that is not open.
    let told: Memory?
    private let patience: Patience
    private let begin = shim_uptime_ms()
    private var isTold = false

    init(
        _ lock: Lock, _ path: UnsafePointer<CChar>?, _ options: WaitOptions, _ patience: Patience = .ofCall,
        told: Memory? = nil
    ) {
        self.lock = lock
        self.path = path
        self.options = options
        self.patience = patience
        self.told = told
    }

    private var limit: Int64 {
        let limit = options.limit == 0 ? Int64.max : options.limit
        return patience == .ofCall ? limit : min(limit, LockWait.long)
    }
    private var waited: Int64 { shim_uptime_ms() &- begin }

    /// Milliseconds until the limit.
    var left: Int64 { max(1, limit - waited) }
    /// Whether the wait was reported, and may last for ever.
    var isEndless: Bool { isTold && limit == .max }

    /// Reports a long wait, and throws at the limit; called after a while in which the lock was not free.
    @inline(never)
    mutating func goOn(heldBy holder: LockHolder) throws(Failure) {
        let waited = waited, isOver = waited >= limit
        if waited >= LockWait.long, !isTold {
            isTold = true
            tell(holder, waited)
        }
        if !isOver { return }
        if patience == .ofCall {
            shim_set_error_code(0)
            describe(holder, waited, "continue or end it, or raise lock_timeout_ms", shim_error_text())
        }
        throw Failure.lockIsTaken
    }

    private func tell(_ holder: LockHolder, _ waited: Int64) {
        guard let listener = options.listener, told.map({ ToldWaits.isNew(holder.number, $0) }) ?? true else { return }
        // (Small enough for the stack; and the thread's last error stays.)
        withUnsafeTemporaryAllocation(of: CChar.self, capacity: Int(SHIM_ERROR_TEXT)) {
            let text = $0.baseAddress.unsafelyUnwrapped
            describe(holder, waited, "continue or end it", text)
            listener(options.context, text)
        }
    }

    private func describe(
        _ holder: LockHolder, _ waited: Int64, _ advice: StaticString, _ text: UnsafeMutablePointer<CChar>?
    ) {
        let file: StaticString = path == nil ? "" : lock == .ofShard ? "/shale.index" : "/shale.data"
        let name: StaticString = lock == .ofShard ? "a shard's lock" : "the lock of opening and closing"
        shim_describe_wait(
            text, Int(SHIM_ERROR_TEXT), path, file.cString, name.cString, waited, holder.process, advice.cString)
    }
}

/// What is known of a lock's holder.
struct LockHolder {
    /// 0: unknown, -1: in another PID namespace.
    let process: Int64
    /// Differs between holders.
    let number: UInt32

    init(process: Int64) {
        self.process = process
        number = UInt32(truncatingIfNeeded: process)
    }

    /// `word`: of a shard's lock.
    init(_ asker: Owner, _ word: UInt64) {
        number = UInt32(truncatingIfNeeded: word) & UInt32(SHIM_OWNER_MASK)
        process = shim_owner_process(asker, number)
    }
}

/// The holders that were reported to hold locks for long, and when (seconds of uptime): each at most once a minute, as
/// far as the cells suffice. Threads change it concurrently.
struct ToldWaits {
    private static let pause: UInt64 = 60
    private var cells: (UInt64, UInt64, UInt64, UInt64) = (0, 0, 0, 0)

    /// Whether the caller is to report a holder: one of several threads that wait for it is.
    static func isNew(_ holder: UInt32, _ told: Memory) -> Bool {
        let cell = told + Int(holder % 4) * 8, known = shim_load64(cell)
        let now = UInt64(truncatingIfNeeded: shim_uptime_ms() / 1000) &+ pause
        if known >> 32 == holder, now &- known & 0xFFFF_FFFF < pause { return false }
        return shim_cas64(cell, known, UInt64(holder) << 32 | now & 0xFFFF_FFFF)
    }
}

extension Failure {
    /// When it reaches a caller, the thread's error slot has the message already.
    static var lockIsTaken: Failure { Failure(status: .busy, errno: 0) }
}
