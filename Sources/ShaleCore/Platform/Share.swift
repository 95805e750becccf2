/// How much a call does in one hold of a shard's lock. A call that needs more releases the lock and goes on in another
/// hold, so that a set which has to evict a thousand entries keeps others waiting for a few dozen of them.
///
/// Where it pauses, nothing is half done, and others may have changed anything before it goes on. So the call begins anew
/// (`Shard.write`). What it has to remember is in its `Change`, or in the shard's header, where all calls share the work.
enum Share {
    /// In looks at slots. A hold ends with the step that has used it up.
    static let ofHold = Sizes.share
    /// Bytes that are read in the time of a look.
    static let bytes = 128
    /// Looks for a key, where its neighbourhood is as full as usual.
    static let lookup = 10
}

extension Failure {
    /// Not an error: the call goes on in another hold of the lock.
    static var pause: Failure { Failure(status: .end, errno: 0) }
    var isPause: Bool { status == .end }
}
