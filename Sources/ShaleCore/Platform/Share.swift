/// The work of a call in one hold of a shard's lock. A call that needs more releases the lock and continues in another
/// hold, so that a set that evicts a thousand entries delays others by a few dozen. At a pause nothing is half done,
/// and others may change anything. So the call starts again (`Shard.write`); its state is in its `Change`, or in the
/// shard's header, where all calls share the work.
enum Share {
    /// Slots examined. A hold ends with the step that uses them up.
    static let ofHold = Sizes.share
    /// Bytes read in the time of examining one slot.
    static let bytes = 128
    /// Slots examined to find a key, at the usual load of its neighbourhood.
    static let lookup = 10
}

extension Failure {
    /// Not an error: the call continues in another hold of the lock.
    static var pause: Failure { Failure(status: .end, errno: 0) }
    var isPause: Bool { status == .end && errno == 0 }
}
