"""A store for py-key-value, and so for FastMCP: ``pip install shale-cache[key-value]``.

from shale.adapters.key_value import ShaleStore

store = ShaleStore("/var/cache/app", capacity="1GiB")
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

from key_value.aio.stores.base import (
    BaseCullStore,
    BaseDestroyCollectionStore,
    BaseDestroyStore,
    BaseEnumerateCollectionsStore,
    BaseEnumerateKeysStore,
    BaseStore,
)

from .._cache import Cache
from .._data.records import Entry
from .._native.units import NEVER
from ._opening import CacheOrPath, opened


class ShaleStore(
    BaseCullStore,
    BaseDestroyStore,
    BaseDestroyCollectionStore,
    BaseEnumerateCollectionsStore,
    BaseEnumerateKeysStore,
    BaseStore,
):
    """Collections are namespaces of one ``shale.Cache``, for any number of threads and processes.

    Values are stored as JSON, as in py-key-value's other stores. When the cache is full, entries
    are evicted before their time. Calls that take microseconds run on the event loop; calls that
    walk all keys run in a thread.
    """

    def __init__(
        self, directory: CacheOrPath, *, default_collection: str | None = None, **options: Any
    ) -> None:
        """directory: of the cache, or an open ``shale.Cache``. options: those of
        ``shale.Cache``."""
        self._cache: Cache[Any, Any] = opened(directory, **options)
        super().__init__(default_collection=default_collection, stable_api=True)

    async def _get_managed_entry(self, *, key: str, collection: str) -> Any:
        return self._managed(self._cache.entry((collection, key)))

    def _managed(self, entry: Entry[Any] | None) -> Any:
        if entry is None or not isinstance(entry.value, str):
            return None
        managed = self._serialization_adapter.load_json(json_str=entry.value)
        if entry.expires != NEVER:
            managed.expires_at = datetime.fromtimestamp(entry.expires, tz=timezone.utc)
        return managed

    async def _put_managed_entry(self, *, key: str, collection: str, managed_entry: Any) -> None:
        text = self._serialization_adapter.dump_json(
            entry=managed_entry, key=key, collection=collection
        )
        ttl = managed_entry.ttl
        self._cache.namespace(collection).set(
            key, text, max_age=NEVER if ttl is None else max(0.0, ttl)
        )

    async def _delete_managed_entry(self, *, key: str, collection: str) -> bool:
        return self._cache.remove((collection, key))

    async def _delete_managed_entries(self, *, keys: Sequence[str], collection: str) -> int:
        return self._cache.remove_many([(collection, key) for key in keys])

    async def _get_collection_keys(self, *, collection: str, limit: int | None = None) -> list[str]:
        keys = await asyncio.to_thread(list, self._cache.namespace(collection))
        return keys[:limit]

    async def _get_collection_names(self, *, limit: int | None = None) -> list[str]:
        return (await asyncio.to_thread(self._names))[:limit]

    def _names(self) -> list[str]:
        names = {key[0]: None for key in self._cache if isinstance(key, tuple) and len(key) == 2}
        return list(names)

    async def _delete_collection(self, *, collection: str) -> bool:
        self._cache.namespace(collection).clear()
        return True

    async def _delete_store(self) -> bool:
        await asyncio.to_thread(self._cache.clear)
        return True

    async def _cull(self) -> None:
        await asyncio.to_thread(self._cache.purge)
