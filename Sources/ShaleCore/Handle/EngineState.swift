import CShalePlatform

/// The state of a handle. It lives in raw memory: a class costs an atomic retain and release on a shared line for each
/// call.
struct EngineState {
    /// First, so that its address is the state's: threads change it concurrently, by atomics.
    var toldWaits = ToldWaits()
    static func toldWaits(_ state: EngineRef) -> Memory { Memory(state) }
    /// Second, for the same reason.
    var presence: Presence
    static func presence(_ state: EngineRef) -> Memory { Memory(state) + MemoryLayout<ToldWaits>.size }

    var block: Superblock
    var geometry: Geometry
    var secret: UInt64

    var data: Memory
    var index: Memory
    /// In the index: the shards' regions, and the first bucket.
    var regions: Memory
    var buckets: Memory
    var files: CacheFiles
    let owner: Owner

    var isReadOnly: Bool
    var syncsAtClose: Bool
    var compression: Compression
    var maxAge: Int64
    var stale: Int64
    var clock: Clock
    /// The data file's generation when a read-only handle created an index of its own; 0: the index is the shared one.
    var privateGeneration: UInt64

    let waits: WaitOptions

    /// What was fetched before it is needed: 64 bytes for each shard (`Log.Ahead`), after as many for the whole cache.
    let ahead: Memory
    static let coldWindows = -64
    var scratch: ScratchPool
    var dictionaries: DictionaryCache
    #if !hasFeature(Embedded)
    /// Called with each entry that is evicted to make room, under its shard's lock.
    var evictionListener: EvictionListener?
    #endif

    var head: IndexHead { IndexHead(at: index) }

    @inline(never)
    func readOnly() -> Failure {
        Message().adding(files.path).adding(
            ": this handle is read-only; open the cache without SHALE_OPEN_READ_ONLY to write"
        ).failure(.permission)
    }
}

#if !hasFeature(Embedded)
/// Receives evictions; the handle's owner keeps `context` alive.
struct EvictionListener {
    var isListening: @convention(c) (_ context: UnsafeRawPointer) -> Bool
    var note: @convention(c) (_ context: UnsafeRawPointer, _ key: UnsafeRawPointer, _ length: Int) -> Void
    var context: UnsafeRawPointer
}
#endif

typealias EngineRef = UnsafeMutablePointer<EngineState>

extension EngineRef {
    @inline(__always)
    func checkPresence() throws(Failure) {
        let presence = EngineState.presence(self)
        if Presence.isDue(presence) { try Presence.look(presence, pointee.files) }
    }

    /// The same for the most frequent calls, of which only some check. (The clock takes a tenth of a miss.)
    @inline(__always)
    func checkPresence(atCall number: UInt64) throws(Failure) {
        if number & 15 == 0 || Presence.isKnownAway(EngineState.presence(self)) { try checkPresence() }
    }

    @inline(__always)
    func checkWritable() throws(Failure) {
        if pointee.isReadOnly { throw pointee.readOnly() }
        try checkPresence()
    }
}
