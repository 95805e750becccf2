"""The chains of loads that began each other, so that a load that waits for itself is an error.

Each load of this process is a `CallChain`. Its parent is the load that called it, directly or
further up; a context variable passes the current load to calls, to the tasks that they start, and
to ``asyncio.to_thread``. Each chain also records what its load waits for. A load that asks for its
own key, or for a key whose load waits for it, raises DeadlockError.

Loads of other processes are not recorded.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Union

from .._native.errors import DeadlockError
from . import in_flight

if TYPE_CHECKING:
    from .._typing import Key
    from .in_flight import LoadKey


class CallChain:
    """A load that runs, and the loads that called it."""

    __slots__ = ("active", "key", "load_key", "parent", "waits_for")

    def __init__(self, load_key: LoadKey, key: Key) -> None:
        self.load_key = load_key
        self.key = key
        self.parent = _current_chain()
        self.active = False
        self.waits_for: list[tuple[LoadKey, Key]] = []
        """The loads that it waits for: those of others, and those that it called itself."""

    def begin(self) -> None:
        self.active = True
        _current.set(self)
        if self.parent is not None:
            with in_flight.lock:
                self.parent.waits_for.append((self.load_key, self.key))

    def end(self) -> None:
        """May be called again."""
        if not self.active:
            return
        # (A coroutine that is collected ends in the context of other code.)
        if _current.get() is self:
            _current.set(self.parent)
        if self.parent is not None:
            # (Missing if a signal handler's exception has cut off `begin`.)
            with in_flight.lock, suppress(ValueError):
                self.parent.waits_for.remove((self.load_key, self.key))
        # Not before: what a signal handler's exception cuts off is repeated.
        self.active = False


_current: ContextVar[Union[CallChain, None]] = ContextVar("shale's load", default=None)


def _current_chain() -> CallChain | None:
    """The load that runs this code. A task may outlive the load that started it."""
    chain = _current.get()
    while chain is not None and not chain.active:
        chain = chain.parent
    return chain


def outside_loads() -> bool:
    """Whether no load runs this code."""
    return _current.get() is None


def in_load() -> bool:
    """Whether a load runs this code."""
    return _current_chain() is not None


def refuse_own(load_key: LoadKey, key: Key) -> None:
    """Raises DeadlockError if the key is asked for by its own load."""
    chain = _current_chain()
    if chain is None:
        return
    keys = [key]
    while chain is not None:
        keys.append(chain.key)
        if chain.active and chain.load_key == load_key:
            raise DeadlockError(keys[::-1])
        chain = chain.parent


@contextmanager
def waiting(load_key: LoadKey, key: Key, *, blocks: bool, forever: bool) -> Iterator[None]:
    """Records a wait for another's load. Raises DeadlockError if that load waits for this one.

    blocks: the whole thread waits, so neither does a coroutine of its event loop run, nor what a
        signal handler or a finalizer interrupts.
    forever: the wait has no time limit. A wait with a limit is not an error: it ends by itself.
    """
    chain = _current_chain() if forever else None
    with in_flight.lock:
        load = in_flight.running(load_key)
        if blocks and load is not None and load.thread == threading.get_ident():
            raise DeadlockError(
                [key],
                "a coroutine of this thread's event loop, or what this call interrupts, loads it",
            )
        if chain is not None:
            keys = _wait_path(load_key, chain.load_key)
            if keys is not None:
                raise DeadlockError([chain.key, key, *keys], mutual=True)
            chain.waits_for.append((load_key, key))
    try:
        yield
    finally:
        if chain is not None:
            with in_flight.lock:
                chain.waits_for.remove((load_key, key))


def _wait_path(start: LoadKey, goal: LoadKey) -> list[Key] | None:
    """The keys by which the load of `start` waits for that of `goal`, or None."""
    # (Not by recursion: thousands of loads may wait for each other.)
    paths: dict[LoadKey, tuple[Any, Key]] = {start: (None, "")}
    unseen = [start]
    while unseen:
        load_key = unseen.pop()
        load = in_flight.running(load_key)
        if load is None or load.chain is None:
            continue
        for next_key, key in load.chain.waits_for:
            if next_key == goal:
                keys = [key]
                while load_key != start:
                    load_key, key = paths[load_key]
                    keys.append(key)
                return keys[::-1]
            if next_key not in paths:
                paths[next_key] = (load_key, key)
                unseen.append(next_key)
    return None
