"""Loaders for tests, and threads that load."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import shale
from shale import _chain, _lease
from shale._keys import encode_key

PATIENCE = 30
"""Seconds, after which a test that waits has failed."""


def until(condition: Callable[[], Any]) -> None:
    """Waits until it holds."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


STORED = encode_key("k")


def is_free(cache: shale.Cache) -> bool:
    """Whether one who asks for "k" now would get its lease."""
    looked = cache._pool.lend(_lease.look, STORED, 0, 1000, 0)
    _lease.HeldLease(cache._pool, STORED, looked.lease, 1000).release()
    return looked.lease != 0


def waiting(cache: shale.Cache) -> int:
    """How many of this process wait for the load of "k"."""
    return len(_chain._waiting.get((cache._identity, STORED), []))


class Loader:
    """Gives 1, 2, 3 and so on. Where it is held, not before `go`."""

    def __init__(self, *, held: bool = False) -> None:
        self.calls = 0
        self.begun = threading.Event()
        self.go = threading.Event()
        if not held:
            self.go.set()

    def __call__(self) -> int:
        self.calls += 1
        number = self.calls
        self.begun.set()
        assert self.go.wait(PATIENCE)
        return number


class Failure(Exception):
    pass


def fail(_previous: object = None) -> Any:
    raise Failure


def never(_previous: object = None) -> Any:
    raise AssertionError("nothing is to be loaded")


def in_thread(work: Callable[[], Any]) -> Callable[[], Any]:
    """Begins `work` in a thread, and gives a function that waits for its result."""
    results: list[Any] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()

    def result() -> Any:
        thread.join(PATIENCE)
        assert not thread.is_alive()
        if errors:
            raise errors[0]
        return results[0]

    return result
