"""A backend for aiohttp-client-cache: ``pip install shale-cache[aiohttp-client-cache]``.

from aiohttp_client_cache import CachedSession
from shale.adapters.aiohttp_client_cache import ShaleBackend

async with CachedSession(cache=ShaleBackend("/var/cache/http", capacity="1GiB")) as session:
    ...
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from http.cookies import Morsel, SimpleCookie
from typing import Any, Final

from aiohttp_client_cache.backends.base import BaseCache, CacheBackend
from aiohttp_client_cache.response import CachedResponse

from .._cache import Cache
from ._opening import CacheOrPath, opened, taken

# Fields that Shale stores as they are. The others are converted to such values.
_PLAIN: Final = (
    "method",
    "reason",
    "status",
    "created_at",
    "encoding",
    "expires",
    "last_used",
)


class ShaleBackend(CacheBackend):
    """Responses and redirects, in one cache for any number of threads and processes.

    An expired response stays until it is read, or until the cache is full: then the least recently
    used response is evicted.
    """

    def __init__(self, cache_name: CacheOrPath = "http_cache", **kwargs: Any) -> None:
        """cache_name: a directory, or an open ``shale.Cache``. kwargs: options of ``shale.Cache``,
        and those of aiohttp-client-cache's backends. Responses are stored as values of Shale, which
        run no code when they are read; with ``secret_key`` or ``serializer`` they are stored by
        that library's serializer, by default with pickle."""
        super().__init__(cache_name=str(cache_name), **kwargs)
        self.responses = ShaleStorage(cache_name, "responses", **kwargs)
        self.redirects = ShaleStorage(cache_name, "redirects", **kwargs)


class ShaleStorage(BaseCache):
    """A mapping for coroutines: one namespace of a cache. Calls that take microseconds are made on
    the event loop."""

    def __init__(
        self, cache_name: CacheOrPath, table_name: str = "responses", **kwargs: Any
    ) -> None:
        options = taken(kwargs)
        super().__init__(**kwargs)
        self._serializes = bool(kwargs.get("secret_key") or kwargs.get("serializer"))
        self._whole: Cache[Any, Any] = opened(cache_name, **options)
        self._cache = self._whole.namespace(table_name)

    def serialize(self, item: Any = None) -> Any:
        """The value to store."""
        if self._serializes:
            return super().serialize(item)
        return ("response", _fields(item)) if isinstance(item, CachedResponse) else item

    def deserialize(self, item: Any) -> Any:
        """The argument of ``serialize``."""
        if self._serializes:
            return super().deserialize(item)
        return _response(item[1]) if type(item) is tuple and len(item) == 2 else item

    async def contains(self, key: str) -> bool:
        """Whether ``read`` would find it."""
        return key in self._cache

    async def read(self, key: str) -> Any:
        """The stored value, or None."""
        value = self._cache.get(key)
        return None if value is None else self.deserialize(value)

    async def write(self, key: str, item: Any) -> None:
        """Stores a value."""
        self._cache.set(key, self.serialize(item))

    async def delete(self, key: str) -> None:
        """Removes an entry; a missing one is no error."""
        self._cache.remove(key)

    async def bulk_delete(self, keys: Iterable[str]) -> None:
        """Removes many entries, likewise."""
        self._cache.remove_many(list(keys))

    async def clear(self) -> None:
        """Removes all entries of this namespace. Costs the same for any number of entries."""
        self._cache.clear()

    async def keys(self) -> AsyncIterator[str]:
        """The keys, in no particular order."""
        for key in await asyncio.to_thread(list, self._cache):
            yield key

    async def values(self) -> AsyncIterator[Any]:
        """The items, likewise."""
        async for key in self.keys():
            item = await self.read(key)
            if item is not None:
                yield item

    async def size(self) -> int:
        """The number of keys. Walks all keys."""
        return await asyncio.to_thread(len, self._cache)


def _fields(response: Any) -> dict[str, Any]:
    """A response as values that Shale stores."""
    version = response.version
    return {
        **{name: getattr(response, name) for name in _PLAIN},
        "url": str(response.url),
        "real_url": None if response.real_url is None else str(response.real_url),
        "version": version if isinstance(version, str) else tuple(version),
        "body": response._body,
        "links": [
            (name, [(key, str(value)) for key, value in items]) for name, items in response._links
        ],
        "cookies": [
            (name, each.value, each.coded_value, {key: str(value) for key, value in each.items()})
            for name, each in response.cookies.items()
        ],
        "raw_headers": [(bytes(name), bytes(value)) for name, value in response.raw_headers],
        "request_raw_headers": [
            (bytes(name), bytes(value)) for name, value in response.request_raw_headers
        ],
        "history": [_fields(each) for each in response.history],
    }


def _response(fields: dict[str, Any]) -> Any:
    from aiohttp import HttpVersion
    from yarl import URL

    cookies: SimpleCookie = SimpleCookie()
    for name, value, coded, attributes in fields["cookies"]:
        morsel: Morsel[str] = Morsel()
        morsel.set(name, value, coded)
        morsel.update({key: each for key, each in attributes.items() if each})
        cookies[name] = morsel
    version = fields["version"]
    real_url = fields["real_url"]
    response = CachedResponse(
        **{name: fields[name] for name in _PLAIN},
        url=fields["url"],
        real_url=None if real_url is None else URL(real_url),
        version=version if isinstance(version, str) else HttpVersion(*version),
        body=fields["body"],
        cookies=cookies,
        raw_headers=tuple(fields["raw_headers"]),
        request_raw_headers=tuple(fields["request_raw_headers"]),
        history=tuple(_response(each) for each in fields["history"]),
    )
    response._links = fields["links"]
    return response
