#if HTTP
import AsyncHTTPClient
import Logging
import NIOCore
import NIOHTTP1
import ShaleCore

/// Answers one request.
struct Exchange: Sendable {
    let cache: HTTPCache
    let request: HTTPClientRequest
    let head: RequestHead
    /// Normalised by `Keys`, with `host`.
    let url: String
    /// See `Keys.otherHost`.
    let host: String
    let deadline: NIODeadline
    let logger: Logger?

    private var policy: HTTPCachePolicy { cache.policy }
    private var responses: ResponseStore { cache.responses }

    /// A new response for each caller: a body can be read only once.
    static var gatewayTimeout: HTTPClientResponse { HTTPClientResponse(status: .gatewayTimeout) }

    /// Sends a request that the cache does not answer. If it changes the resource, the stored responses of its
    /// URL are invalidated.
    func passThrough() async throws -> HTTPClientResponse {
        let response = try await send(request)
        if policy.invalidates(request.method, response.status) {
            let named = ["Location", "Content-Location"].flatMap { response.headers[$0].prefix(4) }
            let others = named.compactMap { Keys.sameOrigin($0, as: request.url).map { $0 + host } }
            for url in [url] + others { responses.invalidate(url) }
        }
        return response
    }

    func run(isOnlyCached: Bool) async throws -> HTTPClientResponse {
        let arrivedAt = responses.now, end = ContinuousClock.now + .nanoseconds((deadline - .now()).nanoseconds)
        // The key of a load whose body came too soon, or too late, to read it along, and what such callers add to it:
        // they send one request of their own.
        var missed = (key: "", suffix: "")
        var turn: InFlightLoad.Turn?, hasWaited = false
        // A caller that returns or fails without an outcome for others hands its turn on.
        defer { turn?.handOn() }
        while true {
            let (location, found) = lookUp()
            if let found, let answer = answer(from: found, location, since: hasWaited ? arrivedAt : nil) {
                turn?.end()
                return answer
            }
            if isOnlyCached { return Self.gatewayTimeout }
            let key = key(location.key, found), now = responses.now
            let failure = cache.backOff.failure(of: url, at: now)
            if let found, let failure, servesDespiteError(found, isUnreachable: failure.error != nil) {
                if turn == nil, !failure.isPausing { validateInBackground(location) }
                return response(from: found.record)
            }
            if request.method == .HEAD { return try await sendHead(found) }
            let isAlone =
                location.isLost || (failure?.isShared != true && cache.hitForMiss.contains(key, at: now))
            if turn != nil || isAlone {
                if !isAlone, let failure, let error = failure.error, failure.count > 1, failure.isShared,
                    failure.isPausing
                {
                    throw error
                }
                let own = turn
                turn = nil
                return try await fetchResponse(found, location, own)
            }
            if missed.key != key { missed = (key, "") }
            let loadKey = key + missed.suffix
            switch cache.loads.join(loadKey) {
            case .leader(let new):
                turn = new
                await acquireLease(loadKey, for: new.load)
            case .follower(let load):
                hasWaited = true
                switch await load.wait(patience: cache.options.longestWait, deadline: end) {
                case .over: break
                case .turn(let new):
                    turn = new
                    await acquireLease(loadKey, for: new.load)
                case .flowing(let shared):
                    if let answer = answer(from: shared, since: arrivedAt) { return answer }
                    missed.suffix += "\nmissed"
                case .timedOut:
                    if let found, servesDespiteError(found, isUnreachable: true) { return response(from: found.record) }
                    throw HTTPClientError.deadlineExceeded
                }
            }
            try Task.checkCancellation()
        }
    }

    /// Requests with the same key are coalesced. The response to a request with credentials, or with conditions that
    /// the origin evaluates, may be for its caller only: others do not wait for it.
    private func key(_ key: String, _ found: ResponseStore.Found?) -> String {
        var key = key
        if policy.kind == .shared, request.headers.contains(name: "Authorization") { key += "\nauthorized" }
        if found?.response.validators.isEmpty ?? true, Fields.conditions.contains(where: request.headers.contains) {
            key += "\nconditional"
        }
        return key
    }

    // MARK: From the store

    private func lookUp() -> (ResponseStore.Location, ResponseStore.Found?) {
        let location = responses.location(of: url, request.headers)
        return (location, responses.find(location))
    }

    /// Nil if the response needs validation first.
    /// - Parameter arrivedAt: When the request arrived, if it has waited. A response that was requested since then is
    ///   as good as the one to an own request.
    private func answer(
        from found: ResponseStore.Found, _ location: ResponseStore.Location, since arrivedAt: Int64?
    ) -> HTTPClientResponse? {
        switch policy.evaluate(found.response, for: head, at: responses.now) {
        case .validate: guard let arrivedAt, isNew(found.response, since: arrivedAt) else { return nil }
        case .use: break
        case .useAndValidate:
            if cache.backOff.failure(of: url, at: responses.now)?.isPausing != true { validateInBackground(location) }
        }
        return response(from: found.record)
    }

    /// Whether the response answers other requests without validation.
    private func isShareable(_ response: StoredResponse) -> Bool {
        policy.evaluate(response, for: RequestHead([:]), at: responses.now) == .use
    }

    private func isNew(_ response: StoredResponse, since arrivedAt: Int64) -> Bool {
        response.requestedAt >= arrivedAt && isShareable(response)
    }

    /// From a response that another caller receives. Nil if it is not this request's variant, if its URL has been
    /// invalidated, or if its beginning is lost.
    private func answer(from shared: SharedResponse, since arrivedAt: Int64) -> HTTPClientResponse? {
        guard
            policy.evaluate(shared.head, for: head, at: responses.now) == .use || isNew(shared.head, since: arrivedAt),
            responses.location(of: url, request.headers).candidates.contains(where: {
                $0.utf8.elementsEqual(shared.place.utf8)
            }), let body = shared.reader()
        else { return nil }
        return response(with: shared.head, body: .stream(body))
    }

    private func response(from record: StoredRecord) -> HTTPClientResponse {
        switch record.body {
        case .inline(let bytes):
            response(with: record.response, body: bytes.readableBytes == 0 ? .init() : .bytes(bytes))
        case .chunks(let id, let count):
            response(
                with: record.response, body: .stream(StoredChunks(responses: responses, id: id, count: count)))
        }
    }

    private func response(with stored: StoredResponse, body: HTTPClientResponse.Body) -> HTTPClientResponse {
        var headers = stored.headers
        headers.replaceOrAdd(name: "Age", value: String(stored.age(at: responses.now) / 1000))
        if stored.isUnmodified(for: request.headers) {
            for name in Fields.ofTheBody.union(["content-language", "content-type"]) { headers.remove(name: name) }
            return HTTPClientResponse(status: .notModified, headers: headers)
        }
        return HTTPClientResponse(
            status: stored.status, headers: headers, body: request.method == .HEAD ? .init() : body)
    }

    // MARK: From the server

    private enum Loaded {
        case stored(StoredRecord)
        case passing(HTTPClientResponse)
    }

    private func fetchResponse(
        _ found: ResponseStore.Found?, _ location: ResponseStore.Location, _ turn: InFlightLoad.Turn?
    ) async throws -> HTTPClientResponse {
        switch try await fetch(found, location, turn) {
        case .stored(let record): response(from: record)
        case .passing(let response): response
        }
    }

    /// Ends the turn once the response is stored, or once it is certain that it is not. Hands it on after a failure.
    private func fetch(
        _ found: ResponseStore.Found?, _ location: ResponseStore.Location, _ turn: InFlightLoad.Turn?
    ) async throws -> Loaded {
        var turn = turn
        defer { turn?.handOn() }
        let key = key(location.key, found), validators = found?.response.validators ?? [:]
        var request = request
        if !validators.isEmpty {
            for name in Fields.conditions { request.headers.remove(name: name) }
            request.headers.add(contentsOf: validators)
        }
        let fence = responses.fence(url), requestedAt = responses.now
        let response: HTTPClientResponse
        switch try await send(request, orServe: found, requestedAt: requestedAt) {
        case .stored(let record): return .stored(record)
        case .passing(let new): response = new
        }
        if let found, response.status == .notModified, !validators.isEmpty {
            if found.response.isValidated(by: response.headers) {
                let record = renew(found, by: response, requestedAt: requestedAt)
                noteShareable(record.response, key)
                turn?.end()
                return .stored(record)
            }
            // The 304 is for another response.
            let own = turn
            turn = nil
            return try await fetch(nil, location, own)
        }
        let received = StoredResponse(
            status: response.status, headers: response.headers, requestedAt: requestedAt, receivedAt: responses.now)
        let length = response.headers.first(name: "Content-Length").flatMap { Int($0) }
        guard response.history.count <= 1, length ?? 0 <= cache.options.maxBodySize,
            policy.mayStore(received, to: head)
        else {
            // The stored response is out of date.
            if let found, response.status.code < 500 { responses.remove(found) }
            cache.hitForMiss.insert(key, at: responses.now)
            turn?.end()
            return .passing(response)
        }
        let stored = StoredResponse(
            status: received.status,
            headers: policy.storedFields(received.headers, received.control, receivedAt: received.receivedAt),
            requestedAt: requestedAt, receivedAt: received.receivedAt)
        let place: String
        // The URL may get a selector, by which followers find out whether this is their variant. Those who already know
        // it, in any process, find this load.
        let answer = responses.place(for: stored.vary, to: request.headers, at: location, since: fence) { [turn] key in
            guard let turn else { return }
            let key = self.key(key, nil)
            cache.loads.add(turn.load, key)
            _ = tryLease(key, for: turn.load)
        }
        switch answer {
        case .key(let key): place = key
        case let other:
            if case .lost = other { cache.hitForMiss.insert(key, at: responses.now) }
            turn?.end()
            return .passing(response)
        }
        let (newLocation, newFound) = turn == nil ? (location, found) : lookUp()
        let newKey = self.key(newLocation.key, newFound)
        if !noteShareable(stored, newKey) {
            turn?.end()
            turn = nil
        } else if let turn, newKey != key {
            cache.loads.add(turn.load, newKey)
            turn.load.sendAway()
        }
        let own = turn
        turn = nil
        return .passing(record(response, as: stored, place, length, newKey, own))
    }

    /// Stores a response while the caller, and others, read its body.
    private func record(
        _ response: HTTPClientResponse, as stored: StoredResponse, _ place: String, _ length: Int?, _ key: String,
        _ turn: InFlightLoad.Turn?
    ) -> HTTPClientResponse {
        // The client may have decompressed the body: then it is longer than Content-Length.
        let expected = response.headers.contains(name: "Content-Encoding") ? nil : length
        let shared = SharedResponse(
            stored, place, responses, limit: cache.options.maxBodySize, expected: expected,
            patience: cache.options.longestWait,
            flows: { turn?.load.flow($0) },
            ends: { [responses, cache] outcome in
                switch outcome {
                case .stored(let body) where responses.store(StoredRecord(stored, body), place): break
                case .stored, .unstorable: cache.hitForMiss.insert(key, at: responses.now)
                case .broken: turn?.handOn()
                }
                // No effect on a turn that was handed on.
                turn?.end()
            })
        // A short body is stored whether or not this caller reads it.
        let isShort = response.status == .noContent || length ?? .max <= ResponseStore.chunkSize
        var response = response
        response.body = .stream(shared.receive(response.body, unreadUntil: isShort ? deadline : nil))
        return response
    }

    /// Requests for a response that each of them has to validate do not wait for each other.
    @discardableResult
    private func noteShareable(_ response: StoredResponse, _ key: String) -> Bool {
        let isShareable = isShareable(response)
        if isShareable { cache.hitForMiss.remove(key) } else { cache.hitForMiss.insert(key, at: responses.now) }
        return isShareable
    }

    /// Errors that this request alone explains, as an invalid field, say nothing about the server.
    private func noteFailure(_ error: any Error, requestedAt: Int64) {
        let now = responses.now
        if let error = error as? HTTPClientError {
            let isTimeLimit = error == .deadlineExceeded
            let ofTheServer: [HTTPClientError] = [
                .connectTimeout, .readTimeout, .writeTimeout, .remoteConnectionClosed, .tlsHandshakeTimeout,
            ]
            guard isTimeLimit || ofTheServer.contains(error) else { return }
            cache.backOff.failed(url, .init(error, isShared: !isTimeLimit), requestedAt: requestedAt, at: now)
        } else if !(error is CancellationError) {
            cache.backOff.failed(url, .init(error, isShared: true), requestedAt: requestedAt, at: now)
        }
    }

    /// Updates the stored response with the fields of a 304, or of a response to HEAD that describes it.
    private func renew(
        _ found: ResponseStore.Found, by response: HTTPClientResponse, requestedAt: Int64
    ) -> StoredRecord {
        let vary = found.response.vary
        var found = found
        let now = responses.now
        found.record.response = found.response.updated(
            with: policy.storedFields(response.headers, CacheControl(response.headers), receivedAt: now),
            requestedAt: requestedAt, receivedAt: now)
        if policy.mayStore(found.response, to: head), found.response.vary == vary {
            responses.replaceHead(of: found)
        } else {
            responses.remove(found)
        }
        return found.record
    }

    private func sendHead(_ found: ResponseStore.Found?) async throws -> HTTPClientResponse {
        let requestedAt = responses.now
        let response: HTTPClientResponse
        switch try await send(request, orServe: found, requestedAt: requestedAt) {
        case .stored(let record): return self.response(from: record)
        case .passing(let new): response = new
        }
        if let found, response.status == .ok {
            if found.response.isDescribed(by: response.headers) {
                _ = renew(found, by: response, requestedAt: requestedAt)
            } else {
                responses.remove(found)
            }
        }
        return response
    }

    private func servesDespiteError(_ found: ResponseStore.Found, isUnreachable: Bool) -> Bool {
        policy.servesDespiteError(
            found.response, for: head, at: responses.now, isUnreachable: isUnreachable)
    }

    /// The stored response if the server fails and that is served instead.
    private func send(
        _ request: HTTPClientRequest, orServe found: ResponseStore.Found?, requestedAt: Int64
    ) async throws -> Loaded {
        let response: HTTPClientResponse
        do { response = try await send(request) } catch {
            if Task.isCancelled { throw error }
            noteFailure(error, requestedAt: requestedAt)
            guard let found, servesDespiteError(found, isUnreachable: true) else { throw error }
            return .stored(found.record)
        }
        guard [500, 502, 503, 504].contains(response.status.code) else {
            cache.backOff.succeeded(url)
            return .passing(response)
        }
        cache.backOff.failed(url, .init(), requestedAt: requestedAt, at: responses.now)
        if let found, servesDespiteError(found, isUnreachable: false) { return .stored(found.record) }
        return .passing(response)
    }

    private func send(_ request: HTTPClientRequest) async throws -> HTTPClientResponse {
        try await cache.transport.execute(request, deadline: deadline, logger: logger)
    }

    // MARK: Coalescing

    /// Waits until no other process loads this key, at most for the longest wait or until the deadline.
    private func acquireLease(_ key: String, for load: InFlightLoad) async {
        if load.isLeased { return }
        let left = Duration.nanoseconds(max(0, (deadline - .now()).nanoseconds))
        let end = ContinuousClock.now + min(cache.options.longestWait, left)
        while !tryLease(key, for: load), .now < end, !Task.isCancelled {
            try? await Task.sleep(for: .milliseconds(20))
        }
        if !Task.isCancelled { load.isLeased = true }
    }

    /// False if another process holds the lease. True also if the store fails: the request is sent without a lease.
    private func tryLease(_ key: String, for load: InFlightLoad) -> Bool {
        switch responses.lease(key, for: cache.options.leaseTime) {
        case .held: return false
        case .failed: return true
        case .given(let lease):
            load.isLeased = true
            load.atEnd { [responses] in responses.release(lease, of: key) }
            return true
        }
    }

    /// Does nothing if a validation is already in flight. An error leaves the stored response unchanged.
    private func validateInBackground(_ location: ResponseStore.Location) {
        guard case .leader(let turn) = cache.loads.join(location.key) else { return }
        guard tryLease(location.key, for: turn.load) else { return turn.handOn() }
        var request = request
        request.method = .GET
        for name in Fields.conditions { request.headers.remove(name: name) }
        let exchange = Exchange(
            cache: cache, request: request, head: RequestHead(request.headers), url: url, host: host,
            deadline: .now() + cache.options.validationTimeout, logger: logger)
        let validation = Task {
            let (location, found) = exchange.lookUp()
            if case .passing(let response)? = try? await exchange.fetch(found, location, turn) {
                do { for try await _ in response.body {} } catch {}
            }
        }
        // The client's deadline is over once the head has arrived.
        Task {
            try? await Task.sleep(for: .nanoseconds((exchange.deadline - .now()).nanoseconds))
            validation.cancel()
        }
    }
}
#endif
