"""``Cache.lock``: one caller at a time, in all processes, holds the lock of a key.

A lock is a lease (`leases`) on a stored key of its own, under which nothing is ever stored: so a
lock and a load of one key do not conflict, and no ``clear`` or eviction ends a lock. Like the lease
of a load it is renewed while it is held, and ends with its process. It is always recorded: if the
cache has no room to record another lease, the lock waits until one ends.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from .._data.keys import LOCK
from .._native import log
from .._native.errors import InvalidError, LockTimeoutError
from .._native.units import LEASE, NEVER, duration_ms, lease_ms, seconds
from . import heartbeat, leases
from .leases import HeldLease

if TYPE_CHECKING:
    from .._native.units import Seconds
    from .._typing import Key
    from .store import Store

# Seconds between two tries; each pause is longer than the last.
_FIRST_PAUSE: Final = 0.0005
_LONGEST_PAUSE: Final = 0.016


class LockBase:
    """The common part of `Lock` and `AsyncLock`, which differ in how they wait."""

    __slots__ = ("_cache", "_key", "_lease", "_lease_ms", "_process", "_stored", "_timeout")

    def __init__(
        self,
        cache: Store[Any, Any],
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
        """Whether this object holds the lock now; asks the cache. False if the lock was lost: its
        process was stopped for longer than ``lease``, or the index was rebuilt."""
        lease = self._lease
        return lease is not None and self._process == os.getpid() and lease.renew()

    def release(self) -> None:
        """Releases the lock, and logs a warning if it was lost meanwhile. InvalidError if this
        object does not hold it."""
        lease = self._lease
        if lease is None:
            raise InvalidError(f"this object does not hold the lock of {self._key!r}")
        if self._process != os.getpid():
            # A child of fork: the lock is its parent's.
            self._lease = None
            return
        try:
            released = lease.release()
        finally:
            # A signal handler's exception may have cut off the first.
            lease.release()
            self._lease = None
            heartbeat.end(lease)
        if not released and not self._cache.closed:
            log.warn("the lock of %r was lost before it was released", self._key)

    def _tries(self) -> Iterator[float]:
        """Tries to take the lock, until it succeeds or the time is over; yields the pauses."""
        if self._lease is not None:
            raise InvalidError(f"this object already holds the lock of {self._key!r}")
        end = time.monotonic() + self._timeout
        pause = _FIRST_PAUSE
        while not self._try():
            left = end - time.monotonic()
            if left <= 0:
                return
            yield min(pause, left)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _try(self) -> bool:
        lease = HeldLease(self._cache._pool, self._stored, 0, self._lease_ms)
        try:
            if not leases.record(lease):
                return False
            heartbeat.begin(lease)
            self._process = os.getpid()
            self._lease = lease
            return True
        finally:
            # A signal handler's exception came between.
            if self._lease is not lease and lease.token:
                lease.release()
                heartbeat.end(lease)

    def _timed_out(self) -> LockTimeoutError:
        return LockTimeoutError(self._key, self._timeout)


class Lock(LockBase):
    """The result of ``Cache.lock``. A ``with`` statement holds the lock in its body."""

    __slots__ = ()

    def acquire(self) -> bool:
        """Waits for the lock, up to ``timeout``. Whether this object holds it now."""
        for pause in self._tries():
            time.sleep(pause)
        return self._lease is not None

    def __enter__(self) -> Lock:
        if not self.acquire():
            raise self._timed_out()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.release()
