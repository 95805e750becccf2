"""Leases: the right to load a key, of one at a time of all who ask, in all processes.

A lease is a hint: it ends with its release or with its time, and nobody's value
is wrong without it.
"""

from __future__ import annotations

import ctypes
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from . import _abi, _library
from ._errors import Error, InvalidError, check
from ._handle import Loan, Pool
from ._records import details_of

if TYPE_CHECKING:
    from ._records import Details

# So large a mean that a caller gets the lease, however much is left of a fresh value's age.
_ALWAYS_AHEAD_MS: Final = 2**52
_PEEK: Final = _abi.GET_STALE | _abi.GET_PEEK | _abi.GET_INFO


class Looked(NamedTuple):
    """What ``shale_lease`` answers."""

    status: int
    lease: int
    """Not 0 where it is for us to load."""
    data: bytes
    meta: bytes
    version: int
    details: Details | None
    """Where there is an old entry, and it is for us to load."""


def look(loan: Loan, key: bytes, flags: int, lease_ms: int, refresh_ahead_ms: int) -> Looked:
    """Reads, and takes the lease where the key is to be loaded and nobody has it. Never waits."""
    status, lease = _ask(loan, key, flags, lease_ms, refresh_ahead_ms)
    buffer = loan.buffer
    version = buffer.struct.version
    details = details_of(buffer.struct) if lease and status != _abi.MISS else None
    data, meta = buffer.take()
    return Looked(status, lease, data, meta, version, details)


def read(loan: Loan, key: bytes, flags: int) -> Looked:
    """The same of a read-only cache, which has no leases."""
    status = check(loan.get(key, flags))
    buffer = loan.buffer
    version, details = buffer.struct.version, details_of(buffer.struct)
    data, meta = buffer.take()
    return Looked(status, 0, data, meta, version, details)


def _ask(
    loan: Loan, key: bytes, flags: int, lease_ms: int, refresh_ahead_ms: int
) -> tuple[int, int]:
    """(status, lease)."""
    lease = ctypes.c_uint64()
    options = _abi.LeaseOptions(_abi.LEASE_OPTIONS_SIZE, flags, lease_ms, 0, refresh_ahead_ms)
    status = check(
        _library.lease(
            loan.pointer,
            key,
            len(key),
            ctypes.byref(options),
            loan.buffer.reference,
            ctypes.byref(lease),
        )
    )
    return status, lease.value


def _release(loan: Loan, key: bytes, lease: int) -> int:
    return check(_library.release(loan.pointer, key, len(key), lease))


def _renew(loan: Loan, key: bytes, lease: int, lease_ms: int) -> int:
    """The lease that is held now, or 0. A library without ``shale_renew`` can't prolong one: it
    is given back and taken again, and in between another may get it."""
    if _library.renew is not None:
        status = check(_library.renew(loan.pointer, key, len(key), lease, lease_ms))
        if status == _abi.OK:
            return lease
    _release(loan, key, lease)
    return _ask(loan, key, _PEEK, lease_ms, _ALWAYS_AHEAD_MS)[1]


class HeldLease:
    """A lease of ours, until it is released."""

    __slots__ = ("_key", "_lock", "_pool", "milliseconds", "token")

    def __init__(self, pool: Pool, key: bytes, token: int, milliseconds: int) -> None:
        self._pool = pool
        self._key = key
        self._lock = threading.RLock()
        self.milliseconds = milliseconds
        self.token = token
        """0: it was released, or another has it."""

    def renew(self) -> bool:
        """Begins its time again. False where there is no more to renew."""
        with self._lock:
            if self.token:
                try:
                    self.token = self._pool.lend(_renew, self._key, self.token, self.milliseconds)
                except InvalidError:
                    # The cache is closed.
                    self.token = 0
                except Error:
                    # Perhaps the next time.
                    return True
            return self.token != 0

    def release(self) -> None:
        """Gives it back; again is allowed."""
        with self._lock:
            token, self.token = self.token, 0
            if token:
                # It ends with its time where it can't be given back.
                with suppress(Error):
                    self._pool.lend(_release, self._key, token)
