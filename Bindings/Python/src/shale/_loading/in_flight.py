"""The loads of this process, and the calls that wait for them.

One table, for all threads, event loops and `Cache` objects: of all callers of one key one loads,
however many keys are being loaded. Leases do the same among processes, but the index has room for a
limited number of them.

A call is in the table before it looks for a value, so it gets the outcome of each load that ends
after that. Loads are referenced weakly: an exception at any bytecode of a load ends it.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from .._store import heartbeat

if TYPE_CHECKING:
    from types import TracebackType

    from .._store.leases import LookupResult
    from .results import LoadResult

    # A cache's identity and a stored key.
    LoadKey = tuple[object, bytes]


class Outcome(NamedTuple):
    """How a load ended. One field is not None."""

    stored_form: LookupResult | None = None
    """Its value, as the cache stores it."""
    result: LoadResult | None = None
    """Its value, if that has no stored form. All callers get the same object."""
    error: Exception | None = None
    trace: TracebackType | None = None
    """Of the error: that of the load, without the callers that raise it again."""


class Bell(Protocol):
    """Ends the pause of a waiting call. Remembers a ring until the next pause."""

    blocks: bool
    """Whether the whole thread waits, so that no coroutine of its event loop runs."""

    def ring(self) -> None: ...


class ThreadBell:
    """For a call that blocks its thread, or its greenlet."""

    __slots__ = ("_lock", "_rung")
    blocks = True

    def __init__(self) -> None:
        # (Not an event: a signal handler or a finalizer may ring in the midst of its methods.)
        self._lock: threading.Lock | None = None
        self._rung = False

    def ring(self) -> None:
        self._rung = True
        if self._lock is not None:
            # Threads, gevent and eventlet report differently that it rings already.
            with suppress(RuntimeError, ValueError):
                self._lock.release()

    def wait(self, seconds: float) -> None:
        if self._lock is None:
            bell = threading.Lock()
            bell.acquire()
            self._lock = bell
        if not self._rung:
            with released():
                self._lock.acquire(timeout=min(seconds, threading.TIMEOUT_MAX))
        self._rung = False


class Waiter(Protocol):
    """A call that needs a value."""

    load_key: LoadKey
    asked: float
    """When it began, of time.monotonic()."""
    bell: Bell
    outcome: Outcome | None


class InFlightLoad(Protocol):
    """A load of this process."""

    load_key: LoadKey
    chain: Any
    """Its `CallChain`, once it has begun."""
    thread: int
    """Of `threading.get_ident`. (With gevent and eventlet, its greenlet.)"""
    loop: Any
    """The event loop that it needs, or None. Once that is closed, the load never ends."""
    expires: float
    """When another call may load, of time.monotonic()."""


class _Key:
    """The calls of one key."""

    __slots__ = ("failed", "load", "waiters")

    def __init__(self) -> None:
        self.failed: tuple[float, Outcome] | None = None
        """When the last load failed, of time.monotonic(), and its failure."""
        self.load: weakref.ref[InFlightLoad] | None = None
        # (The first key of a dict is not found in constant time after others were removed.)
        self.waiters: OrderedDict[Waiter, None] = OrderedDict()
        """In the order of their calls."""

    def first(self) -> Waiter | None:
        while True:
            # A signal handler or a finalizer may call in between.
            with suppress(RuntimeError):
                return next(iter(self.waiters), None)


# Guards the table, and the chains of loads. Reentrant: signal handlers and finalizers may load.
lock = threading.RLock()
_keys: dict[LoadKey, _Key] = {}


@contextmanager
def released() -> Iterator[None]:
    """Around a wait for other threads, which need the locks: a signal handler or a finalizer waits
    in the midst of what it interrupts, which may hold them."""
    held: list[Any] = []
    for each in (lock, heartbeat.lock()):
        with suppress(RuntimeError):
            while True:
                each.release()
                held.append(each)
    try:
        yield
    finally:
        for each in held:
            each.acquire()


def enter(waiter: Waiter) -> None:
    """From now on the waiter gets the outcomes of its key's loads."""
    with lock:
        key = _keys.get(waiter.load_key)
        if key is None:
            key = _keys[waiter.load_key] = _Key()
        key.waiters[waiter] = None


def leave(waiter: Waiter) -> None:
    """Undoes `enter`. May be called again, and without `enter`."""
    next_one = None
    with lock:
        key = _keys.get(waiter.load_key)
        if key is None:
            return
        was_first = key.first() is waiter
        key.waiters.pop(waiter, None)
        if was_first and key.load is None:
            # Now its turn to load, or to look for the load of another process.
            next_one = key.first()
        _remove_if_unused(waiter.load_key, key)
    if next_one is not None:
        next_one.bell.ring()


def is_first(waiter: Waiter) -> bool:
    """Whether no other call of the key waits for longer."""
    with lock:
        key = _keys.get(waiter.load_key)
        return key is None or key.first() in (waiter, None)


def waiters(load_key: LoadKey) -> list[Waiter]:
    key = _keys.get(load_key)
    return [] if key is None else list(key.waiters)


def running(load_key: LoadKey) -> InFlightLoad | None:
    """The load of the key in this process."""
    key = _keys.get(load_key)
    reference = None if key is None else key.load
    load = None if reference is None else reference()
    if load is None or load.expires <= time.monotonic():
        return None
    return None if load.loop is not None and load.loop.is_closed() else load


def begin(load: InFlightLoad) -> bool:
    """Enters a load. False if there is one of its key."""
    load_key = load.load_key
    with lock:
        if running(load_key) is not None:
            return False
        key = _keys.setdefault(load_key, _Key())
        key.load = weakref.ref(load, lambda reference: _end(load_key, reference))
        return True


def end(load: InFlightLoad) -> None:
    """Ends a load: the first waiter without its outcome looks again, then the next: so each
    waiter wakes once, however many loads are cancelled. May be called again, and without `begin`.
    """
    key = _keys.get(load.load_key)
    reference = None if key is None else key.load
    if reference is not None and reference() is load:
        _end(load.load_key, reference)


def _end(load_key: LoadKey, reference: weakref.ref[InFlightLoad]) -> None:
    with lock:
        key = _keys.get(load_key)
        if key is None or key.load is not reference:
            return
        key.load = None
        first = key.first()
        _remove_if_unused(load_key, key)
    if first is not None:
        first.bell.ring()


def _remove_if_unused(load_key: LoadKey, key: _Key) -> None:
    # In a child of fork the table has other objects.
    if not key.waiters and key.load is None and _keys.get(load_key) is key:
        del _keys[load_key]


def hand(outcome: Outcome, receivers: Iterable[Waiter]) -> None:
    """Gives a load's outcome to calls that wait for it."""
    for waiter in receivers:
        waiter.outcome = outcome
        waiter.bell.ring()


def fail(load_key: LoadKey, at: float, outcome: Outcome) -> None:
    """Gives a load's failure to all calls that wait for it, also to those that are just beginning.

    at: when it failed, of time.monotonic()."""
    key = _keys.get(load_key)
    if key is not None:
        key.failed = at, outcome
        hand(outcome, list(key.waiters))


def failure(waiter: Waiter) -> Outcome | None:
    """The last failure of a load of this process after the waiter asked."""
    key = _keys.get(waiter.load_key)
    failed = None if key is None else key.failed
    return failed[1] if failed is not None and waiter.asked < failed[0] else None


def _after_fork_in_child() -> None:
    # The child has none of the threads that ran these loads.
    global lock
    lock = threading.RLock()
    _keys.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)
