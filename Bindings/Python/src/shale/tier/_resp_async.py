"""Connections as in `_resp`, for the coroutines of an event loop, by redis.asyncio or
valkey.asyncio."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from .._native.errors import InvalidError
from ._io import Command
from ._resp import GREETING, Connector, Greeted, ends_connection, is_reply, no_retry
from ._wire import before

_CLASSES: Final = ("SSLConnection", "UnixDomainSocketConnection", "Connection")
_SENTINEL: Final = ("SentinelManagedConnection", "SentinelManagedSSLConnection")


class AsyncConnection(Greeted):
    """An open connection to one server."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw

    async def connect(self, deadline: float) -> None:
        """deadline: of time.monotonic()."""
        raw = self._raw
        # The deadlines of calls count.
        raw.socket_connect_timeout = raw.socket_timeout = None
        try:
            await before(deadline, raw.connect())
            self.greeted(await self.call(GREETING, deadline))
        except BaseException:
            self.close()
            raise

    async def call(self, commands: Sequence[Command], deadline: float) -> list[Any]:
        replies = await before(deadline, self._call(commands))
        if ends_connection(replies):
            self.close()
        return replies

    async def _call(self, commands: Sequence[Command]) -> list[Any]:
        raw = self._raw
        if not raw.is_connected:
            raise ConnectionError("the connection was closed")
        await raw.send_packed_command(raw.pack_commands(commands), check_health=False)
        return [await self._receive() for _ in commands]

    async def _receive(self) -> Any:
        try:
            return await self._raw.read_response(disable_decoding=True, disconnect_on_error=False)
        except Exception as error:
            if is_reply(error):
                return error
            raise

    @property
    def is_idle(self) -> bool:
        """Whether it can be used again: it is not closed, and has no unread bytes."""
        reader, writer = self._raw._reader, self._raw._writer
        if reader is None or writer is None or writer.is_closing():
            return False
        return reader.exception() is None and not reader.at_eof() and not reader._buffer

    def close(self) -> None:
        with suppress(Exception):
            self._raw._close()


class AsyncConnector:
    """Makes connections with the options of a client."""

    def __init__(self, connector: Connector) -> None:
        kind, self._library = connector.connection_class, connector.library
        if kind.__name__ not in (*_CLASSES, *_SENTINEL) or _root(kind) != self._library:
            raise InvalidError(
                f"AsyncTier has no connections for asyncio like {kind.__name__}: give a client "
                "without a connection class of its own"
            )
        inherited = [each.__name__ for each in kind.__mro__]
        name = next(each for each in _CLASSES if each in inherited)
        self._class = getattr(importlib.import_module(f"{self._library}.asyncio.connection"), name)
        options = dict(connector.options)
        options.pop("connection_pool", None)  # of a sentinel
        self._options = _known(options, self._class, kind)

    async def connect(
        self, deadline: float, address: tuple[str, int] | None = None
    ) -> AsyncConnection:
        """address: of the primary that sentinels name."""
        options = dict(self._options)
        if address is not None:
            options["host"], options["port"] = address
        options["retry"] = no_retry(self._library, f"{self._library}.asyncio.retry")
        connection = AsyncConnection(self._class(**options))
        await connection.connect(deadline)
        return connection


def _root(kind: type) -> str:
    return kind.__module__.partition(".")[0]


def _known(options: dict[str, Any], made: type, kind: type) -> dict[str, Any]:
    """The options, without those that a class for asyncio lacks and that have no effect."""
    known, defaults = _parameters(made), _parameters(kind)
    for name, value in options.items():
        if name not in known and value and value != defaults.get(name):
            raise InvalidError(
                f"connections for asyncio have no option {name}: give AsyncTier a client without it"
            )
    return {name: value for name, value in options.items() if name in known}


def _parameters(kind: type) -> dict[str, Any]:
    """The names of the options of a class and those it inherits from, with their defaults."""
    found: dict[str, Any] = {}
    for each in kind.__mro__[:-1]:
        for name, parameter in inspect.signature(each.__init__).parameters.items():  # type: ignore[misc]
            found.setdefault(name, parameter.default)
    return found
