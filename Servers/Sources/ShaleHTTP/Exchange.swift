import AsyncHTTPClient
import Logging
import NIOCore
import NIOHTTP1
import ShaleCore

/// A request and how it is answered.
struct Exchange: Sendable {
    let cache: HTTPCache
    let request: HTTPClientRequest
    /// Normalised.
    let url: String
    let deadline: NIODeadline
    let logger: Logger?

    private var policy: HTTPCachePolicy { cache.policy }
    private var responses: ResponseStore { cache.responses }

    /// A new one each time: a body is read once.
    static var gatewayTimeout: HTTPClientResponse { HTTPClientResponse(status: .gatewayTimeout) }

    /// For what the cache has no part in. A change at the server is one here.
    func passThrough() async throws -> HTTPClientResponse {
        let response = try await send(request)
        if policy.invalidates(request.method, response.status) {
            let named = ["Location", "Content-Location"].flatMap { response.headers[$0] }
            for url in [url] + named.compactMap({ Keys.sameOrigin($0, as: url) }) { responses.invalidate(url) }
        }
        return response
    }

    func run(isOnlyCached: Bool) async throws -> HTTPClientResponse {
        // A wait for each key at most: where a response turns out to vary, the second is for its variant.
        var waited: Set<String> = []
        while true {
            let (place, found) = look()
            if let found, let answer = answer(from: found, place) { return answer }
            if isOnlyCached { return Self.gatewayTimeout }
            if request.method == .HEAD { return try await head(found, place) }
            guard waited.insert(place.key).inserted else { return try await load(found, place, turn: nil) }
            switch cache.turns.take(place.key) {
            case .waiting(let turn):
                await turn.wait(atMost: patience)
                try Task.checkCancellation()
            case .first(let turn):
                await lease(place.key, for: turn)
                // Whoever had the turn before may have stored it since.
                let (place, found) = look()
                if let found, let answer = answer(from: found, place) {
                    turn.end()
                    return answer
                }
                return try await load(found, place, turn: turn)
            }
        }
    }

    // MARK: From the store

    private func look() -> (ResponseStore.Place, ResponseStore.Found?) {
        let place = responses.place(of: url, request.headers)
        return (place, responses.find(place))
    }

    /// Nil: it has to be validated first.
    private func answer(from found: ResponseStore.Found, _ place: ResponseStore.Place) -> HTTPClientResponse? {
        switch policy.verdict(on: found.response, for: request.headers, at: responses.now) {
        case .validate: return nil
        case .use: break
        case .useAndValidate: validateLater(place)
        }
        return response(from: found.record)
    }

    private func response(from record: StoredRecord) -> HTTPClientResponse {
        let stored = record.response
        var headers = stored.headers
        headers.replaceOrAdd(name: "Age", value: String(stored.age(at: responses.now) / 1000))
        if stored.isUnmodified(for: request.headers) {
            for name in Fields.ofTheBody.union(["content-language", "content-type"]) { headers.remove(name: name) }
            return HTTPClientResponse(status: .notModified, headers: headers)
        }
        let body: HTTPClientResponse.Body =
            switch record.body {
            case _ where request.method == .HEAD: .init()
            case .inline(let bytes): bytes.readableBytes == 0 ? .init() : .bytes(bytes)
            case .chunks(let id, let count): .stream(StoredChunks(responses: responses, id: id, count: count))
            }
        return HTTPClientResponse(status: stored.status, headers: headers, body: body)
    }

    // MARK: From the server

    private enum Loaded {
        case stored(StoredRecord)
        case passing(HTTPClientResponse)
    }

    private func load(_ found: ResponseStore.Found?, _ place: ResponseStore.Place, turn: Turn?) async throws
        -> HTTPClientResponse
    {
        switch try await fetch(found, place, turn: turn) {
        case .stored(let record): response(from: record)
        case .passing(let response): response
        }
    }

    /// Ends the turn when what comes is stored, or is known not to be.
    private func fetch(_ found: ResponseStore.Found?, _ place: ResponseStore.Place, turn: Turn?) async throws -> Loaded
    {
        var turn = turn
        defer { turn?.end() }
        let validators = found?.response.validators ?? [:]
        var request = request
        if !validators.isEmpty {
            for name in Fields.conditions { request.headers.remove(name: name) }
            request.headers.add(contentsOf: validators)
        }
        let fence = responses.fence(url), requestedAt = responses.now
        let response: HTTPClientResponse
        do { response = try await send(request) } catch {
            guard let found, !Task.isCancelled, servesDespiteError(found, isUnreachable: true) else { throw error }
            return .stored(found.record)
        }
        if let found {
            if [500, 502, 503, 504].contains(response.status.code), servesDespiteError(found, isUnreachable: false) {
                return .stored(found.record)
            }
            if response.status == .notModified, !validators.isEmpty {
                if found.response.isValidated(by: response.headers) {
                    return .stored(renew(found, place, by: response, requestedAt: requestedAt))
                }
                // It is about something else than was asked for.
                defer { turn = nil }
                return try await fetch(nil, place, turn: turn)
            }
        }
        let stored = StoredResponse(
            status: response.status, headers: response.headers, requestedAt: requestedAt, receivedAt: responses.now)
        let length = response.headers.first(name: "Content-Length").flatMap { Int($0) }
        guard let fence, response.history.count <= 1, length ?? 0 <= cache.options.maxBodySize,
            policy.mayStore(stored, to: request.headers)
        else {
            // The server has something else by now.
            if let found, response.status.code < 500 { responses.remove(found) }
            return .passing(response)
        }
        defer { turn = nil }
        return .passing(try await keep(response, as: stored, place, length, since: fence, turn))
    }

    /// Stores a response while its body passes.
    private func keep(
        _ response: HTTPClientResponse, as stored: StoredResponse, _ place: ResponseStore.Place, _ length: Int?,
        since fence: Condition, _ turn: Turn?
    ) async throws -> HTTPClientResponse {
        var stored = stored
        stored.headers = policy.storedFields(stored.headers, receivedAt: stored.receivedAt)
        // A client that decompresses gives more bytes than were announced.
        let expected = response.headers.contains(name: "Content-Encoding") ? nil : length
        let filling = BodyFilling(responses, limit: cache.options.maxBodySize, expected: expected) {
            [responses, request, stored] body in
            if let body { responses.store(StoredRecord(stored, body), request.headers, at: place, since: fence) }
            turn?.end()
        }
        var response = response
        response.body = filling.passing(response.body)
        // What is short is read at once, so that nobody waits for a caller who takes long.
        if response.status == .noContent || length ?? .max <= ResponseStore.chunkSize {
            let bytes = try await response.body.collect(upTo: cache.options.maxBodySize)
            response.body = bytes.readableBytes == 0 ? .init() : .bytes(bytes)
        }
        return response
    }

    /// With the fields of a response that says that it is still what the server has.
    private func renew(
        _ found: ResponseStore.Found, _ place: ResponseStore.Place, by response: HTTPClientResponse, requestedAt: Int64
    ) -> StoredRecord {
        var found = found
        let now = responses.now
        found.record.response = found.response.updated(
            with: policy.storedFields(response.headers, receivedAt: now), requestedAt: requestedAt, receivedAt: now)
        if policy.mayStore(found.response, to: request.headers),
            Vary(found.response.headers) == place.selector?.vary
        {
            responses.replaceHead(of: found)
        } else {
            responses.remove(found)
        }
        return found.record
    }

    private func head(_ found: ResponseStore.Found?, _ place: ResponseStore.Place) async throws -> HTTPClientResponse {
        let requestedAt = responses.now
        let response = try await send(request)
        if let found, response.status == .ok {
            if found.response.isDescribed(by: response.headers) {
                _ = renew(found, place, by: response, requestedAt: requestedAt)
            } else {
                responses.remove(found)
            }
        }
        return response
    }

    private func servesDespiteError(_ found: ResponseStore.Found, isUnreachable: Bool) -> Bool {
        policy.servesDespiteError(
            found.response, for: request.headers, at: responses.now, isUnreachable: isUnreachable)
    }

    private func send(_ request: HTTPClientRequest) async throws -> HTTPClientResponse {
        try await cache.transport.execute(request, deadline: deadline, logger: logger)
    }

    // MARK: Turns

    /// No longer than the request may take.
    private var patience: Duration {
        min(cache.options.longestWait, .nanoseconds(max(0, (deadline - .now()).nanoseconds)))
    }

    /// Waits until no other process loads the same, or for the longest wait.
    private func lease(_ key: String, for turn: Turn) async {
        let end = ContinuousClock.now + patience
        while !leased(key, for: turn), .now < end, !Task.isCancelled { try? await Task.sleep(for: .milliseconds(20)) }
    }

    /// False: another process loads it. A store that fails is no reason to wait.
    private func leased(_ key: String, for turn: Turn) -> Bool {
        switch responses.lease(key, for: .seconds(30)) {
        case .taken: return false
        case .failed: return true
        case .given(let lease):
            turn.atEnd { [responses] in responses.release(lease, of: key) }
            return true
        }
    }

    /// Unless somebody does so already. Errors leave what is stored as it is.
    private func validateLater(_ place: ResponseStore.Place) {
        guard case .first(let turn) = cache.turns.take(place.key) else { return }
        guard leased(place.key, for: turn) else { return turn.end() }
        var request = request
        request.method = .GET
        for name in Fields.conditions { request.headers.remove(name: name) }
        let exchange = Exchange(
            cache: cache, request: request, url: url, deadline: .now() + cache.options.validationTimeout, logger: logger
        )
        Task {
            let (place, found) = exchange.look()
            if case .passing(let response)? = try? await exchange.fetch(found, place, turn: turn) {
                do { for try await _ in response.body {} } catch {}
            }
        }
    }
}
