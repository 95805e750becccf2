"""Renews the leases of running loads, so that a load may take longer than its lease.

One thread of the process renews all leases, those of coroutines too. The first load starts it, and
it ends when it finds no lease to renew. It references leases weakly: so a lease ends with its call,
even if a signal handler's exception keeps the call from releasing it. When the process ends, its
leases end at once.
"""

from __future__ import annotations

import _thread
import os
import threading
import time
import weakref
from contextlib import suppress
from typing import Any, Final

from .leases import HeldLease

# A lease is renewed after this part of its time.
_SHARE: Final = 1 / 3


class Heartbeat:
    def __init__(self) -> None:
        self._made: dict[str, tuple[Any, threading.Condition]] = {}
        self._runs = False
        """Whether the thread runs."""
        self._next = 0.0
        self._due: dict[weakref.ref[HeldLease], float] = {}
        """When each lease is renewed next, of time.monotonic()."""

    def _locked(self) -> tuple[Any, threading.Condition]:
        """The lock of the rest, and its condition.

        A signal handler's exception may leave a condition locked that is entered itself, but no
        lock of C.
        """
        # Made when first needed: gevent and eventlet may replace threading's by then.
        made = self._made.get("")
        if made is None:
            lock = threading.RLock()
            made = self._made.setdefault("", (lock, threading.Condition(lock)))
        return made

    def begin(self, lease: HeldLease) -> None:
        due = time.monotonic() + _pause(lease)
        lock, changed = self._locked()
        with lock:
            self._due[lease.reference(self._lost)] = due
            if not self._runs:
                # (A signal handler's exception in Thread.start would break the thread.) When the
                # interpreter finalises, no threads start, and the lease lasts its time.
                with suppress(RuntimeError):
                    _thread.start_new_thread(self._run, ())
                    self._runs = True
            elif due < self._next:
                changed.notify()

    def _lost(self, reference: weakref.ref[HeldLease]) -> None:
        self._due.pop(reference, None)

    def end(self, lease: HeldLease) -> None:
        # Excludes the moment between the thread's check of a lease and its next due time.
        with self._locked()[0]:
            self._due.pop(weakref.ref(lease), None)

    def _run(self) -> None:
        lock, changed = self._locked()
        lease: HeldLease | None
        ready: list[HeldLease] = []
        while True:
            with lock:
                due = list(self._due.items())
                if not due:
                    self._runs = False
                    return
                now = time.monotonic()
                self._next = min(when for _, when in due)
                if now < self._next:
                    changed.wait(self._next - now)
                    continue
                for reference, when in due:
                    if when <= now:
                        lease = reference()
                        if lease is None:
                            self._due.pop(reference, None)
                        elif reference in self._due:
                            self._due[reference] = now + _pause(lease)
                            ready.append(lease)
            while ready:
                lease = ready.pop()
                if not lease.renew():
                    self.end(lease)
            lease = None


def _pause(lease: HeldLease) -> float:
    return lease.milliseconds * _SHARE / 1000


_heartbeat = Heartbeat()


def lock() -> Any:
    """Of its table."""
    return _heartbeat._locked()[0]


def begin(lease: HeldLease) -> None:
    """Renews the lease from now on."""
    _heartbeat.begin(lease)


def end(lease: HeldLease) -> None:
    """Stops renewing the lease."""
    _heartbeat.end(lease)


def _after_fork_in_child() -> None:
    # The loads and the thread are the parent's.
    global _heartbeat
    _heartbeat = Heartbeat()


os.register_at_fork(after_in_child=_after_fork_in_child)
