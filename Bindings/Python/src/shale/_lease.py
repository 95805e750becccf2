"""Leases: the right to load a key, of one at a time of all who ask, in all processes.

A lease is a hint: it ends with its release, with its time or with its process, and
nobody's value is wrong without it. Its number is the token of the load's fenced set, which stores
nothing where the key was changed, or a tag invalidated, since the lease was given.
"""

from __future__ import annotations

import ctypes
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from . import _abi, _library
from ._errors import Error, InvalidError, check
from ._handle import Loan, Pool
from ._records import details_of

if TYPE_CHECKING:
    from ._records import Details


class Looked(NamedTuple):
    """What ``shale_lease`` answers."""

    status: int
    lease: int
    """Not 0 where it is for us to load."""
    data: bytes
    meta: bytes
    version: int
    """Of a miss, with GET_TOKEN: a token for a fenced set."""
    details: Details | None
    """Where there is an entry, and it is for us to load; or all were asked for."""
    why: int = 0
    """Of a miss: the value's flags, which say why."""


def look(
    loan: Loan,
    key: bytes,
    flags: int,
    lease_ms: int,
    refresh_ahead_ms: int,
    detailed: bool = False,
) -> Looked:
    """Reads, and takes the lease where the key is to be loaded and nobody has it. Never waits.

    detailed: the details also where nothing is to be loaded."""
    given = ctypes.c_uint64()
    options = _abi.LeaseOptions(_abi.LEASE_OPTIONS_SIZE, flags, lease_ms, 0, refresh_ahead_ms)
    buffer = loan.buffer
    status = check(
        _library.lease(
            loan.pointer,
            key,
            len(key),
            ctypes.byref(options),
            buffer.reference,
            ctypes.byref(given),
        )
    )
    lease = given.value
    version = buffer.struct.version
    if status == _abi.MISS:
        return Looked(status, lease, b"", b"", version, None, buffer.struct.flags)
    details = details_of(loan) if lease or detailed else None
    data, meta = buffer.take()
    return Looked(status, lease, data, meta, version, details)


def read(loan: Loan, key: bytes, flags: int) -> Looked:
    """The same without a lease."""
    status = check(loan.get(key, flags))
    buffer = loan.buffer
    version, details = buffer.struct.version, details_of(loan)
    data, meta = buffer.take()
    return Looked(status, 0, data, meta, version, details)


def _release(loan: Loan, key: bytes, lease: int) -> int:
    return check(_library.release(loan.pointer, key, len(key), lease))


def _renew(loan: Loan, key: bytes, lease: int, lease_ms: int) -> int:
    return check(_library.renew(loan.pointer, key, len(key), lease, lease_ms))


class HeldLease:
    """A lease of ours, until it is released."""

    __slots__ = ("_held", "_key", "_lock", "_pool", "milliseconds", "token")

    def __init__(self, pool: Pool, key: bytes, token: int, milliseconds: int) -> None:
        self._pool = pool
        self._key = key
        self._lock = threading.RLock()
        self._held = token != 0
        self.milliseconds = milliseconds
        self.token = token
        """For a fenced set. It is good for that also where the lease is lost."""

    def renew(self) -> bool:
        """Begins its time again. False where there is no more to renew."""
        with self._lock:
            if self._held:
                try:
                    status = self._pool.lend(_renew, self._key, self.token, self.milliseconds)
                    self._held = status == _abi.OK
                except InvalidError:
                    # The cache is closed.
                    self._held = False
                except Error:
                    # Perhaps the next time.
                    pass
            return self._held

    def release(self) -> bool:
        """Gives it back; again is allowed. Whether it was held until now."""
        with self._lock:
            held, self._held = self._held, False
            if held:
                # It ends with its time where it can't be given back.
                with suppress(Error):
                    return self._pool.lend(_release, self._key, self.token) == _abi.OK
            return False


def recorded(pool: Pool, key: bytes, milliseconds: int) -> HeldLease | None:
    """The lease of a key that has no value, which nobody else gets. None where another has it, or
    no more can be recorded."""
    looked = pool.lend(look, key, _abi.GET_PEEK | _abi.LEASE_RECORDED, milliseconds, 0)
    return HeldLease(pool, key, looked.lease, milliseconds) if looked.lease else None
