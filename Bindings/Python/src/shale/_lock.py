"""``Cache.lock``: of all who ask for a key's lock, in all processes, one at a time has it.

A lock is a lease (`_lease`) on a stored key of its own, under which nothing is ever stored: so
locks and loads of one key do not meet, and no ``clear`` or eviction takes a lock away. Like the
lease of a load it is renewed for as long as it is held, and ends with its process. It is always
recorded: where the cache has no room to record one, a lock waits for one of them to end.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from . import _heartbeat, _lease, _log
from ._errors import InvalidError, LockTimeoutError
from ._keys import LOCK
from ._units import LEASE, NEVER, duration_ms, lease_ms, seconds

if TYPE_CHECKING:
    from ._cache import Cache
    from ._keys import Key
    from ._lease import HeldLease
    from ._units import Seconds

# Seconds between two tries. They grow.
_FIRST_PAUSE: Final = 0.0005
_LONGEST_PAUSE: Final = 0.016


class LockBase:
    """What `Lock` and `AsyncLock` share: all but how they wait."""

    __slots__ = ("_cache", "_key", "_lease", "_lease_ms", "_process", "_stored", "_timeout")

    def __init__(
        self,
        cache: Cache[Any, Any],
        key: Key,
        *,
        timeout: Seconds | None = None,
        lease: Seconds = LEASE,
    ) -> None:
        self._cache = cache
        self._key = key
        self._stored = LOCK + cache._encode(key)
        self._timeout = NEVER if timeout is None else seconds(duration_ms("timeout", timeout))
        self._lease_ms = lease_ms(lease)
        self._lease: HeldLease | None = None
        self._process = 0

    @property
    def held(self) -> bool:
        """Whether this object has the lock now; it asks the cache. False where it was lost: its
        process was stopped for longer than ``lease``, or the index was made anew."""
        lease = self._lease
        return lease is not None and self._process == os.getpid() and lease.renew()

    def release(self) -> None:
        """Gives the lock back. Where it was lost meanwhile, that is logged. InvalidError where it
        was never had."""
        lease, self._lease = self._lease, None
        if lease is None:
            raise InvalidError(f"the lock of {self._key!r} is not held by this object")
        if self._process != os.getpid():
            # That of a child, in whose copy of this object the parent's lock is no matter.
            return
        _heartbeat.end(lease)
        if not lease.release() and not self._cache.closed:
            _log.warn("the lock of %r was lost before it was released", self._key)

    def _tries(self) -> Iterator[float]:
        """Tries to have it, until it does or its time is over; gives the pauses in between."""
        if self._lease is not None:
            raise InvalidError(f"the lock of {self._key!r} is held by this object already")
        end = time.monotonic() + self._timeout
        pause = _FIRST_PAUSE
        while not self._try():
            left = end - time.monotonic()
            if left <= 0:
                return
            yield min(pause, left)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _try(self) -> bool:
        lease = _lease.recorded(self._cache._pool, self._stored, self._lease_ms)
        if lease is None:
            return False
        self._process = os.getpid()
        self._lease = lease
        _heartbeat.begin(lease)
        return True

    def _timed_out(self) -> LockTimeoutError:
        return LockTimeoutError(self._key, self._timeout)


class Lock(LockBase):
    """A lock that ``Cache.lock`` gives. A ``with`` statement has it for its body."""

    __slots__ = ()

    def acquire(self) -> bool:
        """Waits until the lock is had, as long as ``timeout`` says. Whether it is."""
        for pause in self._tries():
            time.sleep(pause)
        return self._lease is not None

    def __enter__(self) -> Lock:
        if not self.acquire():
            raise self._timed_out()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.release()
