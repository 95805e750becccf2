"""The remote with Redis or Valkey."""

from __future__ import annotations

import time
from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, Final, NamedTuple, Union

from ._errors import RefusedError, RemoteError
from ._format import Tags, is_loading_elsewhere, is_name, new_version, set_at, tags_of
from ._io import Answer, Command, Exchange, Sleep, Steps
from ._resp import Connection, Connector, is_late, is_replica
from ._sentinels import sentinels_of
from ._wire import AsyncWire, Wire, before, refused

if TYPE_CHECKING:
    from ._near import NearCache

# A write that arrives after its caller's time limit is refused: it could overwrite a later one. One
# that seems to arrive before it was sent is refused, too: the server's clock was set back.
_IN_TIME: Final = b"""
local now
if ARGV[1] ~= '0' then
  local time = redis.call('TIME')
  now = tonumber(time[1]) * 1000000 + tonumber(time[2])
  if now < tonumber(ARGV[1]) or now > tonumber(ARGV[2]) then
    return redis.error_reply('LATE')
  end
end
"""

# In the form of the remote (`_format`) that has the time.
_SET: Final = (
    _IN_TIME
    + rb"""
local value = ARGV[3]
if now and value:sub(1, 4) == '\255S1v' then
  value = '\255S1w' .. struct.pack('<I8', now) .. value:sub(5)
end
if ARGV[4] == '' then redis.call('SET', KEYS[1], value)
else redis.call('SET', KEYS[1], value, 'PX', ARGV[4]) end
return 1
"""
)

_REMOVE: Final = _IN_TIME + b"return redis.call('DEL', KEYS[1])"

_INVALIDATE: Final = _IN_TIME + b"return redis.call('SET', KEYS[1], ARGV[3])"

# Only if the value is still the one that was read.
_REPLACE: Final = b"""
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if ARGV[2] == '' then redis.call('DEL', KEYS[1])
elseif ARGV[3] == '' then redis.call('SET', KEYS[1], ARGV[2])
else redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3]) end
return 1
"""


# The part of the time limit by which the clocks may drift apart, before a write is refused for it.
_DRIFT: Final = 0.1

# How long a load keeps other machines from storing what they load, milliseconds.
LOAD_MS: Final = 30_000


class Fetched(NamedTuple):
    """The value of a key in the remote."""

    raw: Union[bytes, None]
    ttl: Union[int, None]
    """The milliseconds until it expires; None: no limit."""
    seen: Any = None
    """For the remote: the state that has to be unchanged later."""


class Redis:
    """Calls of the remote, as steps. Each ends by its deadline, of time.monotonic(), and may raise
    RemoteError."""

    pushes: Final = True
    """Whether it announces changes."""

    most_noted: Final = 32
    """The most names in a bucket of the journal. With more, all keys of the prefix are removed."""

    near: NearCache
    """The tier sets it. It knows the primary of the machine."""

    def __init__(self, client: Any, prefix: bytes, timeout: float, retry: float) -> None:
        self._connector = Connector(client)
        most = self._connector.most
        self._retry = retry
        self._sentinels = sentinels_of(client, timeout, retry)
        self.wire = Wire(self._connect, timeout, retry, most, self._is_usable)
        self.prefix = prefix
        self.machine = b""
        """In its markers of loads."""
        self.timeout = timeout
        self.configuration = self._connector.configuration + b" " + prefix
        """Equal for all tiers that share a near cache. Addresses change in a failover."""
        self._keys = prefix + b"k:"
        self._tags = prefix + b"t:"

    def _connect(self, deadline: float) -> Connection:
        """A new connection, to the primary of the machine or its successor. Whatever two calls of a
        load use, the server is the same, or an epoch has begun since and nothing is kept near."""
        while True:
            epoch = self.near.epoch()
            named = None if self._sentinels is None else self._sentinels.primary(deadline)
            connection = self._connector(deadline, named)
            if self._follows(connection, epoch):
                return connection

    def _follows(self, connection: Any, epoch: int) -> bool:
        """Whether the connection leads to the primary of the machine. If another call has found the
        successor while this one connected to its predecessor, it does not, and is closed."""
        follows = False
        try:
            follows = self.near.follow(connection.server, epoch)
        finally:
            if not follows:
                connection.close()
        return follows

    def _is_usable(self, connection: Any) -> bool:
        return self.near.leads_to(connection.server) and bool(connection.is_idle)

    def _exchange(self, step: Exchange) -> Steps[Answer]:
        answer: Answer = yield step
        if is_replica(answer.replies):
            # The next connection may find the new primary.
            self.near.leave(answer.server)
        return answer

    def _call(self, commands: list[Command], deadline: float) -> Steps[list[Any]]:
        answer = yield from self._exchange(Exchange(commands, deadline))
        return [refused(reply) for reply in answer.replies]

    def after_fork(self) -> None:
        self.wire.after_fork()
        if self._sentinels is not None:
            self._sentinels.after_fork()

    def close(self) -> None:
        self.wire.idle.close()
        if self._sentinels is not None:
            self._sentinels.close()

    def async_wires(
        self, in_thread: Callable[[Callable[[], Any]], Awaitable[Any]]
    ) -> Callable[[], AsyncWire]:
        """Makes a wire for the running event loop. InvalidError if there are no connections for
        asyncio like the client's. in_thread: awaits a function that blocks."""
        from ._resp_async import AsyncConnector

        connector = AsyncConnector(self._connector)

        async def connect(deadline: float) -> Any:
            while True:
                epoch = self.near.epoch()
                named = None
                if self._sentinels is not None:
                    ask = in_thread(partial(self._sentinels.primary, deadline))
                    named = await before(deadline, ask)
                connection = await connector.connect(deadline, named)
                if self._follows(connection, epoch):
                    return connection

        return lambda: AsyncWire(connect, self.wire)

    def fetch(self, key: bytes, deadline: float) -> Steps[Fetched]:
        name = self._keys + key
        raw, ttl = yield from self._call([["GET", name], ["PTTL", name]], deadline)
        # The two are not atomic: if the key changes in between, an invalidation follows.
        return Fetched(raw, None if ttl == -1 else max(0, ttl))

    def versions(self, tags: list[bytes], deadline: float) -> Steps[list[Union[bytes, None]]]:
        """The versions of tags; None for a tag without one."""
        found = yield from self._call([["GET", self._tags + tag] for tag in tags], deadline)
        return found

    def make_versions(self, tags: list[bytes], deadline: float) -> Steps[Tags]:
        """The versions of tags; a tag without a version gets one."""
        if not tags:
            return {}
        commands: list[Command] = []
        for tag in tags:
            name = self._tags + tag
            commands += (["SET", name, new_version(), "NX"], ["GET", name])
        found = yield from self._call(commands, deadline)
        return tags_of(tags, found[1::2])

    def store(self, key: bytes, raw: bytes, ttl: Union[int, None], deadline: float) -> Steps[None]:
        """Sets a value."""
        yield from self._write(_SET, self._keys + key, [raw, _px(ttl)], deadline)

    def _write(
        self, script: bytes, name: bytes, arguments: list[Any], deadline: float
    ) -> Steps[Any]:
        """The script's answer. If it raises, the script was executed before, or never will be."""
        replies = yield from self._write_in_time(script, name, arguments, deadline)
        if not replies and time.monotonic() < deadline:
            # The server's clock was moved, probably. A new connection measures it.
            replies = yield from self._write_in_time(script, name, arguments, deadline, fresh=True)
        if not replies:
            raise RefusedError("the remote refused: the write came after its time limit")
        return replies[0]

    def _write_in_time(
        self,
        script: bytes,
        name: bytes,
        arguments: list[Any],
        deadline: float,
        fresh: bool = False,
    ) -> Steps[list[Any]]:
        """The answer; none if it came after its time limit by the server's clock."""
        sent = False

        def commands(connection: Any) -> list[Command]:
            nonlocal sent
            sent = True
            current = time.monotonic()
            early = min(self.timeout * _DRIFT, (deadline - current) / 2)
            first = connection.server_time(current - early)
            last = connection.server_time(deadline - early)
            return [["EVAL", script, 1, name, first, last, *arguments]]

        try:
            answer = yield from self._exchange(Exchange(commands, deadline, fresh))
        except RemoteError:
            if sent:
                # The server may execute it until then.
                yield Sleep(max(0.0, deadline - time.monotonic()))
            raise
        (reply,) = answer.replies
        return [] if is_late(reply) else [refused(reply)]

    def was_set_within(self, raw: bytes, age: int, deadline: float) -> Steps[bool]:
        """Whether a set has stored this value within so many nanoseconds before this call. False if
        it does not say."""
        at = set_at(raw)
        if at is None:
            return False
        (reply,) = yield from self._call([["TIME"]], deadline)
        now = int(reply[0]) * 1_000_000 + int(reply[1])
        # The server has read its clock after the call began, which errs towards False. A time in
        # the future is from before its clock was set back.
        return now - age // 1000 < at <= now

    def begin_load(self, key: bytes, marker: bytes, found: Fetched, deadline: float) -> Steps[bool]:
        """Stores the marker, for `end_load` and `cancel_load`. False if another machine is loading
        the key. A marker of this machine is of a process that was killed: its lease is over."""
        if found.raw is None:
            command: Command = ["SET", self._keys + key, marker, "NX", "PX", LOAD_MS]
            (reply,) = yield from self._call([command], deadline)
            return reply is not None
        if is_loading_elsewhere(found.raw, self.machine):
            return False
        # A value that is no longer valid.
        return (yield from self._replace(key, found.raw, marker, LOAD_MS, deadline))

    def end_load(
        self, key: bytes, marker: bytes, raw: bytes, ttl: Union[int, None], deadline: float
    ) -> Steps[bool]:
        """Stores a loaded value, if the key has not changed since. Whether it did."""
        return (yield from self._replace(key, marker, raw, ttl, deadline))

    def cancel_load(self, key: bytes, marker: bytes, deadline: float) -> Steps[None]:
        """Undoes `begin_load`: other machines may load the key."""
        yield from self._replace(key, marker, b"", None, deadline)

    def discard(self, key: bytes, found: Fetched, deadline: float) -> Steps[bool]:
        """Removes the value that was found. False if it has changed."""
        if found.raw is None:
            return True
        return (yield from self._replace(key, found.raw, b"", None, deadline))

    def _replace(
        self, key: bytes, seen: bytes, raw: bytes, ttl: Union[int, None], deadline: float
    ) -> Steps[bool]:
        command: Command = ["EVAL", _REPLACE, 1, self._keys + key, seen, raw, _px(ttl)]
        (reply,) = yield from self._call([command], deadline)
        return bool(reply)

    def remove(self, key: bytes, deadline: float) -> Steps[bool]:
        return bool((yield from self._write(_REMOVE, self._keys + key, [], deadline)))

    def invalidate(self, tag: bytes, deadline: float) -> Steps[None]:
        yield from self._write(_INVALIDATE, self._tags + tag, [new_version()], deadline)

    def remove_all(self, seconds: float) -> Steps[None]:
        """Removes all keys with the prefix, a few hundred at a time."""
        pattern = b"".join(
            b"\\" + bytes([byte]) if byte in b"*?[]\\^-" else bytes([byte]) for byte in self.prefix
        )
        cursor: Any = b"0"
        while True:
            command = ["SCAN", cursor, "MATCH", pattern + b"*", "COUNT", 500]
            (reply,) = yield from self._call([command], time.monotonic() + seconds)
            cursor, names = reply
            if names:
                yield from self._call([["DEL", *names]], time.monotonic() + seconds)
            if int(cursor) == 0:
                return

    # Invalidations

    def listen(self, seconds: float) -> Connection:
        """A connection over which the remote announces, from now on, changes of keys with the
        prefix. seconds: for each step.

        Its invalidations are redirected to itself: with RESP2 this needs one connection, not two of
        which one could end before the other.
        """
        connection = self._connect(time.monotonic() + seconds)
        try:
            if self._sentinels is None and connection.server:
                connection.control = self._connect(time.monotonic() + seconds)
                if connection.control.server != connection.server:
                    raise ConnectionError("another server became the primary")
            (own,) = connection.call([["CLIENT", "ID"]], time.monotonic() + seconds)
            track: Command = [
                *("CLIENT", "TRACKING", "ON", "REDIRECT", refused(own)),
                *("BCAST", "PREFIX", self.prefix),
            ]
            subscribe: Command = ["SUBSCRIBE", "__redis__:invalidate"]
            for reply in connection.call([track, subscribe], time.monotonic() + seconds):
                refused(reply)
        except BaseException:
            connection.close()
            raise
        return connection

    def is_primary(self, connection: Connection, deadline: float) -> bool:
        """Whether a connection of `listen` still leads to the primary, as far as is known."""
        if self._sentinels is None:
            return connection.is_primary(deadline)
        try:
            # They may not delay the listener for long: its lease lasts half a bound.
            soon = min(deadline, time.monotonic() + self._retry)
            return self._sentinels.primary(soon) == connection.address
        except RemoteError:
            return True

    def changes_in(self, message: Any) -> Union[tuple[list[bytes], list[bytes]], None]:
        """The keys and the tags in a message; None: all."""
        names = message[2]
        if names is None:
            return None
        keys = [each[len(self._keys) :] for each in names if each.startswith(self._keys)]
        tags = [each[len(self._tags) :] for each in names if each.startswith(self._tags)]
        return list(filter(is_name, keys)), list(filter(is_name, tags))


def _px(ttl: Union[int, None]) -> Union[bytes, int]:
    return b"" if ttl is None else max(1, ttl)
