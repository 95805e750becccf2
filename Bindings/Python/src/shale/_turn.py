"""`Turn`: a caller looks for a value until there is one, or until it is to load.

``shale_lease`` reads, and where there is nothing fresh it grants one caller at a
time the right to load. The others get what is stale, or wait. They wait here and
not inside the library: by looking again, after growing pauses. So Ctrl-C is heard,
and the pause is what gevent, eventlet and asyncio want it to be.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Union

from . import _abi, _chain, _lease, _lookups
from ._errors import LoadTimeoutError, PermissionDeniedError
from ._keys import Key
from ._lease import HeldLease, Looked
from ._load import Load
from ._loaded import LoadResult
from ._policy import Policy
from ._throttle import throttle
from ._units import NEVER
from ._values import MISSING, Unreadable

if TYPE_CHECKING:
    from typing import Literal

    from ._cache import Cache

# Seconds.
_FIRST_PAUSE: Final = 0.0005
_LONGEST_PAUSE: Final = 0.016


class Turn:
    """A caller's way to a value."""

    __slots__ = (
        "_cache",
        "_deadline",
        "_end",
        "_flags",
        "_key",
        "_pause",
        "_policy",
        "_waited",
        "asked",
        "handed",
        "place",
    )

    def __init__(
        self, cache: Cache[Any, Any], key: Key, policy: Policy, counted: bool = False
    ) -> None:
        """counted: a look at the key was counted already."""
        self._cache = cache
        self._key = key
        self._policy = policy
        self.place = (cache._identity, cache._encode(key))
        _chain.refuse_own(self.place, key)
        now = time.monotonic()
        self.asked = now
        self.handed: Looked | None = None
        """What another has loaded and could not store, after this call had begun to wait."""
        self._end = now + policy.wait
        self._deadline = now + policy.timeout
        self._flags = policy.read_flags | (_abi.GET_PEEK if counted else 0)
        self._pause = _FIRST_PAUSE
        self._waited = False

    def look(self) -> Union[LoadResult, Load, None]:
        """What is there, or the load that is for this caller to do, or None: another does it."""
        policy = self._policy
        handed = self._handed()
        if handed is not None:
            return handed
        try:
            looked = self._cache._pool.lend(
                _lease.look, self.place[1], self._flags, policy.lease_ms, policy.refresh_ahead_ms
            )
        except PermissionDeniedError:
            # A read-only cache has no leases, so everybody loads; but nobody ahead of time.
            flags = self._flags | _abi.GET_PEEK
            looked = self._cache._pool.lend(_lease.read, self.place[1], flags)
            if looked.status == _abi.OK:
                return self._answer(looked)
            return self._begin(looked, None, 0)
        # This look was counted.
        if looked.status == _abi.MISS and not self._flags & _abi.GET_PEEK:
            listeners = self._cache._listeners
            if listeners is not None:
                listeners.missed(self._key, looked.why)
        self._flags |= _abi.GET_PEEK
        if not looked.lease:
            return self._answer(looked)
        lease = HeldLease(self._cache._pool, self.place[1], looked.lease, policy.lease_ms)
        try:
            # The last to have it may have handed something on since.
            handed = self._handed()
            if handed is None:
                return self._begin(looked, lease, lease.token)
        except BaseException:
            lease.release()
            raise
        lease.release()
        return handed

    def _answer(self, looked: Looked) -> Union[LoadResult, Load, None]:
        if looked.status != _abi.MISS:
            try:
                return self._found(looked)
            except Unreadable:
                if looked.status == _abi.OK:
                    return self._end_age(looked)
        if self._end <= time.monotonic():
            return self._load_beside()
        return None

    def _end_age(self, looked: Looked) -> Load | None:
        """Of what is fresh and can't be read, so that the next look has it to load. To remove it
        would keep what others are loading from being stored."""
        try:
            self._cache._pool.lend(_lookups.end_age, self.place[1], looked.version)
        except PermissionDeniedError:
            return self._load(None, 0, None, None)
        return None

    def _load_beside(self) -> Union[LoadResult, Load, None]:
        """The load of one who has waited for another's for long enough, and has no lease."""
        flags = _abi.GET_PEEK | _abi.GET_TOKEN
        looked = self._cache._pool.lend(_lease.read, self.place[1], flags)
        if looked.status == _abi.MISS:
            return self._load(None, looked.version, None, None)
        return self._answer(looked)

    def _handed(self) -> LoadResult | None:
        if self.handed is None:
            return None
        try:
            return self._found(self.handed)
        except Unreadable:
            return None

    def _begin(
        self, looked: Looked, lease: HeldLease | None, token: int
    ) -> Union[LoadResult, Load]:
        if looked.status == _abi.MISS:
            return self._load(lease, token, None, None)
        try:
            found = self._found(looked)
        except Unreadable:
            self._cache._tell("miss", self._key, reason="undecodable")
            return self._load(lease, token, None, None)
        if self._policy.retry_after:
            error = throttle.error(self.place)
            if error is not None:
                if lease is not None:
                    lease.release()
                return found._replace(error=error)
        return self._load(lease, token, found, looked)

    def _found(self, looked: Looked) -> LoadResult:
        stale = looked.status == _abi.STALE
        source: Literal["cache", "waited"] = "waited" if self._waited and not stale else "cache"
        if looked.meta == MISSING:
            return LoadResult(None, source, stale, missing=True)
        return LoadResult(self._cache._codec.decode(looked.meta, looked.data), source, stale)

    def _load(
        self, lease: HeldLease | None, token: int, found: LoadResult | None, old: Looked | None
    ) -> Load:
        """token: for the fenced set of what it loads; 0 stores nothing."""
        return Load(
            self._cache,
            self._key,
            self.place,
            self._policy,
            self._deadline,
            lease,
            token,
            found,
            old,
        )

    # Between two looks

    @contextmanager
    def waiting(self, *, blocks: bool) -> Iterator[None]:
        """Raises at once where the wait could have no end."""
        self._waited = True
        forever = self._end == self._deadline == NEVER
        began = time.monotonic()
        try:
            with _chain.waiting(self, self._key, blocks=blocks, forever=forever):
                yield
        finally:
            self._cache._counts.add(waits=1, waited=time.monotonic() - began)

    @property
    def left(self) -> float:
        """Seconds that this caller still waits; raises where its time to have a value is over."""
        now = time.monotonic()
        if self._deadline <= now:
            raise LoadTimeoutError(self._key, self._policy.timeout)
        return max(0.0, min(self._end, self._deadline) - now)

    def pause(self) -> float:
        """Seconds until the next look. They grow."""
        pause = self._pause
        self._pause = min(2 * pause, _LONGEST_PAUSE)
        return min(self.left, pause)
