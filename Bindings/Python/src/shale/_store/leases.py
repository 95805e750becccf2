"""Leases: the right to load a key, which one caller at a time holds, in all processes.

A lease is a hint: it ends with its release, its time or its process, and values stay correct
without it. Its number is the fencing token of the load's set, which stores nothing if the key was
changed, or a tag invalidated, after the lease was granted.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

from .._data.records import details_of
from .._native import abi, library
from .._native.errors import Error, InvalidError, check
from .._native.handles import CallContext, Pool

if TYPE_CHECKING:
    from .._data.records import Details


class LookupResult(NamedTuple):
    """The result of ``shale_lease``."""

    status: int
    lease: int
    """Not 0 if this caller has to load."""
    data: bytes
    meta: bytes
    version: int
    """For a miss with GET_TOKEN: a fencing token."""
    details: Details | None
    """Of an existing entry, if this caller has to load or asked for details."""
    flags: int = 0
    """Of the value. Those of a miss give its cause."""


def look(
    context: CallContext,
    key: bytes,
    flags: int,
    lease_ms: int,
    refresh_ahead_ms: int,
    detailed: bool = False,
    given: ctypes.c_uint64 | None = None,
) -> LookupResult:
    """Reads, and takes the lease if the key needs loading and no other caller holds it. Never
    waits.

    detailed: return the details also without a lease. given: gets the lease, `HeldLease.given`."""
    given = ctypes.c_uint64() if given is None else given
    options = abi.LeaseOptions(abi.LEASE_OPTIONS_SIZE, flags, lease_ms, 0, refresh_ahead_ms)
    buffer = context.buffer
    status = check(
        library.lease(
            context.pointer,
            key,
            len(key),
            ctypes.byref(options),
            buffer.reference,
            ctypes.byref(given),
        )
    )
    lease = given.value
    version = buffer.struct.version
    if status == abi.MISS:
        return LookupResult(status, lease, b"", b"", version, None, buffer.struct.flags)
    details = details_of(context) if lease or detailed else None
    value_flags = buffer.struct.flags
    data, meta = buffer.take()
    return LookupResult(status, lease, data, meta, version, details, value_flags)


def read(context: CallContext, key: bytes, flags: int) -> LookupResult:
    """Reads without taking a lease."""
    status = check(context.get(key, flags))
    buffer = context.buffer
    if status == abi.MISS:
        return LookupResult(status, 0, b"", b"", buffer.struct.version, None, buffer.struct.flags)
    version, details = buffer.struct.version, details_of(context)
    data, meta = buffer.take()
    return LookupResult(status, 0, data, meta, version, details)


def _release(context: CallContext, key: bytes, lease: int) -> int:
    return check(library.release(context.pointer, key, len(key), lease))


def _renew(context: CallContext, key: bytes, lease: int, lease_ms: int) -> int:
    return check(library.renew(context.pointer, key, len(key), lease, lease_ms))


class HeldLease:
    """A lease that this process holds, until it is released.

    It is made before the lookup that grants it: so no signal handler's exception comes between."""

    __slots__ = (
        "__weakref__",
        "_key",
        "_lock",
        "_over",
        "_pool",
        "_process",
        "given",
        "loop",
        "milliseconds",
    )

    def __init__(self, pool: Pool, key: bytes, token: int, milliseconds: int) -> None:
        """token: 0 before it is granted."""
        self._pool = pool
        self._key = key
        self._lock = threading.RLock()
        self._over = False
        self._process = os.getpid()
        self.loop: Any = None
        """The event loop of its load, or None. Once that is closed, the load never ends."""
        self.milliseconds = milliseconds
        self.given = ctypes.c_uint64(token)

    @property
    def token(self) -> int:
        """The fencing token; 0 if the lease was not granted. Valid also after it is lost."""
        return self.given.value

    @property
    def held(self) -> bool:
        """Whether it was granted to this process, and is neither released nor known to be lost. A
        child of fork leaves it to its parent."""
        return not self._over and self.given.value != 0 and self._process == os.getpid()

    def renew(self) -> bool:
        """Restarts its time. False if the lease is lost or released."""
        with self._lock:
            if self.loop is not None and self.loop.is_closed():
                self.release()
            if self.held:
                try:
                    status = self._pool.run(_renew, self._key, self.token, self.milliseconds)
                    self._over = status != abi.OK
                except InvalidError:
                    # The cache is closed.
                    self._over = True
                except Error:
                    # The next renewal may succeed.
                    pass
            return self.held

    def release(self) -> bool:
        """Releases it. May be called again. Whether it was held until now."""
        with self._lock:
            if not self.held:
                return False
            status = abi.MISS
            # A lease that cannot be released ends with its time.
            with suppress(Error):
                status = self._pool.run(_release, self._key, self.token)
            # Not before: what a signal handler's exception cuts off is repeated.
            self._over = True
            return status == abi.OK

    def reference(self, lost: Callable[[weakref.ref[HeldLease]], object]) -> weakref.ref[HeldLease]:
        """A weak reference. While it exists, the lease is released once no other reference to it is
        left, and ``lost`` is called. (With a finalizer instead, exceptions of signal handlers would
        be lost in it.)"""
        return weakref.ref(
            self, partial(_lose, self._pool, self._key, self.token, os.getpid(), lost)
        )


def _lose(
    pool: Pool,
    key: bytes,
    token: int,
    process: int,
    lost: Callable[[weakref.ref[HeldLease]], object],
    reference: weakref.ref[HeldLease],
) -> None:
    lost(reference)
    # In a child of fork it is its parent's.
    if process == os.getpid():
        with suppress(Error):
            pool.run(_release, key, token)


def recorded(pool: Pool, key: bytes, milliseconds: int) -> HeldLease | None:
    """The recorded lease of a key without a value, which excludes other callers. None if another
    caller holds it, or if no more leases can be recorded."""
    lease = HeldLease(pool, key, 0, milliseconds)
    return lease if record(lease) else None


def record(lease: HeldLease) -> bool:
    """As `recorded`, for a lease that is not granted yet."""
    flags = abi.GET_PEEK | abi.LEASE_RECORDED
    lease._pool.run(look, lease._key, flags, lease.milliseconds, 0, False, lease.given)
    return lease.token != 0
