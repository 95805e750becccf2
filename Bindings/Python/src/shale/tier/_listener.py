"""The listener: of all processes of a machine, one hears what changes in the remote.

Each process has a thread that asks for the listener's lease, a few times in each bound. Who has it
connects, makes all near entries stale, and then, over and over: sends a PING, applies what comes
before its answer, and tells when that PING was sent. There is never more than one PING under way:
so what the server executed before it was sent has been told before it is answered.

Where the remote tells of nothing, that thread has the journal to see to alone.

Who was stopped and goes on later finds that its epoch is over as soon as it wants to tell. What it
has invalidated until then was invalid.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Union

from .. import _log
from .._errors import Error
from ._errors import RefusedError, RemoteError
from ._near import ALL, now
from ._wire import describe, is_failure

if TYPE_CHECKING:
    from .._lease import HeldLease
    from ._near import NearCache
    from ._resp import Connection


# Seconds between two PINGs.
_LONGEST_PAUSE: Final = 1.0


class Lost(Exception):
    """Another is the listener now."""


class Listener:
    """A thread of this process. It ends with `stop`, or with the near cache."""

    def __init__(self, near: NearCache, remote: Any, bound: float) -> None:
        """bound: seconds."""
        self._near = near
        self._remote = remote
        self._bound = bound
        self._pause = min(bound / 4, _LONGEST_PAUSE)
        # A connection may be slower than that; nothing is good meanwhile.
        self._patience = max(2 * bound, 1.0)
        self._ended = threading.Event()
        self._logged = ""
        self._lease: Union[HeldLease, None] = None
        self.listens = False
        """Whether it is the one."""
        self._thread = threading.Thread(target=self._run, name="shale tier", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()
        if self._lease is not None:
            self._lease.release()

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                if self._has_lease():
                    if self._remote.pushes:
                        self._listen()
                    else:
                        self._flush()
            except Lost:
                pass
            except Exception as error:
                if self._near.cache.closed:
                    return
                self._tell(error)
            self._ended.wait(self._pause)

    def _has_lease(self) -> bool:
        """Whether the lease is ours. One whose time was over is, if nobody took it meanwhile."""
        if self._lease is None or not self._lease.renew():
            # Its time, after which another takes over, is half a bound.
            self._lease = self._near.lease(max(1, int(self._bound * 500)))
        return self._lease is not None

    def _tell(self, error: Exception) -> None:
        # A remote that is away says the same each time.
        text = describe(error)
        if text != self._logged:
            self._logged = text
            trace = None if isinstance(error, Error) or is_failure(error) else error
            _log.warn("the remote's changes are not heard: %s", text, error=trace)

    def _listen(self) -> None:
        connection = self._remote.listen(time.monotonic() + self._patience)
        try:
            epoch = self._near.take_over(connection.server)
            self._logged = ""
            self._remote.wire.answers()
            self.listens = True
            while not self._ended.is_set():
                self._beat(connection, epoch)
            self._end_hearing()
        except Lost:
            # Who has taken over has begun with a gap.
            raise
        except BaseException:
            self._end_hearing()
            raise
        finally:
            self.listens = False
            connection.close()

    def _end_hearing(self) -> None:
        with suppress(Error):
            self._near.gap()

    def _beat(self, connection: Connection, epoch: int) -> None:
        sent = now()
        deadline = time.monotonic() + self._patience
        connection.send([["PING"]])
        while not self._apply(connection.receive(deadline)):
            pass
        if not self._has_lease() or not self._near.publish(epoch, sent):
            raise Lost
        self._flush()
        until = time.monotonic() + self._pause
        while not self._ended.is_set():
            left = until - time.monotonic()
            if left <= 0 or not connection.wait(left):
                return
            self._apply(connection.receive(time.monotonic() + self._patience))

    def _apply(self, message: Any) -> bool:
        """Does what a message says. Whether it is the answer to a PING."""
        if isinstance(message, Exception):
            raise message
        kind = message[0] if isinstance(message, list) else message
        if kind in (b"pong", b"PONG"):
            return True
        if kind == b"message":
            told = self._remote.told(message)
            if told is None:
                self._near.flushed()
            else:
                keys, tags = told
                self._near.removed(keys)
                for tag in tags:
                    self._near.cache.invalidate(tag)
        return False

    def _flush(self) -> None:
        """Invalidates in the remote what could not be written there."""
        for place, names in self._near.noted().items():
            try:
                for name, mark in names.items():
                    with suppress(RefusedError):
                        self._invalidate(place, name, mark)
            except RemoteError:
                # The next beat tries again.
                return

    def _invalidate(self, place: bytes, name: bytes, mark: bytes) -> None:
        deadline = time.monotonic() + self._pause
        kind, rest = name[:1], name[1:]
        if name == ALL:
            self._remote.remove_all(self._patience)
        elif kind == b"t":
            self._remote.invalidate(rest, deadline)
        else:
            # Who writes the key takes it out of the journal first: so what is seen here, and is in
            # the journal after that, was not written since.
            try:
                found = self._remote.fetch(rest, deadline)
            except RefusedError:
                # It is nothing that a tier has written.
                self._remote.remove(rest, deadline)
            else:
                if not self._near.is_noted(place, name, mark):
                    return
                self._remote.discard(rest, found, deadline)
        self._near.forget(place, name, mark)
