"""A backend for requests-cache: ``pip install shale-cache[requests-cache]``.

from requests_cache import CachedSession
from shale.adapters.requests_cache import ShaleCache

session = CachedSession(backend=ShaleCache("/var/cache/http", capacity="1GiB"))
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

from requests_cache.backends import BaseCache, BaseStorage
from requests_cache.backends.sqlite import get_cache_path
from requests_cache.serializers import json_serializer

from .._cache import Cache
from ._opening import CacheOrPath, opened, taken

_missing = object()


class ShaleCache(BaseCache):
    """Responses and redirects, in one cache for any number of threads and processes.

    An expired response stays, as requests-cache may revalidate it, until the cache is full: then
    the least recently used response is evicted.
    """

    def __init__(
        self,
        cache_name: CacheOrPath = "http_cache",
        *,
        serializer: Any = None,
        decode_content: bool = False,
        **kwargs: Any,
    ) -> None:
        """cache_name: a directory, or an open ``shale.Cache``. serializer: of requests-cache, by
        its name or as an object; None: "json". "pickle" runs what it reads. decode_content: as of
        requests-cache. kwargs: options of ``shale.Cache``, ``use_temp`` and ``use_cache_dir``; and
        what requests-cache gives its backends."""
        super().__init__(cache_name=str(cache_name), **kwargs)
        self.responses = ShaleDict(
            cache_name,
            "responses",
            serializer or json_serializer,
            decode_content=decode_content,
            **kwargs,
        )
        self.redirects = ShaleDict(cache_name, "redirects", None, **kwargs)


class ShaleDict(BaseStorage):
    """A mapping: one namespace of a cache."""

    def __init__(
        self,
        cache_name: CacheOrPath,
        table_name: str = "responses",
        serializer: Any = json_serializer,
        *,
        use_temp: bool = False,
        use_cache_dir: bool = False,
        **kwargs: Any,
    ) -> None:
        options = taken(kwargs)
        super().__init__(serializer=serializer, **kwargs)
        if not isinstance(cache_name, Cache):
            cache_name = get_cache_path(os.fspath(cache_name), use_cache_dir, use_temp)
        self._whole = opened(cache_name, **options)
        self._cache = self._whole.namespace(table_name)

    def __getitem__(self, key: str) -> Any:
        value = self._cache.get(key, _missing)
        if value is _missing:
            raise KeyError(key)
        return self.deserialize(key, value)

    def __setitem__(self, key: str, value: Any) -> None:
        self._cache.set(key, self.serialize(value))

    def __delitem__(self, key: str) -> None:
        del self._cache[key]

    def __contains__(self, key: object) -> bool:
        return key in self._cache

    def __iter__(self) -> Iterator[str]:
        return iter(self._cache)

    def __len__(self) -> int:
        return len(self._cache)

    def bulk_delete(self, keys: Iterable[str]) -> None:
        """Removes many entries; missing ones are no error."""
        self._cache.remove_many(list(keys))

    def clear(self) -> None:
        """Removes all entries of this namespace. Costs the same for any number of entries."""
        self._cache.clear()
