"""Connections to Redis or Valkey by redis-py or valkey-py, with the options of a client.

The client library handles TLS, users and passwords, Unix sockets, databases and sentinels. Its
retries are not used.
"""

from __future__ import annotations

import importlib
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, Union

from .._native.errors import InvalidError
from ._errors import NoTimeError, RefusedError
from ._io import Command

# Options of a connection that are replaced, or that RESP2 does not have.
_OWN = (
    *("cache", "cache_config", "himport_registry", "retry", "retry_on_error", "retry_on_timeout"),
)


class _Socket:
    """A socket whose operations end by one deadline, of time.monotonic(). The client library would
    give as much time to each of them, however many a long reply needs, or a new connection."""

    def __init__(self, inner: Any, deadline: float) -> None:
        self._inner = inner
        self.deadline: Union[float, None] = deadline
        """None: as long as the library says."""

    def settimeout(self, seconds: Union[float, None]) -> None:
        self.deadline = None
        self._inner.settimeout(seconds)

    def recv(self, *arguments: Any) -> bytes:
        received: bytes = self._in_time().recv(*arguments)
        return received

    def recv_into(self, *arguments: Any) -> int:
        received: int = self._in_time().recv_into(*arguments)
        return received

    def sendall(self, *arguments: Any) -> None:
        self._in_time().sendall(*arguments)

    def _in_time(self) -> Any:
        if self.deadline is not None:
            left = self.deadline - time.monotonic()
            if left <= 0:
                raise socket.timeout("no answer came in time")
            self._inner.settimeout(left)
        return self._inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


GREETING: Final[Sequence[Command]] = (("INFO", "server", "replication"), ("TIME",))


class Greeted:
    """What a connection knows of its server, which is a primary."""

    def greeted(self, replies: list[Any]) -> None:
        """replies: to `GREETING`."""
        received = time.monotonic()
        about = _fields(replies[0])
        if _is_of_replica(about):
            raise RefusedError(
                "the server is a replica, which hears of changes late: the tier's client is to "
                "connect to the primary"
            )
        self.server = about.get(b"run_id", b"")
        """The id of the server's process; empty if the user may not ask."""
        # Early rather than late: the server read its clock before its answer arrived.
        self._ahead: float | None = None
        if isinstance(replies[1], list):
            seconds, microseconds = map(int, replies[1])
            self._ahead = seconds + microseconds / 1e6 - received

    def server_time(self, local: float) -> int:
        """A time of time.monotonic() by the server's clock or earlier, microseconds."""
        return 0 if self._ahead is None else int((local + self._ahead) * 1e6)


class Connection(Greeted):
    """An open connection to a primary."""

    def __init__(self, raw: Any, deadline: float, address: tuple[str, int] | None = None) -> None:
        """Connects. deadline: of time.monotonic(). address: of the primary that sentinels name."""
        self.raw = raw
        self.address = address
        self.control: Connection | None = None
        """To the same server: one that subscribes takes no other commands."""
        addresses = _addresses(raw, address)
        left = deadline - time.monotonic()
        if left <= 0:
            raise NoTimeError
        # The client library gives this time to each address, one after the other.
        raw.socket_connect_timeout = left / addresses
        raw.socket_timeout = left
        connect = raw._connect
        raw._connect = lambda: _Socket(connect(), deadline)
        try:
            if address is None:
                raw.connect()
            else:
                raw.connect_to(address)
            self.greeted(self.call(GREETING, deadline))
        except BaseException:
            self.close()
            raise

    def _by(self, deadline: float) -> None:
        """What follows ends by the deadline."""
        if self.raw._sock is None:
            raise ConnectionError("the connection was closed")
        self.raw._sock.deadline = deadline

    def send(self, commands: Sequence[Command]) -> None:
        raw = self.raw
        raw.send_packed_command(raw.pack_commands(commands), check_health=False)

    def receive(self, deadline: float) -> Any:
        """The next reply; an error of the server is a reply, too."""
        self._by(deadline)
        try:
            return self.raw.read_response(disable_decoding=True, disconnect_on_error=False)
        except Exception as error:
            # With sentinels, a connection to a replica that refuses a write raises another error.
            for each in (error, error.__context__):
                if isinstance(each, Exception) and is_reply(each):
                    return each
            raise

    def call(self, commands: Sequence[Command], deadline: float) -> list[Any]:
        self._by(deadline)
        self.send(commands)
        replies = [self.receive(deadline) for _ in commands]
        if ends_connection(replies):
            self.close()
        return replies

    def wait(self, seconds: float) -> bool:
        """Whether there is a message to receive, or the connection has ended."""
        return bool(self.raw.can_read(max(0.0, seconds)))

    @property
    def is_idle(self) -> bool:
        """Whether it can be used again: it is not closed, and has no unread bytes."""
        try:
            return self.raw._sock is not None and not self.raw.can_read(0)
        except Exception:
            return False

    def is_primary(self, deadline: float) -> bool:
        """Whether the server is still a primary, as far as is known."""
        if self.control is None:
            return True
        (about,) = self.control.call([["INFO", "replication"]], deadline)
        return not _is_of_replica(_fields(about))

    def close(self) -> None:
        if self.control is not None:
            self.control.close()
        with suppress(Exception):
            self.raw.disconnect()


class Connector:
    """Makes connections with the options of a client."""

    def __init__(self, client: Any) -> None:
        pool = getattr(client, "connection_pool", None)
        if pool is None or not hasattr(pool, "connection_class"):
            raise InvalidError(
                "a tier's client is a Redis of redis-py, a Valkey of valkey-py or a Client of "
                f"pymemcache, not {type(client).__name__}; a cluster's client is none of them"
            )
        self.library = _library_of(pool.connection_class)
        if ".asyncio." in pool.connection_class.__module__:
            raise InvalidError(
                "a tier's client is not one for asyncio: AsyncTier takes the same client as Tier, "
                "and makes connections for asyncio with its options"
            )
        self.connection_class = pool.connection_class
        self.options = {
            name: value
            for name, value in pool.connection_kwargs.items()
            if name not in _OWN and "maint" not in name and not name.startswith("orig_")
        }
        self.options.update(protocol=2, decode_responses=False, health_check_interval=0)
        self.most: float = getattr(pool, "max_connections", None) or float("inf")
        """The most connections that the client allows in use at once."""
        database = int(self.options.get("db") or 0)
        self.configuration = b"redis/%d" % database if database else b"redis"
        # Connections of a sentinel need their pool, to which this may be the only reference.
        self.pool = pool

    def __call__(self, deadline: float, address: tuple[str, int] | None = None) -> Connection:
        raw = self.connection_class(
            **self.options, retry=no_retry(self.library, f"{self.library}.retry")
        )
        return Connection(raw, deadline, address)


def _addresses(raw: Any, address: tuple[str, int] | None) -> int:
    """The number of addresses of a host, at least 1."""
    host, port = address or (getattr(raw, "host", None), getattr(raw, "port", None))
    if host is None:
        # A Unix socket.
        return 1
    return len(socket.getaddrinfo(host, port, raw.socket_type, socket.SOCK_STREAM)) or 1


def no_retry(library: str, module: str) -> Any:
    """module: of the client library, with its class for retries."""
    backoff = importlib.import_module(f"{library}.backoff")
    return importlib.import_module(module).Retry(backoff.NoBackoff(), 0)


def _library_of(connection_class: type) -> str:
    for kind in connection_class.__mro__:
        root = kind.__module__.partition(".")[0]
        if root in ("redis", "valkey"):
            return root
    raise InvalidError(f"{connection_class.__name__} is no connection of redis-py or valkey-py")


def is_reply(error: Exception) -> bool:
    """Whether the error is an answer of the server, and the connection still usable."""
    return any(each.__name__ == "ResponseError" for each in type(error).__mro__)


def is_replica(replies: list[Any]) -> bool:
    """Whether the server is no longer the primary."""
    return any(type(each).__name__ == "ReadOnlyError" for each in replies)


def is_late(reply: Any) -> bool:
    """Whether the tier's script has refused a write because of its time limit."""
    return isinstance(reply, Exception) and str(reply).startswith("LATE")


def ends_connection(replies: list[Any]) -> bool:
    """Whether the connection is not used again: it leads to a replica, or to a server whose clock
    was moved since it was measured."""
    return is_replica(replies) or any(map(is_late, replies))


def _fields(info: Any) -> dict[bytes, bytes]:
    """The fields in an answer to INFO; none if it was refused."""
    lines = info.splitlines() if isinstance(info, bytes) else []
    return {name: value for name, _, value in (line.partition(b":") for line in lines)}


def _is_of_replica(about: dict[bytes, bytes]) -> bool:
    return about.get(b"role") == b"slave"
