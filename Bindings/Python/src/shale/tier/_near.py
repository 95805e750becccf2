"""The near cache of a machine: what its processes share of the listener's knowledge.

Four entries of the near cache, under stored keys that no Python object has:

* the state: the epoch of the listener, when the PING was sent that the remote has answered last,
  the boot that these times belong to, and which server it listens to
* the configuration, so that nobody opens the directory for another remote's keys
* the lease of the listener
* the journal: what is to be invalidated in the remote when that can be reached again

An entry is good while ``max(its reading began, the last answered PING was sent) + bound`` is ahead.
All times are CLOCK_BOOTTIME, which the processes of a machine share, and which no one sets.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Union

from .. import _abi, _lease, _library
from .._errors import InvalidError, check
from .._keys import MARKER
from .._lease import HeldLease
from .._varint import read_size, size_bytes
from ._format import ABSENT, ALONE, Near, decode_near

if TYPE_CHECKING:
    from .._cache import Cache
    from .._handle import Loan

EPOCH_TAG: Final = MARKER + b"Te"
STATE: Final = MARKER + b"Ts"
_CONFIGURATION: Final = MARKER + b"Tc"
_LISTENER: Final = MARKER + b"Tl"
_JOURNAL: Final = MARKER + b"Tj"

JOURNALS: Final = 16
"""Entries of the journal, by a byte of the key."""
ALL: Final = b""
"""Stands for everything in the journal."""

_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_STATE: Final = struct.Struct("<BQQ16s")
_FORM: Final = 1
_MARK_SIZE: Final = 4


def now() -> int:
    """Nanoseconds since the machine was booted, its sleep included."""
    return time.clock_gettime_ns(_CLOCK)


def _boot() -> bytes:
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return bytes.fromhex(file.read().strip().replace("-", ""))
    except (OSError, ValueError):
        return bytes(16)


class State(NamedTuple):
    """What the listener has told."""

    epoch: int
    """It grows with each listener."""
    heard: int
    """When the PING was sent that was answered last; 0: none was, in this epoch."""
    boot: bytes
    server: bytes
    """Which server it listens to; empty where that does not tell."""

    def encode(self) -> bytes:
        return _STATE.pack(_FORM, self.epoch, self.heard, self.boot) + self.server


class NearCache:
    """`Cache`, with the rule that says which of its entries are good."""

    def __init__(self, cache: Cache[Any, Any], bound: int, remote: Any) -> None:
        """bound: nanoseconds."""
        configuration: bytes = remote.configuration
        self.cache = cache
        self.bound = bound
        self._heard = 0
        self._most_noted: float = remote.most_noted
        self._boot = _boot()
        cache.add(_CONFIGURATION, configuration, max_age=float("inf"), pinned=True)
        found = cache.get(_CONFIGURATION)
        if found != configuration:
            raise InvalidError(
                f"{cache.directory} is the near cache of another remote or prefix; use a "
                "directory of its own for each"
            )
        self._begin_boot()

    # Which entries are good

    def get(self, key: Any) -> Union[Near, None]:
        """What may be served; None for what is not there, is stale or is not good."""
        for heard in (self._heard, None):
            # Before the entry is read: what is read later has all that was heard of by then.
            if heard is None:
                heard = self._heard = self.heard()
            stored = self.cache.get(key)
            if stored is None:
                return None
            entry = decode_near(stored)
            if self.is_good(entry, heard):
                return entry
        return None

    def is_good(self, entry: Near, heard: int) -> bool:
        since = entry.began if entry.kind == ALONE else max(entry.began, heard)
        # After the entry was read. What began after now is of another boot.
        return since <= now() < since + self.bound

    def refresh(self, stored_key: bytes, loads: bool) -> None:
        """Ends the age of an entry that is not good, so that somebody reads it anew.

        loads: also of one that says that the remote has nothing."""
        self.cache._pool.lend(self._refresh, stored_key, loads, self.heard())

    def _refresh(self, loan: Loan, stored_key: bytes, loads: bool, heard: int) -> None:
        if check(loan.get(stored_key, _abi.GET_PEEK)) == _abi.MISS:
            return
        data, _ = loan.buffer.take()
        entry = decode_near(data)
        if (loads and entry.kind == ABSENT) or not self.is_good(entry, heard):
            # One that replaces it in between is read once more than need be. No fence knows of it.
            check(_library.touch(loan.pointer, stored_key, len(stored_key), _abi.NONE_MS))

    def stale(self, key: Any) -> Union[Near, None]:
        """What is there, good or not. Nobody has been told that it was changed."""
        stored = self.cache.get(key, stale=True)
        entry = None if stored is None else decode_near(stored)
        return None if entry is None or entry.kind == ABSENT else entry

    # What happens to them

    def removed(self, stored_keys: Iterable[bytes]) -> None:
        """They were changed: no load that has begun stores what it read."""
        for key in stored_keys:
            self.cache._call(_library.remove, key, len(key), 0)

    def gap(self) -> None:
        """Changes may have been missed: all is stale."""
        self.cache.invalidate(EPOCH_TAG, expire=True)

    def flushed(self) -> None:
        """The remote is empty: nothing is kept."""
        self.cache.invalidate(EPOCH_TAG)

    # The state

    def state(self) -> Union[State, None]:
        return self._state()[0]

    def _state(self) -> tuple[Union[State, None], int]:
        """With the version of its entry."""
        entry = self.cache.entry(STATE, peek=True)
        if entry is None:
            return None, 0
        form, epoch, heard, boot = _STATE.unpack_from(entry.value)
        if form != _FORM or boot != self._boot:
            return None, entry.version
        return State(epoch, heard, boot, entry.value[_STATE.size :]), entry.version

    def heard(self) -> int:
        """When the PING was sent that was answered last."""
        state = self.state()
        return 0 if state is None else state.heard

    def _begin_boot(self) -> None:
        """Times of another boot mean nothing, and what was not listened to is not known."""
        while True:
            state, version = self._state()
            if state is not None:
                return
            self.gap()
            if self._put(State(1, 0, self._boot, b""), version):
                return

    def _put(self, state: State, version: int) -> bool:
        if version:
            options: dict[str, Any] = {"if_version": version}
            return self.cache.set(
                STATE, state.encode(), max_age=float("inf"), pinned=True, **options
            )
        return self.cache.add(STATE, state.encode(), max_age=float("inf"), pinned=True)

    def take_over(self, server: bytes) -> int:
        """Begins an epoch, and gives it. To be called when the remote sends invalidations.

        First the server is told, then all is made stale: a load that began after that finds the
        new server, and stores nothing that it has read from another.
        """
        while True:
            state, version = self._state()
            epoch = 1 if state is None else state.epoch + 1
            if self._put(State(epoch, 0, self._boot, server), version):
                break
        self.gap()
        return epoch

    def publish(self, epoch: int, heard: int) -> bool:
        """Tells when the PING was sent that was answered. False where the epoch is over."""
        state, version = self._state()
        if state is None or state.epoch != epoch:
            return False
        # Where another has taken over meanwhile, the version is another.
        return self._put(state._replace(heard=heard), version)

    def listens_to(self, server: bytes) -> bool:
        """Whether invalidations of what this server had are heard, as far as is known."""
        state = self.state()
        return state is None or not state.server or state.server == server

    # The listener's lease

    def lease(self, milliseconds: int) -> Union[HeldLease, None]:
        return _lease.recorded(self.cache._pool, _LISTENER, milliseconds)

    # The journal

    def note(self, name: bytes) -> None:
        """Notes what is to be invalidated in the remote: "k" and a stored key, or "t" and a tag."""

        def add(value: bytes) -> bytes:
            names = _names(value)
            names[name] = _mark()
            return _join({ALL: _mark()} if ALL in names or len(names) > self._most_noted else names)

        self._change(_journal(name), add)

    def forget(self, place: bytes, name: bytes, mark: Union[bytes, None] = None) -> None:
        """Takes it out of an entry of the journal. mark: unless it was noted anew since."""

        def drop(value: bytes) -> bytes:
            names = _names(value)
            if mark is None or names.get(name) == mark:
                names.pop(name, None)
            return _join(names)

        if self.cache.get(place, peek=True):
            self._change(place, drop)

    def forget_key(self, stored_key: bytes) -> None:
        """Takes a key out of the journal."""
        name = b"k" + stored_key
        self.forget(_journal(name), name)

    def noted(self) -> dict[bytes, dict[bytes, bytes]]:
        """The journal's entries that hold something: what is noted, and its marks."""
        keys = [_JOURNAL + bytes([index]) for index in range(JOURNALS)]
        found = self.cache.get_many(keys, peek=True)
        return {key: _names(value) for key, value in found.items() if value}

    def is_noted(self, place: bytes, name: bytes, mark: bytes) -> bool:
        return _names(self.cache.get(place, b"", peek=True)).get(name) == mark

    def _change(self, key: bytes, function: Any) -> None:
        self.cache.update(key, function, b"", max_age=float("inf"), pinned=True)


def _journal(name: bytes) -> bytes:
    return _JOURNAL + bytes([sum(name) % JOURNALS])


def _mark() -> bytes:
    """Tells what is noted from what is noted again."""
    return os.urandom(_MARK_SIZE)


def _names(value: bytes) -> dict[bytes, bytes]:
    names: dict[bytes, bytes] = {}
    at = 0
    while at < len(value):
        size, at = read_size(value, at)
        end = at + size + _MARK_SIZE
        names[value[at : at + size]] = value[at + size : end]
        at = end
    return names


def _join(names: dict[bytes, bytes]) -> bytes:
    return b"".join(size_bytes(len(name)) + name + names[name] for name in sorted(names))
