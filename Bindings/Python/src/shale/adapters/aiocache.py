"""A cache for aiocache: ``pip install shale-cache[aiocache]``.

from aiocache import cached
from shale.adapters.aiocache import ShaleCache

cache = ShaleCache("/var/cache/app", capacity="1GiB", namespace="main:")
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from aiocache.base import BaseCache
from aiocache.serializers import NullSerializer

from .._cache import Cache
from .._native.errors import InvalidError
from .._native.units import NEVER
from ._opening import CacheOrPath, opened, taken


class ShaleCache(BaseCache):
    """The methods of ``aiocache.BaseCache``, on a ``shale.Cache``.

    Any number of threads and processes use it. Calls that take microseconds are made on the event
    loop; ``clear`` runs in a thread. ``add`` and ``increment`` are atomic.
    """

    NAME = "shale"

    def __init__(self, directory: CacheOrPath, *, serializer: Any = None, **kwargs: Any) -> None:
        """directory: of the cache, or an open ``shale.Cache``. serializer: of aiocache, for all
        values; None: values are those of Shale. kwargs: options of ``shale.Cache``, and plugins,
        namespace, key_builder, timeout and ttl of aiocache."""
        options = taken(kwargs)
        super().__init__(serializer=serializer or NullSerializer(), **kwargs)
        self._cache: Cache[Any, Any] = opened(directory, **options)

    @classmethod
    def parse_uri_path(cls, path: str) -> dict[str, str]:
        """``shale:///var/cache/app``."""
        return {"directory": path}

    async def _get(self, key: Any, encoding: str = "utf-8", _conn: Any = None) -> Any:
        return self._cache.get(_key(key))

    async def _gets(self, key: Any, encoding: str = "utf-8", _conn: Any = None) -> Any:
        """The token of a compare-and-set: the entry's version, or None for a missing one."""
        entry = self._cache.entry(_key(key), peek=True)
        return None if entry is None else entry.version

    async def _multi_get(
        self, keys: Sequence[Any], encoding: str = "utf-8", _conn: Any = None
    ) -> list[Any]:
        found = self._cache.get_many([_key(key) for key in keys])
        return [found.get(_key(key)) for key in keys]

    async def _set(
        self,
        key: Any,
        value: Any,
        ttl: float | None = None,
        _cas_token: int | None = None,
        _conn: Any = None,
    ) -> bool:
        return self._cache.set(_key(key), value, max_age=_age(ttl), if_version=_cas_token)

    async def _multi_set(
        self, pairs: Iterable[tuple[Any, Any]], ttl: float | None = None, _conn: Any = None
    ) -> bool:
        self._cache.set_many([(_key(key), value) for key, value in pairs], max_age=_age(ttl))
        return True

    async def _add(self, key: Any, value: Any, ttl: float | None = None, _conn: Any = None) -> bool:
        if not self._cache.add(_key(key), value, max_age=_age(ttl)):
            raise ValueError(f"Key {key} already exists, use .set to update the value")
        return True

    async def _exists(self, key: Any, _conn: Any = None) -> bool:
        return _key(key) in self._cache

    async def _increment(self, key: Any, delta: int, _conn: Any = None) -> int:
        try:
            return self._cache.incr(_key(key), delta, max_age=NEVER)
        except InvalidError as error:
            raise TypeError("Value is not an integer") from error

    async def _expire(self, key: Any, ttl: float | None, _conn: Any = None) -> bool:
        return self._cache.touch(_key(key), _age(ttl))

    async def _delete(self, key: Any, _conn: Any = None) -> int:
        return int(self._cache.remove(_key(key)))

    async def _clear(self, namespace: str | None = None, _conn: Any = None) -> bool:
        await asyncio.to_thread(self._clear_now, namespace)
        return True

    def _clear_now(self, namespace: str | None) -> None:
        if namespace:
            begin = [
                key for key in self._cache if isinstance(key, str) and key.startswith(namespace)
            ]
            self._cache.remove_many(begin)
        else:
            self._cache.clear()

    async def _raw(
        self, command: str, *args: Any, encoding: str = "utf-8", _conn: Any = None, **kwargs: Any
    ) -> Any:
        """A method of the ``shale.Cache``."""
        return getattr(self._cache, command)(*args, **kwargs)

    async def _redlock_release(self, key: Any, value: Any) -> int:
        entry = self._cache.entry(_key(key), peek=True)
        if entry is None or entry.value != value:
            return 0
        return int(self._cache.remove(_key(key), if_version=entry.version))


def _key(key: Any) -> Any:
    # A member of an Enum that is a str, as aiocache's keys may be.
    return str.__str__(key) if isinstance(key, str) else key


def _age(ttl: float | None) -> float:
    return ttl or NEVER
