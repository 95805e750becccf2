"""Connections to a remote, with time limits for whole calls: `Wire` for the threads of a process,
`AsyncWire` for the coroutines of an event loop.

A command is never sent twice: a repeated write could be executed twice, with another machine's
write in between.
"""

from __future__ import annotations

import asyncio
import re
import sys
import threading
import time
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import Any, Callable, Final, TypeVar

from .._native import log
from ._errors import NoTimeError, RefusedError, RemoteError
from ._io import Answer, Exchange

V = TypeVar("V")

_LIBRARIES = {"redis", "valkey", "pymemcache"}


# Seconds.
_FIRST_BACK_OFF: Final = 0.05
_LONGEST_IDLE: Final = 60.0

# Connections of an event loop: more than its coroutines keep busy.
_MOST_ASYNC: Final = 32


class BackOff:
    """Whether the remote is called: after a failure to connect, calls fail at once for a pause,
    which doubles with each further failure. After the pause one call connects, and the others fail
    until it has."""

    def __init__(self, retry: float) -> None:
        """retry: the longest pause, seconds."""
        self._retry = retry
        self._lock = threading.Lock()
        self._failures = 0
        """To connect, without a success since."""
        self._connecting = False
        """Whether a call connects after a pause."""
        self._down_until = 0.0
        self._why = ""

    @contextmanager
    def connecting(self, deadline: float) -> Iterator[None]:
        """Around connecting. Raises RemoteError if that fails, or has just failed."""
        if deadline <= time.monotonic():
            raise NoTimeError
        after_pause = False
        # Ctrl-C may come between any two lines.
        try:
            with self._lock:
                left = self._down_until - time.monotonic()
                if left > 0 or (self._failures and self._connecting):
                    raise RemoteError(
                        f"the remote is not called for another {max(0.0, left):.2f} s: {self._why}"
                    )
                after_pause = self._failures > 0
                self._connecting = self._connecting or after_pause
            with self._failing():
                yield
        finally:
            if after_pause:
                self._connecting = False
        self.answers()

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Begins a pause if connecting fails."""
        try:
            yield
        except Exception as error:
            if isinstance(error, NoTimeError) or not is_failure(error):
                raise
            with self._lock:
                pause = min(self._retry, _FIRST_BACK_OFF * 2 ** min(self._failures, 30))
                self._failures += 1
                self._why = describe(error)
                self._down_until = time.monotonic() + pause
            if isinstance(error, RemoteError):
                raise
            raise RemoteError(f"the remote did not answer: {self._why}") from None

    def answers(self) -> None:
        """The remote has just answered: calls no longer fail at once."""
        self._failures = 0
        self._down_until = 0.0


class IdleConnections:
    """Open connections that no call uses.

    A connection that fails closes all of them: they may be half-open, and each would cost its
    caller the time limit. Only a new connection shows whether the remote answers, so one slow key
    takes no other down."""

    def __init__(self, is_usable: Callable[[Any], bool]) -> None:
        self._lock = threading.Lock()
        self._is_usable = is_usable
        self._all: list[tuple[Any, float]] = []
        """The last used is the last, with the time of time.monotonic()."""

    def add(self, connection: Any) -> None:
        with self._lock:
            self._all.append((connection, time.monotonic()))

    def take(self) -> Any:
        """The one that was used last, or None."""
        with self._lock:
            old = time.monotonic() - _LONGEST_IDLE
            ended = [each for each, used in self._all if used < old]
            self._all = [(each, used) for each, used in self._all if used >= old]
        for each in ended:
            each.close()
        while True:
            with self._lock:
                if not self._all:
                    return None
                connection, _ = self._all.pop()
            if self._is_usable(connection):
                return connection
            connection.close()

    def close(self) -> None:
        with self._lock:
            idle, self._all = self._all, []
        for connection, _ in idle:
            connection.close()


@contextmanager
def _used(connection: Any, idle: IdleConnections) -> Iterator[None]:
    """Around the use of a connection. After an error it is not used again."""
    try:
        yield
    except BaseException as error:
        connection.close()
        if isinstance(error, RemoteError) or not isinstance(error, Exception):
            raise
        if not is_failure(error):
            raise
        idle.close()
        raise RemoteError(f"the remote did not answer: {describe(error)}") from None
    idle.add(connection)


def _all_in_use(most: float) -> RemoteError:
    return RemoteError(f"all {most} connections that the client allows are in use")


class Wire:
    """A pool of connections for threads."""

    def __init__(
        self,
        connect: Callable[[float], Any],
        timeout: float,
        retry: float,
        most: float = float("inf"),
        is_usable: Callable[[Any], bool] = lambda connection: bool(connection.is_idle),
    ) -> None:
        """connect: makes a connection by a deadline of time.monotonic(). timeout: the longest time
        of a call, seconds. retry: the longest pause after failures, seconds. most: of connections
        in use. is_usable: whether a call may use an idle connection."""
        self.connect = connect
        self.timeout = timeout
        self.most = most
        self._retry = retry
        self.is_usable = is_usable
        self._begin()

    def _begin(self) -> None:
        self.back_off = BackOff(self._retry)
        self.idle = IdleConnections(self.is_usable)
        self._freed = threading.Condition(threading.Lock())
        self._used = 0

    def separate(self) -> Wire:
        """Another with the same options. Failures of the one pause no calls of the other."""
        return Wire(self.connect, self.timeout, self._retry, self.most, self.is_usable)

    @contextmanager
    def connection(self, deadline: float, fresh: bool = False) -> Iterator[Any]:
        """A connection for one call. After an error it is not used again.

        Raises RemoteError, at once if connecting has just failed."""
        with self._slot(deadline):
            connection = None if fresh else self.idle.take()
            if connection is None:
                try:
                    with self.back_off.connecting(deadline):
                        connection = self.connect(deadline)
                except RemoteError:
                    self.idle.close()
                    raise
            with _used(connection, self.idle):
                yield connection

    def exchange(self, step: Exchange) -> Answer:
        with self.connection(step.deadline, step.fresh) as connection:
            replies = connection.call(step.commands_for(connection), step.deadline)
        return Answer(replies, connection.server)

    @contextmanager
    def _slot(self, deadline: float) -> Iterator[None]:
        """The right to use one of so many connections."""
        freed = self._freed
        uses = False
        # Ctrl-C may come between any two lines.
        try:
            with freed:
                while self._used >= self.most:
                    left = deadline - time.monotonic()
                    if left <= 0:
                        raise _all_in_use(self.most)
                    freed.wait(left)
                self._used += 1
                uses = True
            yield
        finally:
            if uses:
                with freed:
                    self._used -= 1
                    freed.notify()

    def after_fork(self) -> None:
        """For a child of fork: the connections are the parent's."""
        self._begin()


class AsyncWire:
    """A pool of connections for the coroutines of an event loop."""

    def __init__(self, connect: Callable[[float], Awaitable[Any]], wire: Wire) -> None:
        """connect: as for `Wire`. wire: of the threads; both know if the remote is down."""
        self._connect = connect
        self._back_off = wire.back_off
        self._idle = IdleConnections(wire.is_usable)
        self._most = int(min(wire.most, _MOST_ASYNC))
        self._slots = asyncio.Semaphore(self._most)

    async def exchange(self, step: Exchange) -> Answer:
        try:
            await before(step.deadline, self._slots.acquire())
        except TimeoutError:
            raise _all_in_use(self._most) from None
        try:
            connection = None if step.fresh else self._idle.take()
            if connection is None:
                try:
                    with self._back_off.connecting(step.deadline):
                        connection = await self._connect(step.deadline)
                except RemoteError:
                    self._idle.close()
                    raise
            with _used(connection, self._idle):
                replies = await connection.call(step.commands_for(connection), step.deadline)
            return Answer(replies, connection.server)
        finally:
            self._slots.release()

    def close(self) -> None:
        self._idle.close()


async def before(deadline: float, work: Awaitable[V]) -> V:
    """Awaits the work. TimeoutError if it is not done by a deadline of time.monotonic()."""
    left = deadline - time.monotonic()
    try:
        if sys.version_info >= (3, 11):
            async with asyncio.timeout(left):
                return await work
        # Before 3.12 a cancellation that comes with the result is lost.
        return await asyncio.wait_for(work, left)
    except asyncio.TimeoutError:
        raise TimeoutError("no answer came in time") from None


def refused(reply: Any) -> Any:
    """The reply; RefusedError if it is an error."""
    if isinstance(reply, Exception):
        raise RefusedError(f"the remote refused: {describe(reply)}") from None
    return reply


# Servers quote arguments in other answers, such as those to unknown commands.
_SENTENCES: Final = (
    "command not allowed when used memory > 'maxmemory'",
    "You can't write against a read only replica",
    "Not enough good replicas to write",
    "is configured to save RDB snapshots",
    "this user has no permissions",
    "has no permissions",
    "The user executing the script can't run this command",
    "Operation against a key holding the wrong kind of value",
    "unknown command",
    "unknown subcommand",
    "Unknown Redis command called from script",
    "wrong number of arguments",
    "invalid username-password pair",
    "called without any password configured",
    "Authentication required",
    "loading the dataset in memory",
    "Link with MASTER is down",
    "max number of clients reached",
    "DB index is out of range",
    "busy running a script",
    "object too large for cache",
    "out of memory storing object",
    "bad data chunk",
    "bad command line format",
)
_CODE: Final = re.compile("[A-Z_]{3,16}(?= |$)")
_CODE_IN_TEXT: Final = re.compile("(?:^|: )([A-Z_]{3,16}|[A-Za-z]+Error)(?= |$)")
_OF_CONNECTIONS: Final = ("ConnectionError", "TimeoutError")
"""Errors of client libraries that name an address. Those of derived classes quote answers."""


def describe(error: BaseException) -> str:
    """The error in one line, without keys, values and passwords."""
    text = str(error).partition("\n")[0].strip()
    kind = type(error).__name__
    if isinstance(error, (RemoteError, OSError, EOFError)) or kind in _OF_CONNECTIONS:
        return text or kind
    return describe_answer(text, getattr(error, "status_code", None) or kind)


def describe_answer(text: str, kind: str) -> str:
    """An error that a server answered: its code, and the sentence if that is known to quote no
    argument. kind: in place of a code that is missing."""
    code = _CODE.match(text)
    known = next((each for each in _SENTENCES if each in text), "")
    return f"{code[0] if code else kind} {known}".rstrip()


class Causes:
    """Logs a cause of failures once, until it has ended, whichever part of the tier meets it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._causes: dict[str, str] = {}
        """By part, which has one cause at a time."""

    def begin(self, part: str, error: Exception, effect: str) -> None:
        text = describe(error)
        is_bug = not isinstance(error, RemoteError) and not is_failure(error)
        code = _CODE_IN_TEXT.search(text)
        if code is not None:
            cause = code[1]
        else:
            # All other failures have one cause: the remote cannot be reached.
            cause = text if is_bug or isinstance(error, RefusedError) else ""
        with self._lock:
            is_known = cause in self._causes.values()
            self._causes[part] = cause
        if not is_known:
            log.warn("%s: %s", effect, text, error=error if is_bug else None)

    def end(self, part: str) -> None:
        """What the part needs succeeds again."""
        with self._lock:
            ended = self._causes.pop(part, None)
            for each in [each for each, cause in self._causes.items() if cause == ended]:
                del self._causes[each]


def is_failure(error: Exception) -> bool:
    """Whether it is an error of the connection or the client library, and not a bug here."""
    roots = {each.__module__.partition(".")[0] for each in type(error).__mro__}
    return isinstance(error, (OSError, EOFError)) or bool(roots & _LIBRARIES)
