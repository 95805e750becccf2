"""One load: the value before it, and the result of its success or failure."""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NoReturn

from .._data.options import Tag, set_options, tag_list
from .._data.records import entry_of
from .._data.values import MISSING, join_meta
from .._native import abi, log
from .._native.errors import (
    DeadlockError,
    FullError,
    InvalidError,
    LoadTimeoutError,
    OutOfMemoryError,
    PermissionDeniedError,
    SystemCallError,
    TooLargeError,
    check,
)
from .._native.handles import CallContext
from .._native.units import NEVER, Seconds, age_ms
from .._store import heartbeat, lookups
from .._store.leases import LookupResult
from . import failures, in_flight
from .call_chain import CallChain
from .in_flight import Outcome
from .results import Loaded, LoadResult, Missing, NotModified

if TYPE_CHECKING:
    from .._data.records import Entry
    from .._store.leases import HeldLease
    from .._store.store import Store
    from .._typing import Key
    from .in_flight import LoadKey, Waiter
    from .policy import Policy

# Errors of storing a value that is returned all the same.
_UNSTORED: Final = (
    FullError,
    OutOfMemoryError,
    PermissionDeniedError,
    SystemCallError,
    TooLargeError,
)

# Errors of encoding a value that has no stored form. (pickle raises the last two, and PickleError.)
_NO_STORED_FORM: Final = (TypeError, ValueError, ArithmeticError, RecursionError, AttributeError)


class Load:
    """A load that its caller has to do, in ``with load:``, and then ends, in any case."""

    __slots__ = (
        "__weakref__",
        "_began",
        "_cache",
        "_claims",
        "_deadline",
        "_error",
        "_has_begun",
        "_has_ended",
        "_key",
        "_lease",
        "_old",
        "_policy",
        "_soft",
        "_token",
        "chain",
        "expires",
        "found",
        "left",
        "load_key",
        "loop",
        "runs",
        "thread",
    )

    def __init__(
        self,
        cache: Store[Any, Any],
        key: Key,
        load_key: LoadKey,
        policy: Policy,
        deadline: float,
        lease: HeldLease | None,
        token: int,
        found: LoadResult | None,
        old: LookupResult | None,
    ) -> None:
        self._cache = cache
        self._key = key
        self.load_key = load_key
        self._policy = policy
        self._deadline = deadline
        self._lease = lease
        self._token = token
        self.chain: CallChain | None = None
        self._began = time.monotonic()
        self._has_begun = self._has_ended = False
        self._error: BaseException | None = None
        self._soft = NEVER if found is None else time.monotonic() + policy.soft_timeout
        self.expires = NEVER
        self.found = found
        """A value to serve instead: stale, or fresh if the load runs ahead of its expiry."""
        self._old = old
        self._claims = [None]
        self.thread = threading.get_ident()
        self.loop: Any = None
        self.runs = False
        """Whether its caller, or a thread or task of its own, will end it."""
        self.left = False
        """Whether the caller went on without the result."""

    @property
    def previous(self) -> Entry | None:
        """The old entry, for a loader that checks whether it was modified."""
        old, found = self._old, self.found
        if old is None or old.details is None or found is None or found.missing:
            return None
        return entry_of(found.value, old.meta, old.details)

    # Begin and end

    def __enter__(self) -> Load:
        try:
            self._has_begun = True
            self.thread = threading.get_ident()
            asyncio = sys.modules.get("asyncio")
            self.loop = None if asyncio is None else asyncio._get_running_loop()
            self.chain = CallChain(self.load_key, self._key)
            self.chain.begin()
            if self._lease is not None:
                self._lease.loop = self.loop
                heartbeat.begin(self._lease)
            self._cache._counts.add(loads=1)
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(
        self, _kind: object, error: BaseException | None = None, _trace: object = None
    ) -> None:
        self._error = self._error or error
        self.end()

    def end(self) -> None:
        """Ends it, also if it never began. May be called again: a signal handler's exception may
        have cut off the first call.

        Its waiters then find the lease free.
        """
        if self._has_ended:
            return
        seconds = time.monotonic() - self._began
        self.release()
        if self.chain is not None:
            self.chain.end()
        in_flight.end(self)
        if self._has_begun:
            self._has_begun = False
            if self._error is not None:
                self._cache._counts.add(failed=1)
            self._cache._emit("loaded", self._key, seconds=seconds, error=self._error)
        # Its traceback references this load.
        self._error = None
        self._has_ended = True

    def extend(self, seconds: float) -> None:
        """Restarts the time of the lease, which is renewed after this time from now on."""
        if self._lease is not None:
            self._lease.milliseconds = int(seconds * 1000)
            self._lease.renew()

    def release(self) -> None:
        """Releases the lease. May be called again."""
        if self._lease is not None:
            heartbeat.end(self._lease)
            self._lease.release()

    def claim(self) -> bool:
        """Whether this is the first such call: a thread runs the load, or its caller ends it."""
        try:
            self._claims.pop()
        except IndexError:
            return False
        return True

    def begin(self) -> None:
        """To be called before the loader."""
        self._cache._emit("load", self._key)

    # Results

    def succeeded(self, answer: Any) -> LoadResult:
        """Stores the loader's answer, if that is possible, and returns the result."""
        self._end_pause()
        try:
            if isinstance(answer, NotModified):
                return self._renewed(answer)
            if isinstance(answer, Missing):
                age = self._policy.missing_age if answer.max_age is None else answer.max_age
                self._set(MISSING, b"", age, answer.tags)
                return LoadResult(None, "loaded", missing=True)
            if not isinstance(answer, Loaded):
                answer = Loaded(answer)
            age = self._policy.max_age if answer.max_age is None else answer.max_age
            codec = self._policy.codec or self._cache._codec
            try:
                meta, data = codec.encode(answer.value)
            except Exception as error:
                if not _has_no_stored_form(error):
                    raise
                outcome = Outcome(result=LoadResult(answer.value, "waited"))
                self._not_stored(error, outcome, answer.tags)
            else:
                self._set(join_meta(meta, answer.meta), data, age, answer.tags)
            return LoadResult(answer.value, "loaded")
        except Exception as error:
            # A wrong answer, and one that no serializer takes, fail as the loader does; a closed
            # cache does not.
            if not self._cache.closed:
                self._hand_failure(error)
            raise

    def refused(self, error: TypeError) -> NoReturn:
        """Raises the error of a loader of the wrong kind."""
        try:
            raise error
        except TypeError:
            self._hand_failure(error)
            raise
        finally:
            # Its traceback references this frame.
            del error

    def failed(self, error: Exception) -> LoadResult | None:
        """The result of a loader that raised: another value. None: the caller raises the error.
        (A traceback that references this frame would keep the error in a circle.)"""
        self._error = error
        # If loads of several callers wait for each other, the others can go on.
        if not (isinstance(error, DeadlockError) and error._mutual):
            self._hand_failure(error)
        return self._instead(error)

    def _hand_failure(self, error: Exception) -> None:
        """Gives it to all calls that wait for this load. To be called before the lease is released:
        its next holder looks for the record."""
        at = time.monotonic()
        seconds = self._policy.retry_after
        outcome = Outcome(error=error, trace=error.__traceback__)
        if seconds:
            failures.pauses.begin(self.load_key, outcome, seconds)
        # Before the record, in which others of this process would find a copy.
        in_flight.fail(self.load_key, at, outcome)
        if self._token:
            failures.record(self._cache, self.load_key[1], error, at, seconds)

    def _instead(self, error: Exception) -> LoadResult | None:
        found = self.found
        if found is None or (found.stale and not self._policy.stale_if_error):
            return None
        return found._replace(error=error)

    def _end_pause(self) -> None:
        paused = failures.pauses.end(self.load_key)
        if self._token and (paused or self._policy.retry_after):
            failures.remove(self._cache, self.load_key[1])

    def _renewed(self, answer: NotModified) -> LoadResult:
        old, found, policy = self._old, self.found, self._policy
        if old is None or found is None or found.missing:
            raise InvalidError(
                f"the loader of {self._key!r} returned NotModified, but there is no old value"
            )
        age = policy.max_age if answer.max_age is None else answer.max_age
        waiters = in_flight.waiters(self.load_key)
        with suppress(*_UNSTORED):
            # An entry that was replaced or expired since keeps its age. An entry that was removed
            # or evicted is not stored again: its tags, one of which may have been invalidated, are
            # no longer known.
            new_age, _, _ = self._cache._scoped(policy.age(age), None, [])
            age_in_ms = age_ms(new_age)
            status = self._cache._pool.run(lookups.renew, self.load_key[1], self._token, age_in_ms)
            if status == abi.OK:
                in_flight.hand(Outcome(old._replace(status=abi.OK)), waiters)
        return found._replace(source="renewed", stale=False)

    def _set(self, meta: bytes, data: bytes, max_age: Seconds | None, tags: Iterable[Tag]) -> None:
        """Stores a loaded value, if the key and tags have not changed since, and hands it on."""
        outcome = Outcome(LookupResult(abi.OK, 0, data, meta, 0, None))
        waiters = in_flight.waiters(self.load_key)
        try:
            policy = self._policy
            status = self._set_unchanged(
                meta, data, policy.age(max_age), tags, policy.flags, policy.stale
            )
        except TooLargeError as error:
            self._not_stored(error, outcome, tags)
            return
        except _UNSTORED as error:
            self._count_unstored(error)
            status = error.code
        self._hand(outcome, waiters, status)
        if status == abi.OK:
            self._cache._emit("set", self._key)
        elif status == abi.CONFLICT:
            self._cache._counts.add(conflicts=1)
            self._cache._emit("conflict", self._key)

    def _not_stored(
        self,
        error: Exception,
        outcome: Outcome,
        tags: Iterable[Tag],
    ) -> None:
        """Hands on a value that the cache cannot store, because of its type or size."""
        self._count_unstored(error)
        waiters = in_flight.waiters(self.load_key)
        status = abi.CONFLICT
        # Without an old value, an entry that is dead at once shows whether the key and tags have
        # changed since.
        if self._old is None:
            with suppress(*_UNSTORED):
                status = self._set_unchanged(MISSING, b"", 0, tags, 0, stale=0)
        self._hand(outcome, waiters, status)

    def _hand(self, outcome: Outcome, waiters: list[Waiter], status: int) -> None:
        """Gives a value to the calls that may have it, before the lease is released. status: of a
        set that stores it only if it is current.

        waiters: the calls that waited before that set. If it succeeded, the value was current after
        they asked; else it may be outdated, but not for a call that asked before the load began.
        """
        if status != abi.OK:
            waiters = [each for each in waiters if each.asked < self._began]
        in_flight.hand(outcome, waiters)

    def _set_unchanged(
        self,
        meta: bytes,
        data: bytes,
        max_age: Seconds | None,
        tags: Iterable[Tag],
        flags: int,
        stale: Seconds | None,
    ) -> int:
        """The only place that stores a loaded value."""
        named = self._policy.tags + tag_list(None, tags)
        scoped = self._cache._scoped(max_age, stale, named)
        flags |= abi.SET_IF_UNCHANGED
        options = set_options(meta, flags, *scoped, version=self._token)
        pool, stored = self._cache._pool, self.load_key[1]
        return check(pool.run(CallContext.set, stored, data, ctypes.byref(options)))

    def _count_unstored(self, error: Exception) -> None:
        # A read-only cache never stores, so that needs no warning.
        if isinstance(error, PermissionDeniedError):
            return
        if self._cache._counts.first("unstored"):
            log.warn(
                "the value loaded for %s is not stored: %s (further ones are only counted, in "
                "stats().own.unstored)",
                repr(self._key) if self._policy.logs_keys else "a key",
                error,
            )

    # Limits

    @property
    def limited(self) -> bool:
        """Whether the caller may go on without the result."""
        return self._soft != NEVER or self._deadline != NEVER

    def patience(self) -> float | None:
        """Seconds until the caller goes on without the result; None: never."""
        limit = min(self._soft, self._deadline)
        return None if limit == NEVER else max(0.0, limit - time.monotonic())

    def leave(self) -> LoadResult:
        """The result of a caller whose patience is over: another value, or LoadTimeoutError."""
        self.left = True
        if self.found is not None and self._soft < self._deadline:
            return self.found
        # Others wait only until the lease expires.
        if self._lease is not None:
            heartbeat.end(self._lease)
        self.expires = time.monotonic() + self._policy.lease
        error = LoadTimeoutError(self._key, self._policy.timeout)
        if self._policy.retry_after:
            failures.pauses.begin(self.load_key, Outcome(error=error), self._policy.retry_after)
        instead = self._instead(error)
        if instead is None:
            raise error
        return instead

    def log(self, error: BaseException) -> None:
        """Logs the failure of a load whose caller went on without it."""
        if self._cache.closed:
            return
        log.warn("loading %r failed in the background", self._key, error=error)


def _has_no_stored_form(error: Exception) -> bool:
    pickle = sys.modules.get("pickle")
    return isinstance(error, _NO_STORED_FORM) or (
        pickle is not None and isinstance(error, pickle.PickleError)
    )
