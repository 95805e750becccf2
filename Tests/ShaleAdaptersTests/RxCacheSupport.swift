import Foundation
import ShaleAdapters
import Synchronization

enum RxCacheSupport {
    /// A directory that goes with its last reference.
    final class Directory: Sendable {
        let url = FileManager.default.temporaryDirectory.appendingPathComponent("shale-rxcache-\(UUID().uuidString)")
        deinit { try? FileManager.default.removeItem(at: url) }

        /// The size of its files on disk.
        var bytes: Int {
            get throws {
                try FileManager.default.contentsOfDirectory(atPath: url.path).reduce(0) { sum, name in
                    var status = stat()
                    return stat("\(url.path)/\(name)", &status) == 0 ? sum + Int(status.st_blocks) * 512 : sum
                }
            }
        }
    }

    /// A clock that moves when told to.
    final class Clock: Sendable {
        private let seconds = Mutex(1_800_000_000.0)
        func advance(_ by: Double) { seconds.withLock { $0 += by } }
        var now: @Sendable () -> Date { { Date(timeIntervalSince1970: self.seconds.withLock { $0 }) } }
    }

    struct Mock: Codable, Sendable, Equatable {
        var id: Int
        var active = false
    }

    struct Offline: Error {}

    /// A configurable provider.
    struct Provider: CacheProvider {
        var providerKey = "getMocks"
        var lifeCache: LifeCache?
        var dynamicKey: DynamicKey?
        var dynamicKeyGroup: DynamicKeyGroup?
        var evict: EvictProvider?
        var isExpirable = true
        func expirable() -> Bool { isExpirable }

        init(
            _ providerKey: String = "getMocks", seconds: Double? = nil, key: String? = nil,
            group: (String, String)? = nil,
            evict: EvictProvider? = nil, isExpirable: Bool = true
        ) {
            self.providerKey = providerKey
            lifeCache = seconds.map { LifeCache(duration: $0, timeUnit: .seconds) }
            dynamicKey = key.map(DynamicKey.init(dynamicKey:))
            dynamicKeyGroup = group.map { DynamicKeyGroup(dynamicKey: $0, group: $1) }
            self.evict = evict
            self.isExpirable = isExpirable
        }

        func evicting(_ evict: EvictProvider) -> Provider {
            var provider = self
            provider.evict = evict
            return provider
        }
    }

    /// An origin that counts its calls, and may be unavailable.
    final class Origin: Sendable {
        private struct State {
            var calls = 0
            var mocks: [Mock]?
        }
        private let state: Mutex<State>

        /// Nil: unavailable.
        init(_ ids: [Int]?) { state = Mutex(State(mocks: ids?.map { Mock(id: $0) })) }

        var calls: Int { state.withLock { $0.calls } }

        @Sendable func mocks() async throws -> [Mock] {
            try state.withLock { state in
                state.calls += 1
                guard let mocks = state.mocks else { throw Offline() }
                return mocks
            }
        }
    }

    /// Text that hardly compresses, determined by the seed.
    static func noise(_ bytes: Int, seed: Int) -> String {
        var state = UInt64(seed) &* 0x9E37_79B9_7F4A_7C15 | 1
        var text = ""
        while text.utf8.count < bytes {
            state ^= state << 13
            state ^= state >> 7
            state ^= state << 17
            text += String(state, radix: 36)
        }
        return text
    }
}

extension ProviderCache {
    typealias Support = RxCacheSupport

    /// Stores a record, replacing an existing one.
    func put(_ ids: [Int], _ provider: Support.Provider) async throws {
        try await ProviderCache.Actions<Support.Mock>.with(provider, in: self).evictAll().addAllLast(
            ids.map { Support.Mock(id: $0) }
        )
        .result()
    }

    /// The identifiers in a record; nil if there is none that may be served.
    func ids(_ provider: Support.Provider) async -> [Int]? {
        try? await cache(Support.Origin(nil).mocks, provider: provider).map(\.id)
    }
}
