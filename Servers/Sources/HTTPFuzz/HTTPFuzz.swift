import NIOCore
import NIOHTTP1

@testable import ShaleHTTP

/// libFuzzer's entry, see `Tests/Fuzz/run`. An input is the fields of a request and, after an empty line, of a response.
@_cdecl("LLVMFuzzerTestOneInput")
public func testOneInput(_ start: UnsafePointer<UInt8>?, _ size: Int) -> CInt {
    let messages = Array(UnsafeBufferPointer(start: start, count: size))
        .split(separator: 10, omittingEmptySubsequences: false).split(separator: [], maxSplits: 1).map(headers)
    let request = messages.first ?? [:], response = messages.count > 1 ? messages[1] : [:]
    let counter = Steps.Counter()
    Steps.$counter.withValue(counter) { _ = exercise(request, response, .shared) }
    precondition(counter.value <= 20 * size + 1000, "\(counter.value) steps for \(size) bytes")
    check(request, response)
    return 0
}

private func headers(_ lines: ArraySlice<ArraySlice<UInt8>>) -> HTTPHeaders {
    HTTPHeaders(
        lines.map { line in
            let parts = line.split(separator: UInt8(ascii: ":"), maxSplits: 1, omittingEmptySubsequences: false)
            return (
                String(decoding: parts[0], as: UTF8.self),
                String(decoding: parts.count > 1 ? parts[1] : [], as: UTF8.self)
            )
        })
}

private let now: Int64 = 784_111_777_000

/// All that the cache does with both messages. Returns whether the response is stored, and how it is used a second
/// later.
private func exercise(_ request: HTTPHeaders, _ response: HTTPHeaders, _ kind: HTTPCachePolicy.Kind) -> (
    isStored: Bool, HTTPCachePolicy.Evaluation
) {
    let policy = HTTPCachePolicy(kind), head = RequestHead(request)
    let stored = StoredResponse(status: .ok, headers: response, requestedAt: now, receivedAt: now)
    let isConcerned = policy.concerns(.GET, head), mayStore = policy.mayStore(stored, to: head)
    if mayStore {
        let kept = StoredResponse(
            status: .ok, headers: policy.storedFields(stored.headers, stored.control, receivedAt: now),
            requestedAt: now, receivedAt: now)
        let record = StoredRecord(kept, .inline(ByteBuffer()))
        precondition(StoredRecord(record.encoded) == record, "another record is read than was written")
        _ = kept.vary?.selection(from: request)
        _ = kept.isUnmodified(for: request)
    }
    return (isConcerned && mayStore, policy.evaluate(stored, for: head, at: now + 1000))
}

/// Directives on lines of their own count whatever the other lines contain.
private func check(_ request: HTTPHeaders, _ response: HTTPHeaders) {
    func adding(_ directive: String, first: Bool) -> HTTPHeaders {
        let line = [("Cache-Control", directive)]
        return HTTPHeaders(first ? line + Array(response) : Array(response) + line)
    }
    for first in [true, false] {
        for kind in [HTTPCachePolicy.Kind.shared, .private] {
            // An understood status may override no-store.
            if !response["Cache-Control"].contains(where: { $0.lowercased().contains("must-understand") }) {
                precondition(!exercise(request, adding("no-store", first: first), kind).isStored, "no-store is stored")
            }
            precondition(exercise(request, adding("no-cache=;", first: first), kind).1 == .validate, "no-cache is used")
        }
        precondition(!exercise(request, adding("private=\"a, b", first: first), .shared).isStored, "private is shared")
    }
}
