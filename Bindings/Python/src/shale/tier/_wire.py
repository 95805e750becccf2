"""Connections to Redis or Valkey: those of redis-py or valkey-py, as a client was configured, with
time limits that hold for a whole call.

The client library connects: TLS, users and passwords, Unix sockets, databases and sentinels are
its own. Its retries are not used. A write that is sent twice could be executed twice, with another
machine's write in between.
"""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Union

from .._errors import InvalidError
from ._errors import RemoteError

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


class Wire:
    """Connections as a client makes them, for the threads of this process."""

    def __init__(self, client: Any, timeout: float, retry: float) -> None:
        """timeout: seconds that a call lasts at most. retry: seconds after a failure for which the
        next calls fail at once."""
        self.timeout = timeout
        self._retry = retry
        pool = getattr(client, "connection_pool", None)
        if pool is None or not hasattr(pool, "connection_class"):
            raise InvalidError(
                "a tier's client is a Redis of redis-py or a Valkey of valkey-py, not "
                f"{type(client).__name__}; a cluster's client is not one of them"
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
        self._idle: list[Connection] = []
        self._lock = threading.Lock()
        self._down_until = 0.0
        self._why = ""
        self.calls = 0

    def connect(self, deadline: float) -> Connection:
        """A new connection, of the caller's own."""
        return Connection(self._class(**self._options), deadline)

    @contextmanager
    def connection(self, deadline: float, fresh: bool = False) -> Iterator[Connection]:
        """A connection for one call. After an error it is not used again.

        Raises RemoteError, at once where the last call has just failed."""
        left = self._down_until - time.monotonic()
        if left > 0:
            raise RemoteError(f"the remote is not asked for {left:.2f} s: {self._why}")
        connection = None
        self.calls += 1
        try:
            connection = self._take() if not fresh else None
            if connection is None:
                connection = self.connect(deadline)
            yield connection
        except BaseException as error:
            if connection is not None:
                connection.close()
            if isinstance(error, RemoteError) or not isinstance(error, Exception):
                raise
            if not is_failure(error):
                raise
            self._why = describe(error)
            self._down_until = time.monotonic() + self._retry
            raise RemoteError(f"the remote did not answer: {self._why}") from None
        with self._lock:
            self._idle.append(connection)

    def _take(self) -> Connection | None:
        while True:
            with self._lock:
                if not self._idle:
                    return None
                connection = self._idle.pop()
            if connection.is_idle:
                return connection
            connection.close()

    def answers(self) -> None:
        """The remote has just answered: the next call is made."""
        self._down_until = 0.0

    def forget(self) -> None:
        """Closes what is idle."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def after_fork(self) -> None:
        """The connections are the parent's."""
        self._lock = threading.Lock()
        self._idle = []


def refused(reply: Any) -> Any:
    """The reply; RemoteError where it is an error."""
    if isinstance(reply, Exception):
        raise RemoteError(f"the remote refused: {describe(reply)}") from None
    return reply


def describe(error: BaseException) -> str:
    """An error in a line. It names no key, no value and no password: client and server do not."""
    text = str(error) or type(error).__name__
    return text.splitlines()[0]


def _library_of(connection_class: type) -> str:
    for kind in connection_class.__mro__:
        root = kind.__module__.partition(".")[0]
        if root in ("redis", "valkey"):
            return root
    raise InvalidError(f"{connection_class.__name__} is no connection of redis-py or valkey-py")


def _is_reply(error: Exception) -> bool:
    """Whether the server has answered so, and the connection is as it was."""
    return any(each.__name__ == "ResponseError" for each in type(error).__mro__)


def is_failure(error: Exception) -> bool:
    """Of the connection, or of the client library; anything else is a fault of ours."""
    roots = {each.__module__.partition(".")[0] for each in type(error).__mro__}
    return isinstance(error, (OSError, EOFError)) or bool(roots & {"redis", "valkey"})


def _run_id(info: Any) -> bytes:
    if isinstance(info, bytes):
        for line in info.splitlines():
            name, _, value = line.partition(b":")
            if name == b"run_id":
                return value
    return b""
