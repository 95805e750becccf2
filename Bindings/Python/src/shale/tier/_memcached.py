"""The remote with memcached: its meta commands, over connections of a pymemcache client.

memcached does not announce changes, so an entry of the near cache is valid for the bound after its
read. Each change of a key gives it another number (cas), and a write of a value names the number
that it has read. A set first stores a marker under a key that is absent, which a late set would
find absent again after a removal. A restarted server counts from 1 again, so a number means
something only on the connection that has read it: a later write reads the key again, and compares
its bytes.
"""

from __future__ import annotations

import base64
import hashlib
import select
import time
from typing import Any, Callable, Final, NamedTuple, Union

from .._native.errors import InvalidError
from ._errors import NoTimeError, RefusedError
from ._format import (
    ABOUT_TO_SET,
    Tags,
    decode,
    is_loading_elsewhere,
    new_version,
    set_at,
    tags_of,
    with_time,
)
from ._io import blocking
from ._redis import LOAD_MS, Fetched
from ._wire import Wire, describe_answer

_LONGEST_KEY: Final = 250
"""Bytes of a key as it is sent."""

_LONGEST_PREFIX: Final = 151
"""The longest with which a hashed key, in base64, is no longer."""

_STATISTICS: Final = b"stats\r\n"

_TICK: Final = 2
"""Seconds by which the server's clock, which it reads once a second, may be late."""

# Seconds; a longer life is sent as a date.
_LONGEST_LIFE: Final = 30 * 24 * 3600

_LAST_DATE: Final = 2**31 - 1
"""Of a life: the server takes a later date for one in the past."""


class Name(NamedTuple):
    """A key as it is sent."""

    key: bytes
    flags: list[bytes]


class Reply(NamedTuple):
    code: bytes
    flags: dict[str, bytes]
    data: bytes


class Connection:
    def __init__(self, client: Any, deadline: float) -> None:
        left = deadline - time.monotonic()
        if left <= 0:
            raise NoTimeError
        # A client like the given one: pymemcache opens TLS and Unix sockets.
        self._client = type(client)(
            client.server,
            connect_timeout=left,
            timeout=left,
            no_delay=True,
            socket_module=client.socket_module,
            socket_keepalive=client.socket_keepalive,
            tls_context=client.tls_context,
        )
        if hasattr(self._client, "_create_client"):
            self._client = self._client._create_client()  # from a pool
        self._client._connect()
        self._sock = self._client.sock
        self._buffer = b""
        self._measured = False
        self._ahead: Union[float, None] = None

    def call(
        self, command: bytes, name: Name, flags: list[bytes], deadline: float, data: Any = None
    ) -> Reply:
        """A meta command and its reply. data: for a command that sets."""
        sizes = [] if data is None else [b"%d" % len(data)]
        line = b" ".join([command, name.key, *sizes, *name.flags, *flags]) + b"\r\n"
        self._wait(deadline)
        self._sock.sendall(line if data is None else line + data + b"\r\n")
        code, *rest = self._line(deadline).split(b" ")
        if code.isupper() and len(code) > 2:
            # ERROR, CLIENT_ERROR, SERVER_ERROR. The connection may be out of sync.
            self.close()
            text = b" ".join([code, *rest]).decode(errors="replace")
            raise RefusedError(f"the remote refused: {describe_answer(text, 'ERROR')}")
        body = b""
        if code == b"VA":
            size = int(rest.pop(0))
            body = self._exactly(size + 2, deadline)[:size]
        return Reply(code, {each[:1].decode(): each[1:] for each in rest}, body)

    def server_time(self, deadline: float) -> Union[int, None]:
        """The server's clock, in whole seconds; None if it does not say."""
        self._wait(deadline)
        self._sock.sendall(_STATISTICS)
        found = None
        while True:
            kind, *rest = self._line(deadline).split(b" ")
            if kind == b"END":
                return found
            if kind != b"STAT":
                return None
            if rest[0] == b"time":
                found = int(rest[1])

    def time_of_set(self, deadline: float) -> Union[int, None]:
        """The server's clock or an earlier time, microseconds; None if it does not say."""
        if not self._measured:
            self._measured = True
            seconds = self.server_time(deadline)
            self._ahead = None if seconds is None else seconds - time.monotonic()
        return None if self._ahead is None else int((time.monotonic() + self._ahead) * 1e6)

    def _wait(self, deadline: float) -> None:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("no answer came in time")
        self._sock.settimeout(left)

    def _more(self, deadline: float) -> None:
        self._wait(deadline)
        data = self._sock.recv(1 << 16)
        if not data:
            raise ConnectionError("the connection was closed")
        self._buffer += data

    def _line(self, deadline: float) -> bytes:
        while b"\r\n" not in self._buffer:
            self._more(deadline)
        line, _, self._buffer = self._buffer.partition(b"\r\n")
        return line

    def _exactly(self, size: int, deadline: float) -> bytes:
        while len(self._buffer) < size:
            self._more(deadline)
        data, self._buffer = self._buffer[:size], self._buffer[size:]
        return data

    @property
    def is_idle(self) -> bool:
        """Whether it can be used again: it is not closed, and has no unread bytes."""
        if self._client.sock is None or self._buffer:
            return False
        return not select.select([self._sock], [], [], 0)[0]

    def close(self) -> None:
        self._client.close()


class Memcached:
    """Calls of the remote: as `Redis`. Each waits in a thread."""

    pushes: Final = False
    # No command removes the keys with a prefix.
    most_noted: Final = float("inf")

    def __init__(self, client: Any, prefix: bytes, timeout: float, retry: float) -> None:
        if len(prefix) > _LONGEST_PREFIX:
            raise InvalidError(
                f"a prefix in memcached has at most {_LONGEST_PREFIX} bytes, not {len(prefix)}"
            )
        self.wire = Wire(lambda deadline: Connection(client, deadline), timeout, retry)
        self.prefix = prefix
        self.machine = b""
        self.timeout = timeout
        self.configuration = b"memcached " + prefix

    def after_fork(self) -> None:
        self.wire.after_fork()

    def close(self) -> None:
        self.wire.idle.close()

    def async_wires(self, _in_thread: Any) -> Callable[[], None]:
        """None: its calls wait in threads."""
        return lambda: None

    def _name(self, kind: bytes, name: bytes) -> Name:
        sent = _sent(self.prefix + kind + b":" + name)
        if len(sent.key) <= _LONGEST_KEY:
            return sent
        return _sent(self.prefix + kind + b"#:" + hashlib.sha256(name).digest())

    def _call(
        self, command: bytes, name: Name, flags: list[bytes], deadline: float, data: Any = None
    ) -> Reply:
        with self.wire.connection(deadline) as connection:
            reply: Reply = connection.call(command, name, flags, deadline, data)
        return reply

    @blocking
    def fetch(self, key: bytes, deadline: float) -> Fetched:
        reply = self._call(b"mg", self._name(b"k", key), [b"v", b"t", b"c"], deadline)
        if reply.code != b"VA":
            return Fetched(None, None)
        left = int(reply.flags["t"])
        return Fetched(reply.data, None if left == -1 else left * 1000, reply.flags["c"])

    @blocking
    def versions(self, tags: list[bytes], deadline: float) -> list[Union[bytes, None]]:
        return self._versions(tags, deadline)

    def _versions(self, tags: list[bytes], deadline: float) -> list[Union[bytes, None]]:
        return [self._version(tag, deadline) for tag in tags]

    def _version(self, tag: bytes, deadline: float) -> Union[bytes, None]:
        reply = self._call(b"mg", self._name(b"t", tag), [b"v"], deadline)
        return reply.data if reply.code == b"VA" else None

    @blocking
    def make_versions(self, tags: list[bytes], deadline: float) -> Tags:
        found = self._versions(tags, deadline)
        missing = [tag for tag, version in zip(tags, found) if version is None]
        # Only these: a server without memory removes the key that it does not set.
        for tag in missing:
            self._call(b"ms", self._name(b"t", tag), [b"ME"], deadline, new_version())
        return tags_of(tags, self._versions(tags, deadline) if missing else found)

    @blocking
    def store(self, key: bytes, raw: bytes, ttl: Union[int, None], deadline: float) -> None:
        """Reads and sets a value until no other change comes in between. If it raises, the value is
        stored later only if the key has not changed meanwhile."""
        name = self._name(b"k", key)
        with self.wire.connection(deadline) as connection:
            raw = with_time(raw, connection.time_of_set(deadline))
            marker_flags = [b"ME", b"c", _life(int(self.timeout * 1000) + _TICK * 1000)]
            while True:
                reply = connection.call(b"mg", name, [b"c"], deadline)
                if reply.code != b"HD":
                    reply = connection.call(b"ms", name, marker_flags, deadline, ABOUT_TO_SET)
                if reply.code != b"HD" or "c" not in reply.flags:
                    # Another call has stored a value in between, or an old server does not tell it.
                    continue
                flags = [b"C" + reply.flags["c"], _life(ttl)]
                if connection.call(b"ms", name, flags, deadline, raw).code == b"HD":
                    return

    @blocking
    def begin_load(self, key: bytes, marker: bytes, found: Fetched, deadline: float) -> bool:
        if found.raw is None:
            flags = [b"ME", _life(LOAD_MS)]
            reply = self._call(b"ms", self._name(b"k", key), flags, deadline, marker)
            return reply.code == b"HD"
        if is_loading_elsewhere(found.raw, self.machine):
            return False
        return self._replace(key, found, marker, LOAD_MS, deadline)

    @blocking
    def end_load(
        self, key: bytes, marker: bytes, raw: bytes, ttl: Union[int, None], deadline: float
    ) -> bool:
        return self._replace(key, Fetched(marker, None), raw, ttl, deadline)

    @blocking
    def cancel_load(self, key: bytes, marker: bytes, deadline: float) -> None:
        self._replace(key, Fetched(marker, None), None, None, deadline)

    @blocking
    def discard(self, key: bytes, found: Fetched, deadline: float) -> bool:
        return found.raw is None or self._replace(key, found, None, None, deadline)

    @blocking
    def was_set_within(self, raw: bytes, age: int, deadline: float) -> bool:
        at = set_at(raw)
        if at is None:
            return False
        with self.wire.connection(deadline) as connection:
            seconds = connection.server_time(deadline)
        if seconds is None:
            return False
        latest = (seconds + _TICK) * 1_000_000
        return bool(latest - age // 1000 < at <= latest)

    def _replace(
        self,
        key: bytes,
        found: Fetched,
        raw: Union[bytes, None],
        ttl: Union[int, None],
        deadline: float,
    ) -> bool:
        """Sets the value, or removes it, if the key has not changed since it was found. Whether it
        did."""
        name = self._name(b"k", key)
        with self.wire.connection(deadline) as connection:
            reply: Reply = connection.call(b"mg", name, [b"v", b"c"], deadline)
            seen = reply.flags.get("c")
            if reply.data != found.raw or seen is None or found.seen not in (None, seen):
                return False
            if raw is None:
                reply = connection.call(b"md", name, [b"C" + seen], deadline)
            else:
                reply = connection.call(b"ms", name, [b"C" + seen, _life(ttl)], deadline, raw)
            return reply.code == b"HD"

    @blocking
    def remove(self, key: bytes, deadline: float) -> bool:
        """Reads and removes a value until no other change comes in between: a late removal removes
        no newer value."""
        name = self._name(b"k", key)
        with self.wire.connection(deadline) as connection:
            while True:
                found: Reply = connection.call(b"mg", name, [b"v", b"c"], deadline)
                if found.code != b"VA":
                    return False
                code = connection.call(b"md", name, [b"C" + found.flags["c"]], deadline).code
                if code != b"EX":
                    return code == b"HD" and decode(found.data) is not None

    @blocking
    def invalidate(self, tag: bytes, deadline: float) -> None:
        # Without a version no value with the tag counts. A server without memory removes, too.
        self._call(b"md", self._name(b"t", tag), [], deadline)


def _sent(key: bytes) -> Name:
    """In base64 unless it is printable."""
    if key.isascii() and key.decode().isprintable() and b" " not in key:
        return Name(key, [])
    return Name(base64.b64encode(key), [b"b"])


def _life(ttl: Union[int, None]) -> bytes:
    """Whole seconds, at least one; no limit after the last date, which is decades away."""
    if ttl is None:
        return b"T0"
    seconds = max(1, -(-ttl // 1000))
    if seconds > _LONGEST_LIFE:
        seconds += int(time.time())
    return b"T%d" % (seconds if seconds <= _LAST_DATE else 0)
