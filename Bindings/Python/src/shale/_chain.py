"""Who loads what for whom: so that a load that could only wait for itself is an error.

Each load of this process is a `Link`. It knows the load in whose course it began,
which a context variable hands down: to the calls below it, to the tasks that it
makes, and to ``asyncio.to_thread``. And it knows what is waited for in its course.
A load that asks for its own key, or for one whose load waits for it, raises.

What other processes wait for is not known here.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Union

from ._errors import DeadlockError

if TYPE_CHECKING:
    import asyncio

    from ._keys import Key
    from ._lease import Looked
    from ._turn import Turn

    # A cache's identity and a stored key.
    Place = tuple[object, bytes]

# Under it the links of all threads are looked at and changed. A signal handler may load, too.
_lock = threading.RLock()
_loads: dict[Place, Link] = {}
"""The loads of this process; of several for one key, the last."""
_waiting: dict[Place, list[Turn]] = {}
"""Who waits in this process."""


class Link:
    """A load."""

    __slots__ = (
        "active",
        "began",
        "ended",
        "key",
        "loop",
        "parent",
        "place",
        "waits_for",
    )

    def __init__(self, place: Place, key: Key) -> None:
        self.place = place
        self.key = key
        self.parent = _course_of_caller()
        self.active = False
        self.began = 0.0
        """Of time.monotonic()."""
        self.waits_for: list[tuple[Place, Key]] = []
        """What its course waits for: keys that others load, and loads that it began itself."""
        self.loop = _running_loop()
        self.ended: asyncio.Future[None] | None = None
        """For the coroutines of its loop."""

    def __enter__(self) -> Link:
        self.active = True
        self.began = time.monotonic()
        _current.set(self)
        if self.loop is not None:
            self.ended = self.loop.create_future()
        with _lock:
            _loads[self.place] = self
            if self.parent is not None:
                self.parent.waits_for.append((self.place, self.key))
        return self

    def __exit__(self, *_exception: object) -> None:
        self.active = False
        _current.set(self.parent)
        if self.parent is not None:
            with _lock:
                self.parent.waits_for.remove((self.place, self.key))
        self.forget()

    def hand_on(self, unstored: Looked) -> None:
        """Gives what it has loaded, and could not store, to those who waited before it began. To be
        called while it has its lease: who has the next one knows that nothing is coming."""
        with _lock:
            for turn in _waiting.get(self.place, ()):
                if turn.asked < self.began:
                    turn.handed = unstored

    def forget(self) -> None:
        """Nobody waits for its end any longer."""
        with _lock:
            if _loads.get(self.place) is self:
                del _loads[self.place]
        if self.ended is not None and not self.ended.done():
            self.ended.set_result(None)


_current: ContextVar[Union[Link, None]] = ContextVar("shale's load", default=None)


def _course_of_caller() -> Link | None:
    """The load in whose course this is called. A task may have outlived the one that made it."""
    link = _current.get()
    while link is not None and not link.active:
        link = link.parent
    return link


def in_no_course() -> bool:
    """Whether this is called in the course of no load."""
    return _current.get() is None


def refuse_own(place: Place, key: Key) -> None:
    """Raises where the key is asked for in the course of its own load."""
    link = _course_of_caller()
    if link is None:
        return
    course = [key]
    while link is not None:
        course.append(link.key)
        if link.active and link.place == place:
            raise DeadlockError(course[::-1])
        link = link.parent


@contextmanager
def waiting(turn: Turn, key: Key, *, blocks: bool, forever: bool) -> Iterator[None]:
    """While another's load is waited for. Raises where that one waits for this.

    blocks: whether the whole thread waits, so that no coroutine of its event loop runs on.
    forever: whether the wait has no end of its own. One that has ends by itself.
    """
    place = turn.place
    link = _course_of_caller() if forever else None
    with _lock:
        other = _loads.get(place)
        loop = _running_loop() if blocks else None
        if loop is not None and other is not None and other.loop is loop:
            raise DeadlockError([key], "a coroutine of this thread's event loop is loading it")
        if link is not None:
            course = _course(place, link.place, {link.place})
            if course is not None:
                raise DeadlockError([link.key, key, *course])
            link.waits_for.append((place, key))
        turns = _waiting.setdefault(place, [])
        turns.append(turn)
    try:
        yield
    finally:
        with _lock:
            if link is not None:
                link.waits_for.remove((place, key))
            turns.remove(turn)
            # A child of fork, in which it waits no more, has others.
            if not turns and _waiting.get(place) is turns:
                del _waiting[place]


def _course(place: Place, goal: Place, seen: set[Place]) -> list[Key] | None:
    """The keys by which the load of `place` waits for that of `goal`, or None."""
    link = _loads.get(place)
    if link is None or place in seen:
        return None
    seen.add(place)
    for next_place, key in link.waits_for:
        if next_place == goal:
            return [key]
        rest = _course(next_place, goal, seen)
        if rest is not None:
            return [key, *rest]
    return None


def end_of_load(place: Place) -> asyncio.Future[None] | None:
    """What ends with a load of this event loop."""
    link = _loads.get(place)
    return link.ended if link is not None and link.loop is _running_loop() else None


def _running_loop() -> Any:
    """The event loop of this thread, or None. Who has none has perhaps not imported asyncio."""
    asyncio = sys.modules.get("asyncio")
    return None if asyncio is None else asyncio._get_running_loop()


def _after_fork_in_child() -> None:
    # The loads of other threads are gone with those threads.
    global _lock
    _lock = threading.RLock()
    _loads.clear()
    _waiting.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)
