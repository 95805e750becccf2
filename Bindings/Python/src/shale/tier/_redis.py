"""The remote, where it is Redis or Valkey: what a tier asks of it."""

from __future__ import annotations

import time
from typing import Any, Final, NamedTuple, Union

from ._errors import RefusedError, RemoteError
from ._format import LOADING, Tags, loading, new_version, tags_of
from ._resp import Command, Connection, Connector
from ._wire import Wire, refused

# A write that has been under way for longer than its caller waits is refused: it could overwrite
# what was written since.
_SET: Final = b"""
if ARGV[1] ~= '0' then
  local now = redis.call('TIME')
  if tonumber(now[1]) * 1000000 + tonumber(now[2]) > tonumber(ARGV[1]) then return 0 end
end
if ARGV[3] == '' then redis.call('SET', KEYS[1], ARGV[2])
else redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3]) end
return 1
"""

# Only where the value is still the one that was seen.
_REPLACE: Final = b"""
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if ARGV[2] == '' then redis.call('DEL', KEYS[1])
elseif ARGV[3] == '' then redis.call('SET', KEYS[1], ARGV[2])
else redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3]) end
return 1
"""


# How long a load keeps other machines from storing what they load, milliseconds.
LOAD_MS: Final = 30_000


class Fetched(NamedTuple):
    """What the remote has under a key."""

    raw: Union[bytes, None]
    ttl: Union[int, None]
    """Milliseconds that it lives from now on; None: no end."""
    server: bytes
    """Which server has it; empty where that does not tell."""
    seen: Any = None
    """For the remote: what it was, where that has to be the same later."""


class Redis:
    """Calls of the remote. Each lasts until its deadline, of time.monotonic(), at most, and raises
    RemoteError."""

    pushes: Final = True
    """Whether it tells what has changed."""

    most_noted: Final = 4096
    """Keys in an entry of the journal. Where there are more, all under the prefix is removed."""

    def __init__(self, client: Any, prefix: bytes, timeout: float, retry: float) -> None:
        self.wire = Wire(Connector(client), timeout, retry)
        self.prefix = prefix
        self.timeout = timeout
        self.configuration = b"redis " + prefix
        """What all who share a near cache agree on."""
        self._keys = prefix + b"k:"
        self._tags = prefix + b"t:"

    def _call(self, commands: list[Command], deadline: float, fresh: bool = False) -> Any:
        with self.wire.connection(deadline, fresh) as connection:
            replies = connection.call(commands, deadline)
            _leave_replica(connection, replies)
        return [refused(reply) for reply in replies], connection.server

    def after_fork(self) -> None:
        self.wire.after_fork()

    def close(self) -> None:
        self.wire.forget()

    def fetch(self, key: bytes, deadline: float, fresh: bool = False) -> Fetched:
        """fresh: by a new connection, which may lead to another server."""
        name = self._keys + key
        (raw, ttl), server = self._call([["GET", name], ["PTTL", name]], deadline, fresh)
        # The two are not atomic: where the key was changed in between, an invalidation follows.
        return Fetched(raw, None if ttl == -1 else max(0, ttl), server)

    def versions(self, tags: list[bytes], deadline: float) -> list[Union[bytes, None]]:
        """The versions that tags have; None for one that has none."""
        found, _ = self._call([["GET", self._tags + tag] for tag in tags], deadline)
        return list(found)

    def make_versions(self, tags: list[bytes], deadline: float) -> Tags:
        """The versions of tags; those that have none get one."""
        if not tags:
            return {}
        commands: list[Command] = []
        for tag in tags:
            name = self._tags + tag
            commands += (["SET", name, new_version(), "NX"], ["GET", name])
        found, _ = self._call(commands, deadline)
        return tags_of(tags, found[1::2])

    def store(self, key: bytes, raw: bytes, ttl: Union[int, None], deadline: float) -> None:
        """Sets a value. Where this raises, it was executed before, or never will be."""
        sent = False
        try:
            with self.wire.connection(deadline) as connection:
                limit = connection.server_time(deadline)
                command: Command = ["EVAL", _SET, 1, self._keys + key, limit, raw, _px(ttl)]
                sent = True
                replies = connection.call([command], deadline)
                _leave_replica(connection, replies)
        except RemoteError:
            if sent:
                # It may be on its way until then.
                time.sleep(max(0.0, deadline - time.monotonic()))
            raise
        if not refused(replies[0]):
            raise RefusedError("the remote refused: the write came after its time limit")

    def begin_load(self, key: bytes, found: Fetched, deadline: float) -> Any:
        """For `end_load`; None where another machine is loading it."""
        name, marker = self._keys + key, loading()
        if found.raw is None:
            (reply,), _ = self._call([["SET", name, marker, "NX", "PX", LOAD_MS]], deadline)
            return None if reply is None else marker
        if found.raw.startswith(LOADING):
            return None
        # A value that does not count any more.
        return marker if self._replace(key, found.raw, marker, LOAD_MS, deadline) else None

    def end_load(
        self, key: bytes, marker: Any, raw: bytes, ttl: Union[int, None], deadline: float
    ) -> bool:
        """Stores what was loaded, if nobody has changed the key since. Whether it did."""
        return self._replace(key, marker, raw, ttl, deadline)

    def discard(self, key: bytes, found: Fetched, deadline: float) -> None:
        """Removes what was found, if it is that still."""
        if found.raw is not None:
            self._replace(key, found.raw, b"", None, deadline)

    def _replace(
        self, key: bytes, seen: bytes, raw: bytes, ttl: Union[int, None], deadline: float
    ) -> bool:
        command: Command = ["EVAL", _REPLACE, 1, self._keys + key, seen, raw, _px(ttl)]
        (reply,), _ = self._call([command], deadline)
        return bool(reply)

    def remove(self, key: bytes, deadline: float) -> bool:
        (reply,), _ = self._call([["DEL", self._keys + key]], deadline)
        return bool(reply)

    def invalidate(self, tag: bytes, deadline: float) -> None:
        self._call([["SET", self._tags + tag, new_version()]], deadline)

    def remove_all(self, seconds: float) -> None:
        """Removes everything under the prefix, a few hundred keys at a time."""
        pattern = b"".join(
            b"\\" + bytes([byte]) if byte in b"*?[]\\^-" else bytes([byte]) for byte in self.prefix
        )
        cursor: Any = b"0"
        while True:
            command = ["SCAN", cursor, "MATCH", pattern + b"*", "COUNT", 500]
            (reply,), _ = self._call([command], time.monotonic() + seconds)
            cursor, names = reply
            if names:
                self._call([["DEL", *names]], time.monotonic() + seconds)
            if int(cursor) == 0:
                return

    # Invalidations

    def listen(self, deadline: float) -> Connection:
        """A connection by which the remote tells, from now on, what changes under the prefix.

        It is redirected to itself: by RESP2 this is one connection, so neither of two can end
        without the other.
        """
        connection: Connection = self.wire.connect(deadline)
        try:
            own = refused(connection.call([["CLIENT", "ID"]], deadline)[0])
            track: Command = [
                *("CLIENT", "TRACKING", "ON", "REDIRECT", own, "BCAST", "PREFIX", self.prefix)
            ]
            for command in (track, ["SUBSCRIBE", "__redis__:invalidate"]):
                refused(connection.call([command], deadline)[0])
        except BaseException:
            connection.close()
            raise
        return connection

    def told(self, message: Any) -> Union[tuple[list[bytes], list[bytes]], None]:
        """The keys and the tags that a message names; None: everything."""
        names = message[2]
        if names is None:
            return None
        keys = [each[len(self._keys) :] for each in names if each.startswith(self._keys)]
        tags = [each[len(self._tags) :] for each in names if each.startswith(self._tags)]
        return keys, tags


def _leave_replica(connection: Connection, replies: list[Any]) -> None:
    for reply in replies:
        if type(reply).__name__ == "ReadOnlyError":
            # It is no primary any more: the next connection may find another.
            connection.close()


def _px(ttl: Union[int, None]) -> Union[bytes, int]:
    return b"" if ttl is None else max(1, ttl)
