"""How long the calls of a process wait, whatever else the machine does.

A history needs a verdict, which a busy machine does not change, on whether a call waits for more
than its time limit. The clock of the machine gives none: a thread that wakes late has passed its
limit. Neither does a clock that the proxy advances: the server compares the time limits of writes
with its own.

So each wait of a call counts, with the time that it took, but at most the time that it had asked
for: a late wakeup counts nothing, and neither does the work between two waits. The only waits are
for sockets, whose messages nothing but the proxy and the faults of the server delay, for the calls
of other threads and processes, and for a time limit to pass. The waits of a call that keeps one
deadline follow each other and each asks for the rest, so their sum is at most the time limit on a
machine of any load. Each wait without a limit, or with a limit of its own, adds to that.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from shale._loading.in_flight import ThreadBell

_local = threading.local()
# Not the functions that count.
_clock = time.monotonic


class Account:
    """The waits of a call."""

    def __init__(self) -> None:
        self.remote = 0.0
        """Seconds, for the remote and until the time limit."""
        self.others = 0.0
        """Seconds, for the loads of other calls."""
        self.waited_since = 0
        """When the first of these began, of time.monotonic_ns(); 0: none did."""
        self.passed = False
        """Whether a wait for a socket took all the time that it had."""
        self.connects = False
        self.ports: set[int] = set()
        """Of the connections over which it has sent."""


@contextmanager
def counted() -> Iterator[Account]:
    """Counts the waits of this thread."""
    outer = getattr(_local, "account", None)
    account = _local.account = Account()
    try:
        yield account
    finally:
        _local.account = outer


@contextmanager
def not_counted() -> Iterator[None]:
    """For a loader."""
    account, _local.account = _account(), None
    try:
        yield
    finally:
        _local.account = account


def _account() -> Account | None:
    found: Account | None = getattr(_local, "account", None)
    return found


def _least(began: float, asked: float | None) -> float:
    elapsed = _clock() - began
    return elapsed if asked is None else min(elapsed, asked)


def install(replace: Callable[[Any, str, Any], None] = setattr) -> None:
    """Counts from now on."""
    for name in ("connect", "recv", "recv_into", "send", "sendall"):
        replace(socket.socket, name, _of_socket(name, getattr(socket.socket, name)))

    sleep = time.sleep

    def sleep_noted(seconds: float) -> None:
        account, began = _account(), _clock()
        sleep(seconds)
        if account is not None:
            account.remote += _least(began, seconds)

    wait = threading.Condition.wait

    def wait_noted(condition: threading.Condition, timeout: float | None = None) -> bool:
        account, began = _account(), _clock()
        try:
            return wait(condition, timeout)
        finally:
            # Without a limit it waits for a thread of this process to start.
            if account is not None and timeout is not None:
                account.remote += _least(began, timeout)

    ring = ThreadBell.wait

    def bell_noted(bell: ThreadBell, seconds: float) -> None:
        account, began = _account(), _clock()
        if account is not None and not account.waited_since:
            account.waited_since = time.monotonic_ns()
        try:
            ring(bell, seconds)
        finally:
            if account is not None:
                account.others += _least(began, seconds)

    replace(time, "sleep", sleep_noted)
    replace(threading.Condition, "wait", wait_noted)
    replace(ThreadBell, "wait", bell_noted)


def _of_socket(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    def noted(self: socket.socket, *arguments: Any) -> Any:
        account = _account()
        if account is None:
            return method(self, *arguments)
        asked, began = self.gettimeout(), _clock()
        try:
            result = method(self, *arguments)
        except TimeoutError:
            account.passed = True
            raise
        finally:
            account.remote += _least(began, asked)
        if name == "connect":
            account.connects = True
        elif name.startswith("send"):
            account.ports.add(self.getsockname()[1])
        return result

    return noted
