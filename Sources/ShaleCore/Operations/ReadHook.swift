#if DEBUG && !hasFeature(Embedded)
import CShalePlatform

/// Points at which tests interrupt a read. A hook runs once, in the thread that set it, and not within itself.
enum ReadHook {
    nonisolated(unsafe) private static var thread: UInt = 0
    nonisolated(unsafe) private static var probe: (() -> Void)?
    nonisolated(unsafe) private static var validation: (() -> Void)?
    nonisolated(unsafe) private static var parts: (() -> Void)?
    nonisolated(unsafe) private static var key: (() -> Void)?

    /// Runs after a reader has chosen its home bucket, before it probes.
    static func beforeProbe(_ hook: (() -> Void)?) {
        thread = shim_thread_number()
        probe = hook
    }
    /// Runs after a reader has its bytes, before it checks whether they were recycled meanwhile.
    static func beforeValidation(_ hook: (() -> Void)?) {
        thread = shim_thread_number()
        validation = hook
    }

    /// Runs after a reader has the manifest of a large value, before it looks for the parts.
    static func beforeParts(_ hook: (() -> Void)?) {
        thread = shim_thread_number()
        parts = hook
    }

    /// Runs after a cursor has chosen an entry, before it reads its key.
    static func beforeKey(_ hook: (() -> Void)?) {
        thread = shim_thread_number()
        key = hook
    }

    static func runBeforeProbe() {
        guard thread == shim_thread_number(), let hook = probe else { return }
        probe = nil
        hook()
    }
    static func runBeforeValidation() {
        guard thread == shim_thread_number(), let hook = validation else { return }
        validation = nil
        hook()
    }
    static func runBeforeKey() {
        guard thread == shim_thread_number(), let hook = key else { return }
        key = nil
        hook()
    }
    static func runBeforeParts() {
        guard thread == shim_thread_number(), let hook = parts else { return }
        parts = nil
        hook()
    }
}
#endif
