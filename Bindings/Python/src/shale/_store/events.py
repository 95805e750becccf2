"""Events, the listeners of a cache, and the counts of its loads.

A listener runs in the thread of the call that emits the event, after that call is done with the
library: no lock is held and no buffer is in use, so a listener may use the cache.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import defaultdict, deque
from contextlib import suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Callable, Final, Literal, NamedTuple, get_args

from .._data.records import LoadStats
from .._data.values import MISSING
from .._native import abi
from .._native.errors import InvalidError
from .._typing import Key

if TYPE_CHECKING:
    from typing_extensions import TypeAlias

    from .._data.options import Tag

    Reason: TypeAlias = Literal[
        "absent", "expired", "invalidated", "damaged", "missing", "undecodable"
    ]
    Listener: TypeAlias = Callable[["Event"], object]

EventName = Literal[
    "hit",
    "stale",
    "miss",
    "set",
    "remove",
    "expire",
    "invalidate",
    "clear",
    "load",
    "loaded",
    "conflict",
]
NAMES: Final = get_args(EventName)


class Event(NamedTuple):
    """An event of one cache object. Fields that do not apply are None."""

    name: EventName
    """
    - ``"hit"``: a fresh value was found
    - ``"stale"``: a stale value was returned
    - ``"miss"``: no value was found; ``reason`` is the cause
    - ``"set"``: a value was stored, by a call or by a load
    - ``"remove"``: an entry was removed
    - ``"expire"``: ``expire`` made an entry stale, or ``invalidate`` all entries of a ``tag``
    - ``"invalidate"``: all entries of a ``tag`` were removed
    - ``"clear"``: all entries were removed
    - ``"load"``: a loader is about to be called
    - ``"loaded"``: it has ended, after ``seconds``, perhaps with an ``error``
    - ``"conflict"``: a loaded value was not stored, as its key or a tag had changed
    """
    key: Key | None = None
    tag: Tag | None = None
    reason: Reason | None = None
    """``"missing"``: a loader found no value. ``"undecodable"``: this cache cannot read it."""
    source: Literal["cache", "waited", "loaded", "renewed"] | None = None
    """Where a value comes from, as in ``LoadResult``."""
    seconds: float | None = None
    error: BaseException | None = None


class Counts:
    """The counts of a cache object's loads."""

    __slots__ = ("__weakref__", "_counted", "_lock", "_new", "_seen")

    def __init__(self) -> None:
        # Reentrant: a signal handler or a finalizer may ask for the counts in the midst of `add`.
        self._lock = threading.RLock()
        self._counted: defaultdict[str, float] = defaultdict(int)
        self._new: deque[dict[str, float]] = deque()
        self._seen: dict[str, object] = {}
        _all_counts.add(self)

    def add(self, **more: float) -> None:
        self._new.append(more)
        try:
            # Without waiting: the thread that holds it may be interrupted by a signal handler or a
            # finalizer that waits for this one.
            if self._lock.acquire(blocking=False):
                self._sum()
        finally:
            # A signal handler's exception may come at the end of any call: so `acquire` is inside,
            # and no call comes before this one.
            try:  # noqa: SIM105
                self._lock.release()
            except RuntimeError:
                # Another thread holds it.
                pass

    def _sum(self) -> None:
        counted, new = self._counted, self._new
        # (What interrupts this may have taken the next.)
        with suppress(IndexError):
            while new:
                for name, count in new.popleft().items():
                    # (Without a call, so no signal handler counts in between.)
                    counted[name] += count

    def first(self, name: str) -> bool:
        """Counts one. Whether it is the first."""
        self.add(**{name: 1})
        this = object()
        return self._seen.setdefault(name, this) is this

    def stats(self, undecodable: int) -> LoadStats:
        with self._lock:
            self._sum()
            return LoadStats(**self._counted, undecodable=undecodable)  # type: ignore[arg-type]

    def after_fork_in_child(self) -> None:
        # A thread that the child does not have may hold it.
        self._lock = threading.RLock()


_all_counts: Final[weakref.WeakSet[Counts]] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for counts in list(_all_counts):
        counts.after_fork_in_child()


os.register_at_fork(after_in_child=_after_fork_in_child)

# A listener's own calls emit nothing: each would call the listener again, without end.
_is_emitting: Final[ContextVar[bool]] = ContextVar("shale listener", default=False)


class Listeners:
    """The listeners of one cache object, by event. `listening` serializes their changes."""

    __slots__ = ("_by_name",)

    def __init__(self) -> None:
        self._by_name: dict[str, tuple[Listener, ...]] = {}

    def add(self, name: EventName, listener: Listener) -> None:
        if name not in NAMES:
            raise InvalidError(f"there is no event {name!r}; the events are {', '.join(NAMES)}")
        self._by_name[name] = (*self._by_name.get(name, ()), listener)

    def remove(self, name: EventName, listener: Listener) -> bool:
        """Whether no listener is left."""
        left = tuple(each for each in self._by_name.get(name, ()) if each is not listener)
        if left:
            self._by_name[name] = left
        else:
            self._by_name.pop(name, None)
        return not self._by_name

    def emit(self, name: EventName, key: Key | None = None, **details: Any) -> None:
        listeners = self._by_name.get(name)
        if not listeners or _is_emitting.get():
            return
        event = Event(name, key, **details)
        token = _is_emitting.set(True)
        try:
            for listener in listeners:
                try:
                    listener(event)
                except Exception:
                    import logging

                    logging.getLogger("shale").exception("a listener of %r failed", name)
        finally:
            _is_emitting.reset(token)

    def emit_lookup(self, key: Key, status: int, why: int, unreadable: bytes | None) -> None:
        """The event of a read. why: the flags of a miss. unreadable: the meta of a value that this
        cache cannot read."""
        if status == abi.MISS:
            self.emit_miss(key, why)
        elif unreadable is not None:
            self.emit("miss", key, reason=reason_unreadable(unreadable))
        else:
            self.emit("stale" if status == abi.STALE else "hit", key, source="cache")

    def emit_miss(self, key: Key, flags: int) -> None:
        self.emit("miss", key, reason=reason_of(flags))


_REASONS: Final[dict[int, Reason]] = {
    abi.VALUE_EXPIRED: "expired",
    abi.VALUE_INVALIDATED: "invalidated",
    abi.VALUE_DAMAGED: "damaged",
}


def reason_of(flags: int) -> Reason:
    """Why a read missed, from the flags of the miss."""
    return _REASONS.get(flags & ~abi.VALUE_UNRECORDED, "absent")


def reason_unreadable(meta: bytes) -> Reason:
    return "missing" if meta == MISSING else "undecodable"
