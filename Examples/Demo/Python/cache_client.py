"""All calls of the cache."""

from __future__ import annotations

import shale

CacheError = shale.Error


class CacheClient:
    """Keys and values are bytes, as in C and Swift."""

    def __init__(self, directory: str, capacity: int) -> None:
        self._cache = shale.Cache(directory, capacity=capacity)

    def get(self, key: bytes) -> bytes | None:
        return self._cache.get(key)

    def has_age(self, key: bytes) -> bool:
        """Whether the entry is present and has an age."""
        entry = self._cache.entry(key)
        return entry is not None and entry.expires != shale.NEVER

    def set(self, key: bytes, value: bytes) -> None:
        self._cache.set(key, value)

    def set_aged(self, key: bytes, value: bytes, seconds: float, tag: bytes) -> None:
        self._cache.set(key, value, max_age=seconds, tag=tag)

    def close(self) -> None:
        self._cache.close()
