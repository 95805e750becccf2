"""Connections to a remote for the threads of a process, with time limits that hold for whole calls.

Nothing is sent twice: a write that is repeated could be executed twice, with another machine's
write in between.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Callable, Protocol

from ._errors import RefusedError, RemoteError

_LIBRARIES = {"redis", "valkey", "pymemcache"}


class Connected(Protocol):
    """A connection that is open."""

    @property
    def is_idle(self) -> bool: ...

    def close(self) -> None: ...


class Wire:
    """Connections that are used again."""

    def __init__(self, connect: Callable[[float], Any], timeout: float, retry: float) -> None:
        """connect: makes a connection until a deadline of time.monotonic(). timeout: seconds that a
        call lasts at most. retry: seconds after a failure for which the next calls fail at once."""
        self.connect = connect
        self.timeout = timeout
        self._retry = retry
        self._idle: list[Any] = []
        self._lock = threading.Lock()
        self._down_until = 0.0
        self._why = ""

    @contextmanager
    def connection(self, deadline: float, fresh: bool = False) -> Iterator[Any]:
        """A connection for one call. After an error it is not used again.

        Raises RemoteError, at once where the last call has just failed."""
        left = self._down_until - time.monotonic()
        if left > 0:
            raise RemoteError(f"the remote is not asked for {left:.2f} s: {self._why}")
        connection = None
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

    def _take(self) -> Connected | None:
        while True:
            with self._lock:
                if not self._idle:
                    return None
                connection: Connected = self._idle.pop()
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
    """The reply; RefusedError where it is an error."""
    if isinstance(reply, Exception):
        raise RefusedError(f"the remote refused: {describe(reply)}") from None
    return reply


def describe(error: BaseException) -> str:
    """An error in a line. It names no key, no value and no password: client and server do not."""
    text = str(error) or type(error).__name__
    return text.splitlines()[0]


def is_failure(error: Exception) -> bool:
    """Of the connection, or of the client library; anything else is a fault of ours."""
    roots = {each.__module__.partition(".")[0] for each in type(error).__mro__}
    return isinstance(error, (OSError, EOFError)) or bool(roots & _LIBRARIES)
