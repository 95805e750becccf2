"""Connections to Redis or Valkey: those of redis-py or valkey-py, as a client was configured.

The client library connects: TLS, users and passwords, Unix sockets, databases and sentinels are
its own. Its retries are not used.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Union

from .._errors import InvalidError

Command = Sequence[Union[bytes, str, int]]

# Of a connection's options, what is replaced or has no place in RESP2.
_OWN = ("cache", "cache_config", "himport_registry", "retry_on_error", "retry_on_timeout")


class Connection:
    """A connection that is open, to one server."""

    def __init__(self, raw: Any, deadline: float) -> None:
        """Connects. deadline: of time.monotonic()."""
        self.raw = raw
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("no time is left to connect")
        raw.socket_connect_timeout = raw.socket_timeout = left
        try:
            raw.connect()
            begun = self.call([["INFO", "server"], ["TIME"]], deadline)
        except BaseException:
            self.close()
            raise
        received = time.monotonic()
        self.server = _run_id(begun[0])
        """What the server's process is known by; empty where the user may not ask."""
        # Early rather than late: the server's clock was read before its answer came.
        self._ahead: float | None = None
        if isinstance(begun[1], list):
            seconds, microseconds = map(int, begun[1])
            self._ahead = seconds + microseconds / 1e6 - received

    def server_time(self, local: float) -> int:
        """A time of time.monotonic() by the server's clock, in microseconds, or earlier."""
        return 0 if self._ahead is None else int((local + self._ahead) * 1e6)

    def send(self, commands: Sequence[Command]) -> None:
        raw = self.raw
        raw.send_packed_command(raw.pack_commands(commands), check_health=False)

    def receive(self, deadline: float) -> Any:
        """The next reply; an error that the server gives is one, too."""
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("no answer came in time")
        if self.raw._sock is None:
            raise ConnectionError("the connection was closed")
        self.raw._sock.settimeout(left)
        try:
            return self.raw.read_response(disable_decoding=True, disconnect_on_error=False)
        except Exception as error:
            if _is_reply(error):
                return error
            raise

    def call(self, commands: Sequence[Command], deadline: float) -> list[Any]:
        self.send(commands)
        return [self.receive(deadline) for _ in commands]

    def wait(self, seconds: float) -> bool:
        """Whether there is something to receive, or the connection's end."""
        return bool(self.raw.can_read(max(0.0, seconds)))

    @property
    def is_idle(self) -> bool:
        """Whether it can be used again: nobody has closed it, and nothing came unasked."""
        try:
            return self.raw._sock is not None and not self.raw.can_read(0)
        except Exception:
            return False

    def close(self) -> None:
        with suppress(Exception):
            self.raw.disconnect()


class Connector:
    """Makes connections as a client does."""

    def __init__(self, client: Any) -> None:
        pool = getattr(client, "connection_pool", None)
        if pool is None or not hasattr(pool, "connection_class"):
            raise InvalidError(
                "a tier's client is a Redis of redis-py, a Valkey of valkey-py or a Client of "
                f"pymemcache, not {type(client).__name__}; a cluster's client is none of them"
            )
        library = _library_of(pool.connection_class)
        if ".asyncio." in pool.connection_class.__module__:
            raise InvalidError(
                "a tier's client is not one for asyncio: AsyncTier takes the same client as Tier, "
                "and reads in threads"
            )
        retries = importlib.import_module(f"{library}.retry")
        backoff = importlib.import_module(f"{library}.backoff")
        self._class = pool.connection_class
        self._options = {
            name: value
            for name, value in pool.connection_kwargs.items()
            if name not in _OWN and "maint" not in name and not name.startswith("orig_")
        }
        self._options.update(
            protocol=2,
            decode_responses=False,
            health_check_interval=0,
            retry=retries.Retry(backoff.NoBackoff(), 0),
        )
        # A sentinel's connections ask their pool, which nobody else may hold.
        self._pool = pool

    def __call__(self, deadline: float) -> Connection:
        return Connection(self._class(**self._options), deadline)


def _library_of(connection_class: type) -> str:
    for kind in connection_class.__mro__:
        root = kind.__module__.partition(".")[0]
        if root in ("redis", "valkey"):
            return root
    raise InvalidError(f"{connection_class.__name__} is no connection of redis-py or valkey-py")


def _is_reply(error: Exception) -> bool:
    """Whether the server has answered so, and the connection is as it was."""
    return any(each.__name__ == "ResponseError" for each in type(error).__mro__)


def _run_id(info: Any) -> bytes:
    if isinstance(info, bytes):
        for line in info.splitlines():
            name, _, value = line.partition(b":")
            if name == b"run_id":
                return value
    return b""
