"""The listener: one process per machine hears what changes in the remote.

Each process has a thread that asks for the listener's lease every quarter of the bound, a second at
most. The lease lasts half the bound, at least 0.1 s; the heartbeat renews it, however long the
remote takes, until the process ends or is stopped. Its holder connects, publishes the server and a
new epoch, makes all near entries stale, and then repeats: send a PING, apply the messages before
its answer, publish when the PING was sent (*heard*), work through the journal, and wait as long,
applying messages as they come. If the remote sends no messages, the thread only does the journal.

Why a near hit is never older than the bound:

* An entry is valid until the bound after its reading began or after *heard*; every change that the
  remote executed before either is in the near cache. A reader takes *heard* before it reads the
  entry and the clock after it, so an event in between makes the entry count as older, never newer.
* Redis sends broadcast messages at the end of each turn of its event loop, and a PING of that turn
  could be answered first, but only if it arrived before the turn began. So there is never more than
  one PING under way, and *heard* is taken before it is sent.
* A half-open connection, a stopped listener or a hanging remote answers no PING: *heard* stands
  still, and after the bound only entries read since are valid.
* A listener that was stopped finds, when it publishes, that its epoch is over, and closes its
  connection. The entries that it invalidated until then were invalid.

Why no fill brings back an old value: it draws a fencing token before it reads, and stores only if
its key, its tags and the epoch's tag are unchanged. A message removes its key even where it is
absent. A call uses only connections to the server of the epoch (its ``run_id``); one that connects
to another begins an epoch. So a fill that reads elsewhere than its epoch's listener stores nothing.

Messages come by RESP2, redirected to the same connection, in broadcasting mode:

* With two connections the tracking one could end alone, and the remote would then send nothing.
* Push messages of RESP3 arrive in redis-py only while another call reads, and not with hiredis.
* Broadcasting costs the remote a message for each change and machine, but no memory for each key
  that is read, and the readers' connections need no tracking.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Union

from .._native.errors import Error
from .._store import heartbeat
from ._errors import RefusedError, RemoteError
from ._io import Steps, V, run
from ._journal import digest
from ._near import now

if TYPE_CHECKING:
    from .._store.leases import HeldLease
    from ._journal import Names, Noted
    from ._near import NearCache
    from ._resp import Connection
    from ._wire import Causes


# Seconds between two PINGs.
_LONGEST_PAUSE: Final = 1.0

# Milliseconds: for the heartbeat of a busy machine.
_SHORTEST_LEASE: Final = 100


class Lost(Exception):
    """Another process is the listener now."""


class Listener:
    """The listener thread of this process. It ends with `stop`, or when the near cache closes."""

    def __init__(self, near: NearCache, remote: Any, bound: float, causes: Causes) -> None:
        """bound: seconds."""
        self._near = near
        self._causes = causes
        self._remote = remote
        self._wire = remote.wire.separate()
        """For the journal: no call of a user waits or fails because of it."""
        self._bound = bound
        self._pause = min(bound / 4, _LONGEST_PAUSE)
        # A connection may take longer than the bound; no entry is valid meanwhile.
        self._patience = max(2 * bound, 1.0)
        self._ended = threading.Event()
        self._lease: Union[HeldLease, None] = None
        self._bucket = b""
        """Of the journal: the last that was flushed."""
        self._sweeps = True
        """Whether all buckets are to be read."""
        self.listens = False
        """Whether this process is the listener."""
        self._thread = threading.Thread(target=self._run, name="shale tier", daemon=True)
        self._thread.start()

    def stop(self, seconds: Union[float, None] = None) -> None:
        """Returns after this time at the latest: a thread that still connects ends by itself."""
        self._ended.set()
        self._thread.join(seconds)
        self._release()

    def _run(self) -> None:
        try:
            self._listen_in_turn()
        finally:
            self._wire.idle.close()
            self._release()

    def _release(self) -> None:
        lease = self._lease
        if lease is not None:
            heartbeat.end(lease)
            lease.release()

    def _listen_in_turn(self) -> None:
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
                self._causes.begin("listener", error, "changes in the remote are not received")
            self._ended.wait(self._pause)

    def _has_lease(self) -> bool:
        """Whether this process holds the lease. An expired lease counts if no other process has
        taken it."""
        if self._lease is None or not self._lease.renew():
            # A connection may take many times as long. Another process takes over half a bound
            # after this one was stopped.
            self._lease = self._near.lease(max(_SHORTEST_LEASE, int(self._bound * 500)))
            if self._lease is not None:
                heartbeat.begin(self._lease)
        return self._lease is not None

    def _listen(self) -> None:
        connection = self._remote.listen(self._patience)
        try:
            epoch = self._near.take_over(connection.server)
            self._causes.end("listener")
            self._remote.wire.back_off.answers()
            self.listens = True
            while not self._ended.is_set():
                self._beat(connection, epoch)
            self._end_hearing()
        except Lost:
            # The new listener has made all entries stale.
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
        # After the time that is published: what was executed before it was executed by the primary.
        if not self._remote.is_primary(connection, deadline):
            self._near.leave(connection.server)
            raise RemoteError("the server is no longer the primary")
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
        """Applies a message. Whether it is the answer to a PING."""
        if isinstance(message, Exception):
            raise message
        kind = message[0] if isinstance(message, list) else message
        if kind in (b"pong", b"PONG"):
            return True
        if kind == b"message":
            changes = self._remote.changes_in(message)
            if changes is None:
                self._near.flushed()
            else:
                keys, tags = changes
                self._near.removed(keys)
                for tag in tags:
                    self._near.cache.invalidate(tag)
        return False

    def _flush(self) -> None:
        """Invalidates the keys and tags of the journal in the remote. After a pause's time the next
        round continues."""
        journal = self._near.journal
        until = time.monotonic() + self._pause
        with suppress(RemoteError):
            everything = journal.everything()
            if everything is not None:
                journal.remove_names()
                self._call(self._remote.remove_all(max(self._patience, self._remote.timeout)))
                journal.end_everything(everything)
            found = sorted(journal.buckets(every=self._sweeps))
            self._sweeps = False
            later = [each for each in found if each > self._bucket]
            for bucket in later + found[: len(found) - len(later)]:
                if not self._flush_bucket(bucket):
                    return
                if time.monotonic() >= until or self._ended.is_set():
                    return

    def _call(self, steps: Steps[V]) -> V:
        return run(steps, self._wire)

    def _flush_bucket(self, bucket: bytes) -> bool:
        """False if the remote has refused a call: it would refuse others, too."""
        self._bucket = bucket
        journal = self._near.journal
        ended: Names = {}
        refused = False
        try:
            for name, noted in journal.names(bucket).items():
                try:
                    if self._invalidate(bucket, name, noted):
                        ended[name] = noted
                except RefusedError:
                    refused = True
        finally:
            journal.end(bucket, ended)
        return not refused

    def _invalidate(self, bucket: bytes, name: bytes, noted: Noted) -> bool:
        """Invalidates a key or tag whose write has failed. False if that is still to be done.

        A key keeps its value only if a set stored it after the failed write began, by the server's
        clock; every other value may be older than that write, or be the one that it sent. What this
        machine has read or heard of the key shows neither: it may have missed changes before the
        failure, and the change that it hears of after it may be the end of a load that began
        before.
        """
        remote, journal = self._remote, self._near.journal
        if journal.pending(noted, now()):
            return False
        deadline = time.monotonic() + remote.timeout
        kind, rest = name[:1], name[1:]
        if kind == b"t":
            self._call(remote.invalidate(rest, deadline))
            return True
        try:
            found = self._call(remote.fetch(rest, deadline))
        except RefusedError:
            # No tier has written this value.
            self._call(remote.remove(rest, deadline))
            return True
        # A writer takes the key from the journal first: a value that is read here, while its key is
        # still in the journal afterwards, was not written by this machine since.
        if found.raw is None or not journal.is_noted(bucket, name, noted):
            return True
        age = journal.age(noted, now())
        if (
            age is not None
            and digest(found.raw) != noted.sent
            and self._call(remote.was_set_within(found.raw, age, deadline))
        ):
            return True
        return bool(self._call(remote.discard(rest, found, deadline)))
