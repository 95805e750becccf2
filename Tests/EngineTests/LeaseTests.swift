import CShale
import Foundation
import ShaleTestSupport
import Testing

/// One caller at a time gets the lease of a key. Leases go by the system's uptime: the test's clock only ends ages.
@Suite("Leases")
struct LeaseTests {
    let directory = TemporaryDirectory()
    let clock = TestClock()
    let cache: TestCache
    let options: Options

    init() throws {
        options = Options(capacity: 1 << 20, clock: clock)
        cache = try TestCache(directory.path, options)
    }

    @Test("a miss gives the lease to the first caller, and to no other until it is released")
    func oneAtATime() {
        let first = cache.lease("k")
        #expect(first.lookup.status == .miss && first.lease != 0)
        let second = cache.lease("k")
        #expect(second.lookup.status == .miss && second.lease == 0)
        #expect(cache.lease("other").lease != 0)
        #expect(cache.release("k", first.lease &+ 1) == .miss)
        #expect(cache.lease("k").lease == 0)
        #expect(cache.release("k", first.lease) == .ok)
        #expect(cache.release("k", first.lease) == .miss)
        let third = cache.lease("k")
        #expect(third.lease != 0 && third.lease != first.lease)
    }

    @Test("a fresh value needs no lease, and a held lease prevents no set or read")
    func fresh() {
        let held = cache.lease("k")
        #expect(cache.set("k", "v") == .ok)
        #expect(cache.text("k") == "v")
        let found = cache.lease("k")
        #expect(found.lookup.text == "v" && found.lease == 0)
        #expect(cache.release("k", held.lease) == .ok)
        #expect(cache.lease("k").lease == 0)
    }

    @Test("a lease ends when its time is over")
    func time() {
        let begun = DispatchTime.now().uptimeNanoseconds
        let first = cache.lease("k", leaseTime: 50)
        var second = cache.lease("k")
        while second.lease == 0 {
            usleep(1000)
            second = cache.lease("k")
        }
        #expect(DispatchTime.now().uptimeNanoseconds - begun >= 49_000_000)
        #expect(cache.release("k", first.lease) == .miss)
        #expect(cache.release("k", second.lease) == .ok)
    }

    @Test("another handle sees the lease; the next sole opener does not")
    func handles() throws {
        let other = try TestCache(directory.path, Options(capacity: 1 << 20))
        let held = cache.lease("k")
        #expect(other.lease("k").lease == 0)
        #expect(other.release("k", held.lease) == .ok)
        #expect(other.lease("k").lease != 0)
        #expect(cache.lease("k").lease == 0)
        #expect(other.close() == .ok)
        #expect(cache.close() == .ok)
        let again = try TestCache(directory.path, Options(capacity: 1 << 20))
        #expect(again.lease("k").lease != 0)
    }

    @Test("a caller that accepts stale values gets them at once; another one waits")
    func stale() {
        cache.set("k", "old", .age(10, stale: 1000))
        clock.advance(10)
        let first = cache.lease("k", flags: SHALE_GET_STALE)
        #expect(first.lookup.status == .stale && first.lookup.text == "old" && first.lease != 0)
        let second = cache.lease("k", flags: SHALE_GET_STALE, wait: 60_000)
        #expect(second.lookup.status == .stale && second.lookup.text == "old" && second.lease == 0)
        let third = cache.lease("k", wait: 10)
        #expect(third.lookup.status == .miss && third.lookup.size == 0 && third.lease == 0)
    }

    @Test("a waiting caller gets the value as soon as it is set")
    func waiting() {
        let held = cache.lease("k")
        let findings = Findings(), cache = cache
        concurrently(4) { number in
            if number == 0 {
                usleep(30_000)
                cache.set("k", "v")
                cache.release("k", held.lease)
                return
            }
            let found = cache.lease("k", wait: 60_000)
            if found.lookup.text != "v" || found.lease != 0 { findings.add("\(found)") }
        }
        #expect(findings.isEmpty, "\(findings.all)")
    }

    @Test("a waiting caller takes over if the holder gives up, and gets a miss when the time is over")
    func takeOver() {
        let held = cache.lease("k", leaseTime: 30)
        let next = cache.lease("k", wait: 60_000)
        #expect(next.lookup.status == .miss && next.lease != 0 && next.lease != held.lease)
        let begun = DispatchTime.now().uptimeNanoseconds
        #expect(cache.lease("k", wait: 50).lease == 0)
        #expect(DispatchTime.now().uptimeNanoseconds - begun >= 49_000_000)
    }

    @Test("waiting counts one miss")
    func counters() throws {
        _ = cache.lease("k")
        _ = cache.lease("k", wait: 30)
        let stats = try cache.stats()
        #expect(stats.misses == 2 && stats.hits == 0)
    }

    @Test("a random early reload of a fresh value goes to one caller, and readers never wait")
    func ahead() {
        cache.set("k", "v", .age(1000))
        #expect(cache.lease("k").lease == 0)
        // So much more than the age that it is never chosen; so little that it always is.
        let first = cache.lease("k", ahead: .max / 64)
        #expect(first.lookup.text == "v" && first.lookup.status == .ok && first.lease != 0)
        let second = cache.lease("k", wait: 60_000, ahead: .max / 64)
        #expect(second.lookup.text == "v" && second.lease == 0)
        #expect(cache.release("k", first.lease) == .ok)
        #expect(cache.lease("k", ahead: 1).lease == 0)
        cache.set("always", "v", .age(.max))
        #expect(cache.lease("always", ahead: .max / 64).lease == 0)
    }

    @Test("a caller that gets the lease after the value was set gets the value instead")
    func lateComers() {
        let findings = Findings(), loads = Counter(), cache = cache
        concurrently(8) { _ in
            for key in 0..<200 {
                let found = cache.lease("\(key)", wait: 60_000)
                if found.lease != 0 {
                    loads.increment()
                    cache.set("\(key)", "value")
                    cache.release("\(key)", found.lease)
                } else if found.lookup.text != "value" {
                    findings.add("\(key): \(found)")
                }
            }
        }
        #expect(findings.isEmpty, "\(findings.all)")
        #expect(loads.count == 200)
    }

    @Test("if no cell is free, a lease is granted unrecorded, or not at all")
    func many() throws {
        // (The smallest cache records about 256.)
        let leases = (0..<4000).map { ($0, cache.lease("\($0)", flags: SHALE_LEASE_RECORDED).lease) }
        let given = leases.filter { $0.1 != 0 }
        #expect(given.count >= 256 && given.count < 1000 && Set(given.map(\.1)).count == given.count)
        for (key, _) in given { #expect(cache.lease("\(key)").lease == 0) }
        let refused = cache.lease("one more", flags: SHALE_LEASE_RECORDED)
        #expect(refused.lookup.status == .miss && refused.lease == 0)
        let unrecorded = cache.lease("one more").lease
        #expect(unrecorded != 0 && cache.lease("one more").lease != 0)
        #expect(cache.release("one more", unrecorded) == .miss)
        #expect(try cache.stats().leases_unrecorded == 2)
        for (key, lease) in given { #expect(cache.release("\(key)", lease) == .ok) }
        #expect(cache.lease("one more").lease != 0 && cache.lease("one more").lease == 0)
    }

    @Test("bad arguments are errors, and leave no lease")
    func badArguments() throws {
        for found in [
            cache.lease("k", leaseTime: -1), cache.lease("k", leaseTime: 3_600_001), cache.lease("k", wait: -1),
            cache.lease("k", ahead: -1),
            cache.lease("k", flags: 8), cache.lease(""),
        ] {
            #expect(found.lookup.status == .invalid && found.lease == 0)
            #expect(lastError().contains(" "))
        }
        #expect(cache.release("", 1) == .invalid)
        var value = shale_value()
        value.struct_size = UInt32(MemoryLayout<shale_value>.size)
        #expect(shale_lease(cache.handle, "k", 1, nil, &value, nil) == SHALE_E_INVALID)
        var lease: UInt64 = 7
        #expect(shale_lease(cache.handle, "k", 1, nil, nil, &lease) == SHALE_E_INVALID && lease == 0)
        var small = shale_lease_options(struct_size: 4, flags: 0, lease_ms: 0, wait_ms: 0, refresh_ahead_ms: 0)
        #expect(shale_lease(cache.handle, "k", 1, &small, &value, &lease) == SHALE_E_INVALID)
        #expect(shale_lease(cache.handle, "k", 1, nil, &value, &lease) == SHALE_MISS && lease != 0)
        cache.set("there", "v")
        let reader = try TestCache(directory.path, Options(flags: SHALE_OPEN_READ_ONLY))
        #expect(reader.lease("k").lookup.status == .permission)
        #expect(reader.release("k", lease) == .permission)
    }
}

extension TestCache {
    /// For an hour, so that a lease outlasts its test on any machine.
    func lease(_ key: String, flags: UInt32 = 0, leaseTime: Int64 = 3_600_000, wait: Int64 = 0, ahead: Int64 = 0) -> (
        lookup: Lookup, lease: UInt64
    ) {
        let buffer = ValueBuffer()
        var options = shale_lease_options(
            struct_size: UInt32(MemoryLayout<shale_lease_options>.size), flags: flags, lease_ms: leaseTime,
            wait_ms: wait, refresh_ahead_ms: ahead)
        var lease: UInt64 = .max
        let status = Array(key.utf8).withUnsafeBytes {
            Status(shale_lease(handle, $0.baseAddress, $0.count, &options, &buffer.raw, &lease))
        }
        return (Lookup(status, buffer.raw, info: flags & SHALE_GET_INFO != 0), lease)
    }

    @discardableResult
    func release(_ key: String, _ lease: UInt64) -> Status {
        Array(key.utf8).withUnsafeBytes { Status(shale_release(handle, $0.baseAddress, $0.count, lease)) }
    }
}
