"""Loaders for tests, and threads that load."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import shale
from shale._data.keys import encode_key
from shale._loading import in_flight
from shale._store import leases

PATIENCE = 300
"""Seconds after which a waiting test fails, on a machine of any load."""


def until(condition: Callable[[], Any]) -> None:
    """Waits until it holds."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


STORED = encode_key("k")


def is_free(cache: shale.Cache) -> bool:
    """Whether a caller would get the lease of "k" now."""
    lookup = cache._pool.run(leases.look, STORED, 0, 1000, 0)
    leases.HeldLease(cache._pool, STORED, lookup.lease, 1000).release()
    return lookup.lease != 0


def waiting(cache: shale.Cache, key: shale.Key = "k") -> int:
    """The number of calls of this process that wait for the load of the key."""
    return len(waiters() & set(in_flight.waiters((cache._identity, encode_key(key)))))


def waiters() -> set[Any]:
    """The calls of this process that wait for loads."""
    calls = [call for key in list(in_flight._keys.values()) for call in list(key.waiters)]
    return {call for call in calls if call._waited}  # type: ignore[attr-defined]


class Loader:
    """Returns 1, 2, 3 and so on. If held, waits for `go` first."""

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
    """Starts `work` in a thread. Returns a function that waits for its result."""
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
