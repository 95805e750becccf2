"""The leases of loads under way are renewed, so that a load may take longer than its lease.

One thread of the process does so for all of them, those of coroutines too. It is
started by the first load, and ends when it finds no lease to renew. With the
process it ends as well, and its leases with their time.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from typing import Final

from ._lease import HeldLease

# A lease is renewed when so much of its time is over.
_SHARE: Final = 1 / 3


class Heartbeat:
    def __init__(self) -> None:
        # Made when first needed: gevent and eventlet may put theirs in place of threading's.
        self._changed: threading.Condition | None = None
        self._thread: threading.Thread | None = None
        self._next = 0.0
        self._due: dict[HeldLease, float] = {}
        """When each is to be renewed, of time.monotonic()."""

    def begin(self, lease: HeldLease) -> None:
        due = time.monotonic() + _pause(lease)
        changed = self._changed
        if changed is None:
            changed = self._changed = threading.Condition()
        with changed:
            self._due[lease] = due
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="shale leases", daemon=True)
                # At the interpreter's end there are no new threads. The lease lasts its time.
                with suppress(RuntimeError):
                    thread.start()
                    self._thread = thread
            elif due < self._next:
                changed.notify()

    def end(self, lease: HeldLease) -> None:
        changed = self._changed
        if changed is not None:
            # Not between its thread's look at the lease and the note of when it is due again.
            with changed:
                self._due.pop(lease, None)

    def _run(self) -> None:
        changed = self._changed
        assert changed is not None
        while True:
            with changed:
                due = list(self._due.items())
                if not due:
                    self._thread = None
                    return
                now = time.monotonic()
                self._next = min(when for _, when in due)
                if now < self._next:
                    changed.wait(self._next - now)
                    continue
                ready = [lease for lease, when in due if when <= now]
                for lease in ready:
                    if lease in self._due:
                        self._due[lease] = now + _pause(lease)
            for lease in ready:
                if not lease.renew():
                    self.end(lease)


def _pause(lease: HeldLease) -> float:
    return lease.milliseconds * _SHARE / 1000


_heartbeat = Heartbeat()


def begin(lease: HeldLease) -> None:
    """Renews the lease from now on."""
    _heartbeat.begin(lease)


def end(lease: HeldLease) -> None:
    """Leaves the lease to its time, or to its release."""
    _heartbeat.end(lease)


def _after_fork_in_child() -> None:
    # The parent goes on with its loads, and has the thread.
    global _heartbeat
    _heartbeat = Heartbeat()


os.register_at_fork(after_in_child=_after_fork_in_child)
