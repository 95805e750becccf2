"""The near cache of a machine: the state of the listener that its processes share.

The tier has entries of its own, pinned and without end, under ``FF 'P' '1' 'T'`` and a letter,
which no key or tag of a user begins with. Numbers are little-endian.

* ``s``, the state: the form (1 byte, 1), the epoch of the listener (8), when the PING was sent that
  the remote answered last (8), the boot that these times belong to (16), and the ``run_id`` of the
  primary (the rest)
* ``m``, the machine: 16 random bytes, in its markers of loads in the remote
* ``c``, the configuration: ``redis``, ``redis/`` and a database that is not 0, or ``memcached``,
  then a space and the prefix; a process with another one is refused
* ``l``: nothing is stored; the listener's lease is on this key
* ``j``, and with two more bytes: the journal (`_journal`)

The tag of the epoch, which every near entry carries, is ``FF 'P' '1' 'T' 'e'``.

An entry is valid until ``max(start of its read, time of the last answered PING) + bound``. All
times are CLOCK_BOOTTIME, which the processes of a machine share and cannot set.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Union

from .._native import abi, library
from .._native.errors import InvalidError, check
from .._store import leases
from .._store.leases import HeldLease
from ._format import ABSENT, ALONE, MACHINE_SIZE, OWN, Near, decode_near
from ._journal import Journal

if TYPE_CHECKING:
    from .._cache import Cache
    from .._native.handles import CallContext

EPOCH_TAG: Final = OWN + b"e"
STATE: Final = OWN + b"s"
_CONFIGURATION: Final = OWN + b"c"
_MACHINE: Final = OWN + b"m"
_LISTENER: Final = OWN + b"l"

_NO_SERVER: Final = b"none"
"""In place of a server that is no longer the primary."""

_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_STATE: Final = struct.Struct("<BQQ16s")
_FORM: Final = 1


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
    """The state that the listener publishes."""

    epoch: int
    """A new listener, and a new primary, increments it."""
    heard: int
    """When the last answered PING was sent; 0: none was answered in this epoch."""
    boot: bytes
    server: bytes
    """The primary of this machine, by its run id; empty if it is not known."""

    def encode(self) -> bytes:
        return _STATE.pack(_FORM, self.epoch, self.heard, self.boot) + self.server


class NearCache:
    """A `Cache`, with the rule that says which of its entries are valid."""

    def __init__(self, cache: Cache[Any, Any], bound: int, remote: Any) -> None:
        """bound: nanoseconds."""
        configuration: bytes = remote.configuration
        self.cache = cache
        self.bound = bound
        self._heard = 0
        self._boot = _boot()
        cache.add(_CONFIGURATION, configuration, max_age=float("inf"), pinned=True)
        found = cache.get(_CONFIGURATION)
        if found != configuration:
            raise InvalidError(
                f"{cache.directory} is the near cache of another remote, database or prefix; use "
                "one directory for each"
            )
        cache.add(_MACHINE, os.urandom(MACHINE_SIZE), max_age=float("inf"), pinned=True)
        self.machine: bytes = cache[_MACHINE]
        self.journal = Journal(cache, remote.most_noted, self._boot, self.machine)
        self._begin_boot()

    # Valid entries

    def get(self, key: Any) -> Union[Near, None]:
        """A valid entry; None if the entry is missing, stale or not valid."""
        for heard in (self._heard, None):
            # Before the entry is read: a later read includes all that was heard by then.
            if heard is None:
                heard = self._heard = self.heard()
            stored = self.cache.get(key)
            if stored is None:
                return None
            entry = decode_near(stored)
            if self.is_good(entry, heard):
                return entry
        return None

    def is_good(self, entry: Near, heard: int, at: Union[int, None] = None) -> bool:
        """Whether an entry is valid, now or at a time at which a caller began to wait for it."""
        since = entry.began if entry.kind == ALONE else max(entry.began, heard)
        # After the entry was read. A time in the future belongs to another boot.
        current = now()
        return since <= current and (current if at is None else at) < since + self.bound

    def refresh(self, stored_key: bytes, loads: bool) -> None:
        """Ends the age of an entry that is not valid, so that a lookup reads the remote again.

        loads: also of an entry that says that the remote has no value."""
        self.cache._pool.run(self._refresh, stored_key, loads, self.heard())

    def _refresh(self, context: CallContext, stored_key: bytes, loads: bool, heard: int) -> None:
        entry = _peek(context, stored_key)
        if entry is None:
            return
        if (loads and entry.kind == ABSENT) or not self.is_good(entry, heard):
            # An entry that replaces it in between is read once too often. No load is refused.
            check(library.touch(context.pointer, stored_key, len(stored_key), abi.NONE_MS))

    def has_value(self, stored_key: bytes) -> bool:
        """Whether there is an entry that does not say that the remote has no value."""
        entry = self.cache._pool.run(_peek, stored_key)
        return entry is not None and entry.kind != ABSENT

    def end(self, stored_key: bytes) -> None:
        """Ends the age of an entry, so that a lookup reads the remote again."""
        self.cache._call(library.touch, stored_key, len(stored_key), abi.NONE_MS)

    def stale(self, key: Any) -> Union[Near, None]:
        """The entry, valid or not. No change of it is known."""
        stored = self.cache.get(key, stale=True)
        entry = None if stored is None else decode_near(stored)
        return None if entry is None or entry.kind == ABSENT else entry

    # Changes

    def removed(self, stored_keys: Iterable[bytes]) -> None:
        """The keys have changed: no load that is running stores the value that it read."""
        for key in stored_keys:
            self.cache._call(library.remove, key, len(key), 0)

    def gap(self) -> None:
        """Changes may have been missed: all entries become stale."""
        self.cache.invalidate(EPOCH_TAG, expire=True)

    def flushed(self) -> None:
        """The remote was emptied: removes all entries."""
        self.cache.invalidate(EPOCH_TAG)

    # The state

    def state(self) -> Union[State, None]:
        return self._state()[0]

    def _state(self) -> tuple[Union[State, None], int]:
        """The state, and the version of its entry."""
        entry = self.cache.entry(STATE, peek=True)
        if entry is None:
            return None, 0
        form, epoch, heard, boot = _STATE.unpack_from(entry.value)
        if form != _FORM or boot != self._boot:
            return None, entry.version
        return State(epoch, heard, boot, entry.value[_STATE.size :]), entry.version

    def heard(self) -> int:
        """When the last answered PING was sent."""
        state = self.state()
        return 0 if state is None else state.heard

    def _begin_boot(self) -> None:
        """Starts over if the state is of another boot: its times mean nothing, and changes were
        missed."""
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
        """Begins an epoch, and returns it. To be called when the remote sends invalidations."""
        while True:
            state, version = self._state()
            epoch = 1 if state is None else state.epoch + 1
            if self._begin_epoch(epoch, server, version):
                return epoch

    def _begin_epoch(self, epoch: int, server: bytes, version: int) -> bool:
        """Publishes the server first, then makes all entries stale: a load that begins after that
        reads from the new server, and one that began before stores nothing."""
        put = self._put(State(epoch, 0, self._boot, server), version)
        if put:
            self.gap()
        return put

    def epoch(self) -> int:
        state = self.state()
        return 0 if state is None else state.epoch

    def follow(self, server: bytes, epoch: int) -> bool:
        """Makes the server to which a new connection leads that of the machine. False if it is
        another than that of an epoch that began since this one: the connection is outdated."""
        while not self.leads_to(server):
            state, version = self._state()
            if state is None or state.epoch != epoch:
                return False
            if self._begin_epoch(epoch + 1, server, version):
                break
        return True

    def leave(self, server: bytes) -> None:
        """The server is no longer the primary: no connection to it is used again."""
        while True:
            state, version = self._state()
            if state is None or state.server != server:
                return
            if self._begin_epoch(state.epoch + 1, _NO_SERVER, version):
                return

    def publish(self, epoch: int, heard: int) -> bool:
        """Publishes when the answered PING was sent. False if the epoch is over."""
        state, version = self._state()
        if state is None or state.epoch != epoch:
            return False
        # If another listener has taken over meanwhile, the version differs.
        return self._put(state._replace(heard=heard), version)

    def leads_to(self, server: bytes) -> bool:
        """Whether this server is the primary of this machine, as far as is known."""
        state = self.state()
        return state is None or not state.server or state.server == server

    # The listener's lease

    def lease(self, milliseconds: int) -> Union[HeldLease, None]:
        return leases.recorded(self.cache._pool, _LISTENER, milliseconds)


def _peek(context: CallContext, stored_key: bytes) -> Union[Near, None]:
    if check(context.get(stored_key, abi.GET_PEEK)) == abi.MISS:
        return None
    data, _ = context.buffer.take()
    return decode_near(data)
