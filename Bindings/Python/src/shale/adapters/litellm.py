"""A cache for LiteLLM: ``pip install shale-cache[litellm]``.

import litellm
from shale.adapters.litellm import ShaleCache

litellm.cache = litellm.Cache(type="local", max_messages=None)
litellm.cache.cache = ShaleCache("/var/cache/app", capacity="4GiB", max_age=30 * 86400)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from litellm.caching.base_cache import BaseCache

from ._answers import Answers, key_of
from ._opening import CacheOrPath


class ShaleCache(BaseCache):
    """The methods that LiteLLM's caches of responses have, on a namespace of a ``shale.Cache``.

    Any number of threads and processes use it. LiteLLM turns responses to JSON; reading runs no
    stored code. ``ttl`` is a maximum age in seconds; without it, that of the cache applies. Calls
    take microseconds, and are made on the event loop.
    """

    def __init__(self, directory: CacheOrPath, **options: Any) -> None:
        """directory: of the cache, in which the namespace is "litellm"; or an open ``shale.Cache``,
        or a namespace of one. options: those of ``shale.Cache``."""
        super().__init__()
        self._answers = Answers(directory, "litellm", **options)

    def get_cache(self, key: str, **kwargs: Any) -> Any:
        """What was stored, or None."""
        return self._answers.get(key_of(key))

    def set_cache(self, key: str, value: Any, **kwargs: Any) -> None:
        """Stores a response."""
        self._answers.keep(key_of(key), value, max_age=kwargs.get("ttl"))

    def batch_get_cache(self, keys: Iterable[str], **kwargs: Any) -> list[Any]:
        """What was stored with each key, or None."""
        return [self.get_cache(key) for key in keys]

    def delete_cache(self, key: str) -> None:
        """Removes a response."""
        self._answers.cache.remove(key_of(key))

    def flush_cache(self) -> None:
        """Removes all responses, and nothing else that is in the cache."""
        self._answers.cache.clear()

    async def async_get_cache(self, key: str, **kwargs: Any) -> Any:
        """``get_cache``."""
        return self.get_cache(key)

    async def async_set_cache(self, key: str, value: Any, **kwargs: Any) -> None:
        """``set_cache``."""
        self.set_cache(key, value, **kwargs)

    async def async_set_cache_pipeline(
        self, cache_list: Iterable[tuple[str, Any]], **kwargs: Any
    ) -> None:
        """Stores pairs of key and value."""
        for key, value in cache_list:
            self.set_cache(key, value, **kwargs)

    async def async_batch_get_cache(self, keys: Iterable[str], **kwargs: Any) -> list[Any]:
        """``batch_get_cache``."""
        return self.batch_get_cache(keys)

    async def batch_cache_write(self, key: str, value: Any, **kwargs: Any) -> None:
        """``set_cache``."""
        self.set_cache(key, value, **kwargs)

    async def delete_cache_keys(self, keys: Iterable[str]) -> None:
        """Removes responses."""
        self._answers.cache.remove_many([key_of(key) for key in keys])

    async def disconnect(self) -> None:
        """Does nothing: the cache closes with its last user."""

    async def test_connection(self) -> dict[str, Any]:
        """Always a success: an open cache needs no connection."""
        return {"status": "success", "message": "the cache is open"}
