"""A backend for cashews: ``pip install shale-cache[cashews]``.

import shale.adapters.cashews
from cashews import cache

cache.setup("shale:///var/cache/app", capacity="1GiB")
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any, Final, Union
from urllib.parse import urlsplit

from cashews.backends.interface import NOT_EXIST, UNLIMITED, Backend
from cashews.utils import Bitarray
from cashews.wrapper.backend_settings import register_backend

from .._cache import Cache
from .._native.errors import InvalidError
from .._native.units import NEVER, Seconds
from ._opening import CacheOrPath, opened, taken

_missing = object()

# Bits are stored as a tuple of this and an int.
_BITS: Final = "\0bits"


class ShaleBackend(Backend):
    """The backend of ``shale://``, on a ``shale.Cache``.

    Any number of threads and processes use it. Conditions, counters, sets, bits and locks are
    atomic. Calls that take microseconds are made on the event loop; those that walk run in a
    thread.
    """

    def __init__(
        self,
        directory: Union[CacheOrPath, None] = None,
        *,
        address: str | None = None,
        serializer: Any = None,
        **kwargs: Any,
    ) -> None:
        """directory: of the cache, or an open ``shale.Cache``. address: instead of it,
        ``shale:///path``. serializer: of cashews; None: values are Shale's own. kwargs: options of
        ``shale.Cache``."""
        where = urlsplit(address).path if directory is None and address is not None else directory
        if where is None:
            raise InvalidError("give a directory, or a URL such as shale:///var/cache/app")
        self._where: CacheOrPath = where
        self._options = taken(kwargs)
        self._opened: Cache[Any, Any] | None = None
        super().__init__(serializer=serializer, **kwargs)

    @property
    def _cache(self) -> Cache[Any, Any]:
        if self._opened is None:
            self._opened = opened(self._where, **self._options)
        return self._opened

    @property
    def is_init(self) -> bool:
        """Whether it is open."""
        return self._opened is not None

    async def init(self) -> None:
        """Opens the cache."""
        self._opened = await asyncio.to_thread(opened, self._where, **self._options)

    async def close(self) -> None:
        """Releases the cache."""
        self._opened = None

    async def _encoded(self, key: str, value: Any, expire: Any) -> Any:
        if self._serializer is None:
            return (_BITS, value.to_int()) if isinstance(value, Bitarray) else value
        return await self._serializer.encode(self, key=key, value=value, expire=expire)

    async def _decoded(self, key: str, value: Any, default: Any) -> Any:
        if value is _missing:
            return default
        if type(value) is tuple and len(value) == 2 and value[0] == _BITS:
            return _bits(value)
        if self._serializer is None or type(value) is int:
            return value
        return await self._serializer.decode(self, key=key, value=value, default=default)

    def _age(self, key: str, expire: Union[Seconds, None]) -> Seconds:
        """Without an expiry, an existing entry keeps its own."""
        if expire:
            return expire
        entry = self._cache.entry(key, peek=True)
        return NEVER if entry is None else entry.ttl

    async def set(
        self,
        key: str,
        value: Any,
        expire: Union[Seconds, None] = None,
        exist: bool | None = None,
    ) -> bool:
        """Stores a value, only if it exists (or not) if that is asked for. Whether it did. An entry
        that is replaced without an expiry keeps its own."""
        data = await self._encoded(key, value, expire)
        if exist is False:
            return self._cache.add(key, data, max_age=expire or NEVER)
        return self._cache.set(key, data, max_age=self._age(key, expire), if_present=bool(exist))

    async def set_many(self, pairs: Mapping[str, Any], expire: Union[Seconds, None] = None) -> None:
        """Stores many values."""
        for key, value in pairs.items():
            await self.set(key, value, expire)

    async def set_raw(self, key: str, value: Any, **kwargs: Any) -> None:
        """Stores a value without cashews's serializer."""
        self._cache.set(key, value)

    async def get(self, key: str, default: Any = None) -> Any:
        """The value, or ``default``."""
        return await self._decoded(key, self._cache.get(key, _missing), default)

    async def get_raw(self, key: str) -> Any:
        """The value, without cashews's serializer."""
        return self._cache.get(key)

    async def get_many(self, *keys: str, default: Any = None) -> tuple[Any, ...]:
        """The values, or ``default`` for a missing one."""
        found = self._cache.get_many(keys)
        values = [await self._decoded(key, found.get(key, _missing), default) for key in keys]
        return tuple(None if isinstance(value, Bitarray) else value for value in values)

    async def get_match(
        self, pattern: str, batch_size: int = 100
    ) -> AsyncIterator[tuple[str, Any]]:
        """Matching keys, with their values. Walks all keys."""
        for key in await asyncio.to_thread(self._matching, pattern):
            value = await self.get(key, _missing)
            if value is not _missing and not isinstance(value, Bitarray):
                yield key, value

    async def scan(self, pattern: str, batch_size: int = 100) -> AsyncIterator[str]:
        """Matching keys; ``*`` is any text. Walks all keys."""
        for key in await asyncio.to_thread(self._matching, pattern):
            yield key

    def _matching(self, pattern: str) -> list[str]:
        wanted = re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL)
        return [key for key in self._cache if isinstance(key, str) and wanted.fullmatch(key)]

    async def exists(self, key: str) -> bool:
        """Whether the key exists."""
        return key in self._cache

    async def incr(self, key: str, value: int = 1, expire: Union[Seconds, None] = None) -> int:
        """Adds to an int, and returns the new one. expire: for a new entry."""
        return self._cache.incr(key, value, max_age=expire or NEVER)

    async def delete(self, key: str) -> bool:
        """Removes an entry. Whether there was one."""
        return bool(await self._delete([key]))

    async def delete_many(self, *keys: str) -> None:
        """Removes many entries."""
        await self._delete(keys)

    async def delete_match(self, pattern: str) -> None:
        """Removes matching keys. Walks all keys."""
        await self._delete(await asyncio.to_thread(self._matching, pattern))

    async def _delete(self, keys: Iterable[str]) -> list[str]:
        """The keys that exist."""
        removed = [key for key in keys if self._cache.remove(key)]
        if removed:
            await self._call_on_remove_callbacks(*removed)
        return removed

    async def expire(self, key: str, timeout: Seconds) -> bool:
        """Gives an entry a new age. Whether it exists."""
        return self._cache.touch(key, timeout)

    async def get_expire(self, key: str) -> int:
        """Seconds left; -1: no limit, -2: no entry."""
        entry = self._cache.entry(key, peek=True)
        if entry is None:
            return int(NOT_EXIST)
        return int(UNLIMITED) if entry.expires == NEVER else round(entry.expires - time.time())

    def _change(
        self,
        key: str,
        default: Any,
        function: Callable[[Any], Any],
        expire: Union[Seconds, None] = None,
    ) -> None:
        """An atomic change; it is repeated if another change came first."""
        cache = self._cache
        while True:
            entry = cache.entry(key, peek=True)
            new = function(default if entry is None else entry.value)
            if entry is None:
                stored = cache.add(key, new, max_age=expire or NEVER)
            else:
                stored = cache.set(key, new, max_age=expire or entry.ttl, if_version=entry.version)
            if stored:
                return

    async def get_bits(self, key: str, *indexes: int, size: int = 1) -> tuple[int, ...]:
        """Numbers of ``size`` bits, by their positions."""
        bits = _bits(self._cache.get(key, (_BITS, 0)))
        return tuple(bits.get(index, size) for index in indexes)

    async def incr_bits(
        self, key: str, *indexes: int, size: int = 1, by: int = 1
    ) -> tuple[int, ...]:
        """Adds to such numbers, and returns the new ones."""
        found: list[int] = []

        def change(old: tuple[str, int]) -> tuple[str, int]:
            bits = _bits(old)
            found.clear()
            for index in indexes:
                bits.incr(index, size, by)
                found.append(bits.get(index, size))
            return _BITS, bits.to_int()

        self._change(key, (_BITS, 0), change)
        return tuple(found)

    async def slice_incr(
        self,
        key: str,
        start: float,
        end: float,
        maxvalue: int,
        expire: Union[Seconds, None] = None,
    ) -> int:
        """Adds a time, ``end``, unless there are ``maxvalue`` since ``start``; returns their
        number."""
        count = 0

        def change(old: list[float]) -> list[float]:
            nonlocal count
            new = [each for each in old if start <= each < end]
            if len(new) < maxvalue:
                new.append(end)
                count = len(new)
            else:
                count = len(new)
            return new

        self._change(key, [], change, expire)
        return count

    async def set_add(self, key: str, *values: str, expire: Union[Seconds, None] = None) -> None:
        """Adds to a set."""
        self._change(key, set(), lambda old: old | set(values), expire)

    async def set_remove(self, key: str, *values: str) -> None:
        """Removes from a set."""
        self._change(key, set(), lambda old: old - set(values))

    async def set_pop(self, key: str, count: int = 100) -> Iterable[str]:
        """Removes up to ``count`` items from a set, and returns them. Only one caller gets each."""
        popped: list[str] = []

        def change(old: set[str]) -> set[str]:
            popped[:] = list(old)[:count]
            return old - set(popped)

        self._change(key, set(), change)
        return popped

    async def get_size(self, key: str) -> int:
        """The size of the value, bytes; 0 if there is none."""
        entry = self._cache.entry(key, peek=True)
        return 0 if entry is None else entry.stored_size

    async def get_keys_count(self) -> int:
        """The number of keys. Walks all keys."""
        return await asyncio.to_thread(len, self._cache)

    async def ping(self, message: bytes | None = None) -> bytes:
        """The message, or PONG."""
        return b"PONG" if message in (None, b"PING") else message

    async def clear(self) -> None:
        """Removes all."""
        await asyncio.to_thread(self._cache.clear)

    async def is_locked(self, key: str, wait: float | None = None, step: float = 0.1) -> bool:
        """Whether the lock of ``key`` is held, after up to ``wait`` seconds."""
        end = time.monotonic() + (wait or 0)
        while key in self._cache:
            left = end - time.monotonic()
            if left <= 0:
                return True
            await asyncio.sleep(min(step, left))
        return False

    async def unlock(self, key: str, value: Any) -> bool:
        """Releases a lock, if it was taken with this ``value``."""
        entry = self._cache.entry(key, peek=True)
        data = await self._encoded(key, value, None)
        if entry is None or entry.value != data:
            return False
        return self._cache.remove(key, if_version=entry.version)


def _bits(stored: tuple[str, int]) -> Any:
    # Python limits how long a number may be in decimal.
    return Bitarray(f"{stored[1]:x}", 16)


register_backend("shale", ShaleBackend, pass_uri=True)
