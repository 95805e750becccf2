"""``get_or_load``: of all who want a key's value, in all processes, one loads it.

``shale_lease`` reads, and where there is nothing fresh it grants one caller at a
time the right to load. The others get what is stale, or wait. How they wait is
all that threads and coroutines do differently. A thread waits inside the library,
but no longer than a slice, because Ctrl-C is heard between two calls alone. For
coroutines see ``_loading_async``.

A lease is a hint: it ends with its release or with its time, and nobody's value
is wrong without it. So a read-only cache, which has none, lets everybody load.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Callable, Final, TypeVar, cast

from . import _abi, _library
from ._errors import (
    Error,
    FullError,
    InvalidError,
    OutOfMemoryError,
    PermissionDeniedError,
    SystemCallError,
    TooLargeError,
    check,
)
from ._handle import Loan
from ._keys import Key, encode_key
from ._options import Tag, tag_list
from ._units import age_ms, duration_ms, seconds
from ._values import Unreadable

if TYPE_CHECKING:
    from ._cache import Cache

V = TypeVar("V")

LEASE: Final = 30.0
"""Seconds that a lease lasts, if nothing else is said."""

_LONGEST_LEASE_MS: Final = 60 * 60 * 1000
_SLICE: Final = 0.1

# Why a good value can't be stored. It is returned all the same.
_UNSTORED: Final = (
    FullError,
    OutOfMemoryError,
    PermissionDeniedError,
    SystemCallError,
    TooLargeError,
)


class Policy:
    """The options of ``get_or_load`` and of ``memoize``, checked before anything is loaded."""

    __slots__ = (
        "flags",
        "lease",
        "lease_ms",
        "max_age",
        "read_flags",
        "refresh_ahead_ms",
        "stale",
        "tags",
        "wait",
    )

    def __init__(
        self,
        *,
        max_age: float | None,
        stale: float | None,
        tag: Tag | None,
        tags: Iterable[Tag] | None,
        pinned: bool,
        wait: float,
        lease: float,
        refresh_ahead: float,
    ) -> None:
        age_ms(max_age), age_ms(stale)
        self.max_age = max_age
        self.stale = stale
        self.tags = tag_list(tag, tags) or None
        self.flags = _abi.SET_PINNED if pinned else 0
        self.read_flags = 0 if stale == 0 else _abi.GET_STALE
        self.wait = seconds(duration_ms("wait", wait))
        self.lease = lease
        self.lease_ms = duration_ms("lease", lease)
        if not 0 < self.lease_ms <= _LONGEST_LEASE_MS:
            raise InvalidError(f"a lease lasts above 0 seconds and up to an hour, not {lease!r}")
        self.refresh_ahead_ms = duration_ms("refresh_ahead", refresh_ahead)


class Turn:
    """One caller's way to a value: it looks until there is one, or until it is to load."""

    __slots__ = (
        "_cache",
        "_end",
        "_flags",
        "_key",
        "_lease",
        "_policy",
        "fresh",
        "loads",
        "stored_key",
        "value",
    )

    def __init__(self, cache: Cache, key: Key, policy: Policy) -> None:
        self._cache = cache
        self._key = key
        self._policy = policy
        self._end = time.monotonic() + policy.wait
        self._flags = policy.read_flags
        self._lease = 0
        self.stored_key = encode_key(key)
        self.loads = False
        """Whether it is for this caller to load."""
        self.fresh = False
        """Whether `value` is fresh, where this caller is to load: it does so ahead of time."""
        self.value: Any = None
        """What is there, where this caller is not to load, or where it is fresh."""

    @property
    def left(self) -> float:
        """Seconds that this caller still waits."""
        return max(0.0, self._end - time.monotonic())

    def look(self, longest: float) -> bool:
        """Whether there is an answer now. longest: seconds to wait for one."""
        try:
            return self._look(longest)
        except PermissionDeniedError:
            # A read-only cache has no leases.
            self.loads = True
            return True

    def _look(self, longest: float) -> bool:
        cache = self._cache
        policy = self._policy
        left = self.left
        options = _abi.LeaseOptions(
            _abi.LEASE_OPTIONS_SIZE,
            self._flags,
            policy.lease_ms,
            duration_ms("wait", min(left, longest)),
            policy.refresh_ahead_ms,
        )
        status, self._lease, version, data, meta = cache._pool.lend(_ask, self.stored_key, options)
        self.loads = self._lease != 0
        # This look was counted.
        self._flags |= _abi.GET_PEEK
        if status == _abi.MISS:
            self.loads = self.loads or left == 0
            return self.loads
        try:
            self.value = cache._codec.decode(meta, data)
            self.fresh = status == _abi.OK
            return True
        except Unreadable:
            if not self.loads:
                # The next look finds a miss, or what another has loaded.
                cache._pool.lend(_remove, self.stored_key, version)
            return self.loads

    def store(self, value: V) -> V:
        """Stores what was loaded, if it can be, and gives it back."""
        policy = self._policy
        with suppress(*_UNSTORED):
            self._cache._store(
                self._key,
                value,
                policy.flags,
                policy.max_age,
                policy.stale,
                tags=policy.tags,
            )
        return value

    def __enter__(self) -> Turn:
        return self

    def __exit__(self, *_exception: object) -> None:
        if self._lease:
            # It ends with its time where it can't be given back.
            with suppress(Error):
                self._cache._pool.lend(_release, self.stored_key, self._lease)


def load(cache: Cache, key: Key, policy: Policy, loader: Callable[[], V]) -> V:
    """The value, loaded by this thread or by another."""
    with Turn(cache, key, policy) as turn:
        while not turn.look(_SLICE):
            pass
        if not turn.loads:
            return cast(V, turn.value)
        try:
            value = loader()
        except Exception:
            if turn.fresh:
                return cast(V, turn.value)
            raise
        return turn.store(value)


def _ask(loan: Loan, key: bytes, options: _abi.LeaseOptions) -> tuple[int, int, int, bytes, bytes]:
    """(status, lease, version, data, meta)."""
    lease = ctypes.c_uint64()
    buffer = loan.buffer
    status = check(
        _library.lease(
            loan.pointer,
            key,
            len(key),
            ctypes.byref(options),
            buffer.reference,
            ctypes.byref(lease),
        )
    )
    version = buffer.struct.version
    data, meta = buffer.take()
    return status, lease.value, version, data, meta


def _release(loan: Loan, key: bytes, lease: int) -> int:
    return check(_library.release(loan.pointer, key, len(key), lease))


def _remove(loan: Loan, key: bytes, version: int) -> int:
    return check(_library.remove(loan.pointer, key, len(key), version))
