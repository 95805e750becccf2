import Foundation
import Testing
@testable import ShaleCore

extension CoreTests {
    @Suite("Eviction: the policy that a store is made with")
    final class EvictionPolicyTests {
        private let directory = FileManager.default.temporaryDirectory.appendingPathComponent(
            "shale-eviction-\(UUID().uuidString)"
        ).path

        deinit { try? FileManager.default.removeItem(atPath: directory) }

        private func open(_ policy: Eviction?) throws(ShaleError) -> Store {
            var options = Store.Options(capacity: 4 << 20)
            options.eviction = policy
            return try Store(at: directory, options: options)
        }

        @Test("it is kept, and another one is refused", arguments: [Eviction.lru, .clock])
        func kept(policy: Eviction) throws {
            for chosen in [policy, nil, policy] {
                let store = try open(chosen)
                #expect(try store.statistics().eviction == policy)
                try store.insert("value", for: "key")
                try store.close()
            }
            let error = #expect(throws: ShaleError.self) { try self.open(policy == .lru ? .clock : .lru) }
            #expect(error?.code == .invalid)
            #expect(error?.message.contains("eviction policy") == true)
            let unchanged = try open(nil)
            #expect(try unchanged.statistics().eviction == policy)
            #expect(try unchanged.value(for: "key") == Array("value".utf8))
        }

        @Test("it is LRU where none is chosen")
        func standard() throws { #expect(try open(nil).statistics().eviction == .lru) }

        @Test("what is used survives a scan of several capacities with the CLOCK one alone")
        func scan() throws {
            for policy in [Eviction.lru, .clock] {
                var options = Store.Options(capacity: 8 << 20)
                options.eviction = policy
                options.compression = .none
                let store = try Store(at: nil, options: options)
                let value = [UInt8](repeating: 7, count: 1000), used = (0..<100).map { "used \($0)" }
                for i in 0..<8000 { try store.insert(value, for: "before \(i)") }
                for key in used { try store.insert(value, for: key) }
                for _ in 0..<3 { for key in used { #expect(try store.value(for: key) == value) } }
                for round in 0..<5 {
                    // More than the store can hold, with keys that are never read again.
                    for i in 0..<8000 { try store.insert(value, for: "\(round) \(i)") }
                    #expect(try store.statistics().entries < 8000)
                    let found = try used.count { try store.value(for: $0) == value }
                    #expect(found == (policy == .clock ? used.count : 0))
                }
            }
        }
    }
}
