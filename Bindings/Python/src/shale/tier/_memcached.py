"""The remote, where it is memcached: by its meta commands, over connections as a pymemcache client
makes them.

It does not tell what has changed, so a near entry is good for the bound after it was read. Each
change of a key gives it another number (cas), and every write names the one that it has seen.
"""

from __future__ import annotations

import base64
import hashlib
import select
import time
from typing import Any, Final, NamedTuple, Union

from ._errors import RefusedError
from ._format import Tags, decode, new_version, tags_of
from ._redis import LOAD_MS, Fetched
from ._wire import Wire

LONGEST_KEY: Final = 250

# Seconds; a longer life is given as a date.
_LONGEST_LIFE: Final = 30 * 24 * 3600

# Loading: somebody has the right to load the key, and there is no value yet.
_LOADING: Final = frozenset("WZ")


class Reply(NamedTuple):
    code: bytes
    flags: dict[str, bytes]
    data: bytes


class Connection:
    def __init__(self, client: Any, deadline: float) -> None:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("no time is left to connect")
        # A client of its own, as the one that was given: pymemcache opens TLS and Unix sockets.
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
            self._client = self._client._create_client()  # one of a pool
        self._client._connect()
        self._sock = self._client.sock
        self._buffer = b""

    def call(
        self, name: bytes, key: bytes, flags: list[bytes], deadline: float, data: Any = None
    ) -> Reply:
        """A meta command and its reply. data: of one that sets."""
        if len(key) > LONGEST_KEY:
            raise RefusedError(f"the remote refused: a key has up to {LONGEST_KEY} bytes")
        if not key.isascii() or not key.decode().isprintable() or b" " in key:
            key, flags = base64.b64encode(key), [*flags, b"b"]
        parts = [name, key]
        if data is not None:
            parts.append(b"%d" % len(data))
        line = b" ".join([*parts, *flags]) + b"\r\n"
        self._wait(deadline)
        self._sock.sendall(line if data is None else line + data + b"\r\n")
        code, *rest = self._line(deadline).split(b" ")
        if code.isupper() and len(code) > 2:
            # ERROR, CLIENT_ERROR, SERVER_ERROR. The connection may be out of step.
            self.close()
            raise RefusedError(f"the remote refused: {b' '.join([code, *rest]).decode()}")
        body = b""
        if code == b"VA":
            size = int(rest.pop(0))
            body = self._exactly(size + 2, deadline)[:size]
        return Reply(code, {each[:1].decode(): each[1:] for each in rest}, body)

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
        """Whether it can be used again: nobody has closed it, and nothing came unasked."""
        if self._client.sock is None or self._buffer:
            return False
        return not select.select([self._sock], [], [], 0)[0]

    def close(self) -> None:
        self._client.close()


class Memcached:
    """Calls of the remote: as `Redis`."""

    pushes: Final = False
    # There is no command that removes what begins with a prefix.
    most_noted: Final = float("inf")

    def __init__(self, client: Any, prefix: bytes, timeout: float, retry: float) -> None:
        self.wire = Wire(lambda deadline: Connection(client, deadline), timeout, retry)
        self.prefix = prefix
        self.timeout = timeout
        self.configuration = b"memcached " + prefix

    def after_fork(self) -> None:
        self.wire.after_fork()

    def close(self) -> None:
        self.wire.forget()

    def _name(self, kind: bytes, name: bytes) -> bytes:
        full = self.prefix + kind + b":" + name
        if len(full) <= LONGEST_KEY:
            return full
        return self.prefix + kind + b"#:" + hashlib.sha256(name).digest()

    def _call(
        self, name: bytes, key: bytes, flags: list[bytes], deadline: float, data: Any = None
    ) -> Reply:
        with self.wire.connection(deadline) as connection:
            reply: Reply = connection.call(name, key, flags, deadline, data)
        return reply

    def fetch(self, key: bytes, deadline: float, fresh: bool = False) -> Fetched:
        reply = self._call(b"mg", self._name(b"k", key), [b"v", b"t", b"c"], deadline)
        if reply.code != b"VA":
            return Fetched(None, None, b"")
        cas = reply.flags["c"]
        if _LOADING & reply.flags.keys():
            return Fetched(None, None, b"", cas)
        left = int(reply.flags["t"])
        return Fetched(reply.data, None if left == -1 else left * 1000, b"", cas)

    def versions(self, tags: list[bytes], deadline: float) -> list[Union[bytes, None]]:
        return [self._version(tag, deadline) for tag in tags]

    def _version(self, tag: bytes, deadline: float) -> Union[bytes, None]:
        reply = self._call(b"mg", self._name(b"t", tag), [b"v"], deadline)
        return reply.data if reply.code == b"VA" else None

    def make_versions(self, tags: list[bytes], deadline: float) -> Tags:
        for tag in tags:
            self._call(b"ms", self._name(b"t", tag), [b"ME"], deadline, new_version())
        return tags_of(tags, self.versions(tags, deadline))

    def store(self, key: bytes, raw: bytes, ttl: Union[int, None], deadline: float) -> None:
        """Sets a value, if it is what it was a moment ago; else looks again. Where this raises, it
        is stored later only if nobody has changed the key meanwhile."""
        name = self._name(b"k", key)
        while True:
            seen = self._call(b"mg", name, [b"c"], deadline).flags.get("c")
            condition = b"ME" if seen is None else b"C" + seen
            reply = self._call(b"ms", name, [condition, _life(ttl)], deadline, raw)
            if reply.code == b"HD":
                return

    def begin_load(self, key: bytes, found: Fetched, deadline: float) -> Any:
        if found.raw is not None:
            return found.seen
        life = b"N%d" % (LOAD_MS // 1000)
        reply = self._call(b"mg", self._name(b"k", key), [b"c", life], deadline)
        return reply.flags["c"] if "W" in reply.flags else None

    def end_load(
        self, key: bytes, token: Any, raw: bytes, ttl: Union[int, None], deadline: float
    ) -> bool:
        flags = [b"C" + token, _life(ttl)]
        return self._call(b"ms", self._name(b"k", key), flags, deadline, raw).code == b"HD"

    def discard(self, key: bytes, found: Fetched, deadline: float) -> None:
        if found.seen is not None:
            self._call(b"md", self._name(b"k", key), [b"C" + found.seen], deadline)

    def remove(self, key: bytes, deadline: float) -> bool:
        found = self.fetch(key, deadline)
        removed = self._call(b"md", self._name(b"k", key), [], deadline).code == b"HD"
        return removed and decode(found.raw) is not None

    def invalidate(self, tag: bytes, deadline: float) -> None:
        self._call(b"ms", self._name(b"t", tag), [], deadline, new_version())


def _life(ttl: Union[int, None]) -> bytes:
    """Whole seconds, and one at least."""
    if ttl is None:
        return b"T0"
    seconds = max(1, -(-ttl // 1000))
    return b"T%d" % (seconds if seconds <= _LONGEST_LIFE else seconds + int(time.time()))
