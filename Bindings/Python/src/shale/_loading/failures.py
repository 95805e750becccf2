"""Failed loads: the pause after them (``retry_after``), and their record for other processes.

All threads, event loops and `Cache` objects of a process share the exceptions. For other processes
each failure is stored, for some seconds or as long as the pause, under ``FF 'P' '1' 'F'`` and the
stored key. Its meta (`FAILED`) hides it from iteration. Its bytes are the time at which the load
failed and the time of the pause's end (8 bytes each, little-endian, nanoseconds of
CLOCK_MONOTONIC, which the processes of a machine share), and in UTF-8 the type, a NUL and the
message.
"""

from __future__ import annotations

import ctypes
import struct
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from .._data.keys import FAILURE
from .._data.options import set_options
from .._data.values import FAILED
from .._native import abi, library
from .._native.errors import Error, LoadFailed, check
from .._native.handles import CallContext
from .._store import leases
from .in_flight import Outcome

if TYPE_CHECKING:
    from .._store.store import Store
    from .._typing import Key
    from .in_flight import LoadKey

# The most keys that pause at once. Beyond it, the key that failed first ends its pause.
_MOST: Final = 4096
# How long other processes find a failure that they waited for, seconds. They look every 16 ms.
_KEPT: Final = 2
_TIMES: Final = struct.Struct("<qq")
_LONGEST_MESSAGE: Final = 1000


class Pauses:
    """The pauses that failures of this process began."""

    def __init__(self) -> None:
        self._failed: dict[LoadKey, tuple[float, Outcome]] = {}
        """The end of the pause, of time.monotonic(), and its cause."""

    def begin(self, load_key: LoadKey, outcome: Outcome, seconds: float) -> None:
        failed, now = self._failed, time.monotonic()
        failed.pop(load_key, None)
        failed[load_key] = (now + seconds, outcome)
        for each in list(failed):
            # Pauses that are over go too: the traceback of an error keeps what its loader
            # referenced.
            if len(failed) <= _MOST and failed.get(each, (0.0,))[0] > now:
                break
            failed.pop(each, None)

    def cause(self, load_key: LoadKey) -> Outcome | None:
        """The failure after which the key pauses, or None."""
        found = self._failed.get(load_key)
        if found is None:
            return None
        until, outcome = found
        if time.monotonic() < until:
            return outcome
        self.end(load_key)
        return None

    def end(self, load_key: LoadKey) -> bool:
        """Whether there was one."""
        return self._failed.pop(load_key, None) is not None


pauses = Pauses()


class Failure(NamedTuple):
    """The last failure of a key in any process."""

    at: float
    """Seconds of time.monotonic()."""
    until: float
    """The end of its pause, likewise."""
    stored_ms: int
    """When it was stored, by the cache's clock."""
    outcome: Outcome


def record(
    cache: Store[Any, Any], stored_key: bytes, error: Exception, at: float, seconds: float
) -> None:
    """Stores a failure for other processes. at: when the load failed, of time.monotonic().
    seconds: of the pause after it."""
    kind = type(error)
    try:
        message = str(error)[:_LONGEST_MESSAGE]
    except Exception:
        message = "(its message cannot be read)"
    text = f"{kind.__module__}.{kind.__qualname__}\0{message}"
    data = _TIMES.pack(_nanoseconds(at), _nanoseconds(at + seconds)) + text.encode(
        "utf-8", "surrogatepass"
    )
    options = set_options(FAILED, abi.SET_UNCOMPRESSED, max(_KEPT, seconds), 0, [])
    # Without the record, the waiting processes load.
    with suppress(Error):
        check(cache._pool.run(CallContext.set, FAILURE + stored_key, data, ctypes.byref(options)))


def find(cache: Store[Any, Any], key: Key, stored_key: bytes) -> Failure | None:
    with suppress(Error, ValueError, struct.error):
        found = cache._pool.run(leases.read, FAILURE + stored_key, abi.GET_PEEK)
        if found.details is not None and found.meta == FAILED:
            at, until = _TIMES.unpack(found.data[: _TIMES.size])
            kind, _, message = (
                found.data[_TIMES.size :].decode("utf-8", "surrogatepass").partition("\0")
            )
            outcome = Outcome(error=LoadFailed(key, kind, message))
            return Failure(at / 1e9, until / 1e9, found.details.created_ms, outcome)
    return None


def remove(cache: Store[Any, Any], stored_key: bytes) -> None:
    """Ends the pause of all processes."""
    stored = FAILURE + stored_key
    with suppress(Error):
        cache._call(library.remove, stored, len(stored), 0)


def _nanoseconds(seconds: float) -> int:
    return int(min(seconds * 1e9, 2.0**62))
