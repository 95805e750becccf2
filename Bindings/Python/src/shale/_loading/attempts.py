"""`LoadAttempt`: a call retries its lookup until there is a value, or until it has to load.

``shale_lease`` reads, and if there is no fresh value it grants one caller at a time the right to
load. The other callers get the stale value or wait. They wait here and not inside the library:

* for a load of this process, until it ends and hands them its outcome (`in_flight`)
* for a load of another process, by retrying after growing pauses. The call that waits longest does
  so, and hands the others what it finds; the others look now and then, too, as it may not run: it
  may be a coroutine whose event loop is blocked.

So Ctrl-C interrupts them, and gevent, eventlet and asyncio make the pause their own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Union

from .._data.values import MISSING, Unreadable
from .._native import abi
from .._native.errors import DeadlockError, LoadTimeoutError, PermissionDeniedError
from .._native.units import NEVER
from .._store import leases, lookups
from .._store.leases import HeldLease, LookupResult
from .._typing import Key
from . import call_chain, failures, in_flight
from .load import Load
from .policy import Policy
from .results import LoadResult

if TYPE_CHECKING:
    from typing import Literal

    from .._store.store import Store
    from .in_flight import Bell, LoadKey, Outcome

# The leases of lookups that run, by thread: the calls of a signal handler or a finalizer that
# interrupts one would wait for its lease.
_looks: Final[dict[tuple[int, LoadKey], HeldLease]] = {}

# Seconds.
_FIRST_PAUSE: Final = 0.0005
_LONGEST_PAUSE: Final = 0.016
# Between the looks of a call that another will wake.
_LONGEST_WAIT: Final = 0.25


class LoadAttempt:
    """One call of ``get_or_load`` and its like, until it has a result or a load.

    A call enters it, and leaves it at its end, in any case.
    """

    __slots__ = (
        "_cache",
        "_deadline",
        "_end",
        "_flags",
        "_key",
        "_load_made",
        "_pause",
        "_policy",
        "_unrecorded",
        "_waited",
        "asked",
        "bell",
        "load_key",
        "outcome",
        "was_handed",
    )

    def __init__(
        self, cache: Store[Any, Any], key: Key, policy: Policy, bell: Bell, counted: bool = False
    ) -> None:
        """bell: ends its pauses. counted: a lookup of the key was counted already."""
        self._cache = cache
        self._key = key
        self._policy = policy
        self.load_key = (cache._identity, cache._encode(key))
        call_chain.refuse_own(self.load_key, key)
        now = time.monotonic()
        self.asked = now
        self.bell = bell
        self.outcome: Outcome | None = None
        self.was_handed = False
        """Whether its value was handed on, and not looked up."""
        self._end = now + policy.wait
        self._deadline = now + policy.timeout
        self._flags = policy.read_flags | (abi.GET_PEEK if counted else 0)
        self._pause = _FIRST_PAUSE
        self._waited = False
        self._load_made: Load | None = None
        self._unrecorded = 0.0
        """When the library first refused a lease for want of room, of time.monotonic()."""

    def enter(self) -> None:
        in_flight.enter(self)

    def leave(self) -> None:
        """May be called again."""
        load = self._load_made
        if load is not None and not load.runs and load.claim():
            # A signal handler's exception came between.
            load.end()
        in_flight.leave(self)
        # An error would reference this call in a circle.
        self.outcome = None

    def look(self) -> Union[LoadResult, Load, None]:
        """The value, or the load that this caller has to do; None: another caller is loading.
        Raises the failure of a load that this caller waited for."""
        handed = self._handed()
        if handed is not None:
            return handed
        if in_flight.running(self.load_key) is not None:
            lookup = self._cache._pool.run(leases.read, self.load_key[1], self._flags)
            self._count(lookup)
            return self._answer(lookup)
        lease = HeldLease(self._cache._pool, self.load_key[1], 0, self._policy.lease_ms)
        this_look = (threading.get_ident(), self.load_key)
        # As if there were no other, if a signal handler's exception comes right after `setdefault`.
        outer = lease
        try:
            outer = _looks.setdefault(this_look, lease)
            found = self._look(lease)
        finally:
            if outer is lease:
                _looks.pop(this_look, None)
        if found is None and self.bell.blocks and outer is not lease and outer.held:
            raise DeadlockError([self._key], "what this call interrupts loads it")
        return found

    def _look(self, lease: HeldLease) -> Union[LoadResult, Load, None]:
        """lease: of this lookup."""
        stored_key = self.load_key[1]
        looked = time.monotonic()
        load = None
        try:
            try:
                lookup = self._cache._pool.run(
                    leases.look,
                    stored_key,
                    self._flags | self._lease_flags(),
                    self._policy.lease_ms,
                    self._policy.refresh_ahead_ms,
                    False,
                    lease.given,
                )
            except PermissionDeniedError:
                # A read-only cache has no leases, so each process loads, but none before the value
                # expires.
                lookup = self._cache._pool.run(leases.read, stored_key, self._flags | abi.GET_PEEK)
                if lookup.status == abi.OK:
                    return self._answer(lookup)
                return self._begin(lookup, None)
            self._count(lookup)
            if lookup.lease:
                load = self._begin(lookup, lease)
                return load
        finally:
            if not isinstance(load, Load):
                lease.release()
        if lookup.flags & abi.VALUE_UNRECORDED and not self._unrecorded:
            self._unrecorded = time.monotonic()
        found = self._answer(lookup)
        if lookup.status == abi.OK and self._waited:
            # Calls that asked before this lookup may have its result.
            others = [each for each in in_flight.waiters(self.load_key) if each.asked < looked]
            in_flight.hand(in_flight.Outcome(lookup), others)
        if found is None and self._waited:
            # The load that this caller waited for may have failed, and the next one may run.
            failure = self._failure(lookup)
            if failure is not None:
                assert failure.error is not None
                raise failure.error.with_traceback(failure.trace)
        return found

    def _lease_flags(self) -> int:
        """A lease that is not recorded excludes no other process. It is better than none in a load,
        whose own lease others may need, and if there was no room for the time of a lease."""
        waits_long = self._unrecorded and self._unrecorded + self._policy.lease < time.monotonic()
        return 0 if waits_long or call_chain.in_load() else abi.LEASE_RECORDED

    def _count(self, lookup: LookupResult) -> None:
        """The first lookup was counted; later ones are not."""
        if lookup.status == abi.MISS and not self._flags & abi.GET_PEEK:
            listeners = self._cache._listeners
            if listeners is not None:
                listeners.emit_miss(self._key, lookup.flags)
        self._flags |= abi.GET_PEEK

    def _answer(self, lookup: LookupResult) -> Union[LoadResult, Load, None]:
        if lookup.status != abi.MISS:
            try:
                found = self._found(lookup)
            except Unreadable:
                if lookup.status == abi.OK:
                    return self._end_age(lookup)
            else:
                cause = failures.pauses.cause(self.load_key) if self._policy.retry_after else None
                return found if cause is None else found._replace(error=cause.error)
        if self._end <= time.monotonic():
            return self._load_beside()
        return None

    def _end_age(self, lookup: LookupResult) -> Load | None:
        """Makes a fresh value that cannot be read stale, so that the next lookup gets its lease.
        Removing it would keep a value that others are loading from being stored."""
        try:
            self._cache._pool.run(lookups.end_age, self.load_key[1], lookup.version)
        except PermissionDeniedError:
            return self._load(None, 0, None, None)
        return None

    def _load_beside(self) -> Union[LoadResult, Load, None]:
        """A load without a lease, for a caller whose ``wait`` for another's load is over."""
        flags = abi.GET_PEEK | abi.GET_TOKEN
        lookup = self._cache._pool.run(leases.read, self.load_key[1], flags)
        if lookup.status == abi.MISS:
            return self._load(None, lookup.version, None, None)
        return self._answer(lookup)

    def _handed(self) -> LoadResult | None:
        outcome = self.outcome
        if outcome is None:
            return None
        if outcome.error is not None:
            try:
                raise outcome.error.with_traceback(outcome.trace)
            finally:
                # Its traceback references this frame.
                del outcome
        if outcome.result is not None:
            return outcome.result
        assert outcome.stored_form is not None
        try:
            found = self._found(outcome.stored_form)
        except Unreadable:
            # The load was that of a cache with another serializer.
            self.outcome = None
            return None
        self.was_handed = True
        return found._replace(source="waited")

    def _begin(
        self, lookup: LookupResult, lease: HeldLease | None
    ) -> Union[LoadResult, Load, None]:
        """The load of a caller that holds the lease, or needs none."""
        # The last holder of the lease may have handed on its outcome since.
        handed = self._handed()
        if handed is not None:
            return handed
        found = None
        if lookup.status != abi.MISS:
            try:
                found = self._found(lookup)
            except Unreadable:
                self._cache._emit("miss", self._key, reason="undecodable")
        failure = self._failure(lookup)
        if failure is not None:
            if found is not None:
                return found._replace(error=failure.error)
            assert failure.error is not None
            raise failure.error.with_traceback(failure.trace)
        token = 0 if lease is None else lease.token
        load = self._load(lease, token, found, None if found is None else lookup)
        if in_flight.begin(load):
            # It needs no other load's outcome.
            in_flight.leave(self)
            return load
        # Another load of this process runs, whose lease was lost or not recorded.
        if lease is not None:
            lease.release()
        if found is not None:
            return found
        return self._load_beside() if self._end <= time.monotonic() else None

    def _failure(self, lookup: LookupResult) -> Outcome | None:
        """The failure because of which this caller does not load: one that it waited for, or whose
        pause is not over. lookup: of the stale value."""
        policy = self._policy
        if policy.retry_after:
            cause = failures.pauses.cause(self.load_key)
            if cause is not None:
                return cause
        elif not self._waited:
            return None
        last = failures.find(self._cache, self._key, self.load_key[1])
        # After that: this process notes a failure before it stores the record.
        own = in_flight.failure(self) if self._waited else None
        if own is not None:
            return own
        if last is None:
            return None
        if lookup.details is not None and lookup.details.created_ms > last.stored_ms:
            # The value was loaded since.
            return None
        waited_for = self._waited and self.asked < last.at
        pauses = policy.retry_after and time.monotonic() < last.until
        if not waited_for and not pauses:
            return None
        in_flight.hand(
            last.outcome,
            [each for each in in_flight.waiters(self.load_key) if each.asked < last.at],
        )
        return last.outcome

    def _found(self, lookup: LookupResult) -> LoadResult:
        stale = lookup.status == abi.STALE
        source: Literal["cache", "waited"] = "waited" if self._waited and not stale else "cache"
        if lookup.meta == MISSING:
            return LoadResult(None, source, stale, missing=True)
        codec = self._policy.codec or self._cache._codec
        return LoadResult(codec.decode(lookup.meta, lookup.data), source, stale)

    def _load(
        self,
        lease: HeldLease | None,
        token: int,
        found: LoadResult | None,
        old: LookupResult | None,
    ) -> Load:
        """token: the fencing token of the load; with 0 it stores nothing."""
        load = self._load_made = Load(
            self._cache,
            self._key,
            self.load_key,
            self._policy,
            self._deadline,
            lease,
            token,
            found,
            old,
        )
        return load

    # Between two lookups

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Around the wait for another's load. Raises at once if the wait would never end."""
        self._waited = True
        forever = self._end == self._deadline == NEVER
        began = time.monotonic()
        try:
            with call_chain.waiting(
                self.load_key, self._key, blocks=self.bell.blocks, forever=forever
            ):
                yield
        finally:
            self._cache._counts.add(waits=1, waited=time.monotonic() - began)

    def pause(self) -> float:
        """Seconds until the next lookup, unless the bell rings; each pause is longer than the last.
        Raises LoadTimeoutError after ``timeout``."""
        now = time.monotonic()
        if self._deadline <= now:
            why = "; the cache has no room to record another lease" if self._unrecorded else ""
            raise LoadTimeoutError(self._key, self._policy.timeout, why)
        looks_often = in_flight.running(self.load_key) is None and in_flight.is_first(self)
        pause = min(self._pause, _LONGEST_PAUSE if looks_often else _LONGEST_WAIT)
        self._pause = 2 * pause
        return max(0.0, min(pause, self._end - now, self._deadline - now))
