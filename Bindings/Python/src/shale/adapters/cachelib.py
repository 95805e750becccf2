"""A cache for cachelib: ``pip install shale-cache[cachelib]``.

from shale.adapters.cachelib import ShaleCache

cache = ShaleCache("/var/cache/app", capacity="1GiB")
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Union

from cachelib.base import BaseCache

from .._native.units import NEVER, Seconds
from ._opening import CacheOrPath, opened

Timeout = Union[float, timedelta, None]


class ShaleCache(BaseCache):
    """The methods of ``cachelib.BaseCache``, on a ``shale.Cache``.

    Any number of threads and processes use it. ``add``, ``inc`` and ``dec`` are atomic.
    """

    serializer: Any = None
    """An object with ``dumps`` and ``loads`` for all values, such as those of
    ``cachelib.serializers`` (those that pickle run code that they read); None: values are those of
    Shale."""

    def __init__(
        self,
        directory: CacheOrPath,
        default_timeout: int = 300,
        *,
        ignore_delete_many_errors: bool = True,
        **options: Any,
    ) -> None:
        """directory: of the cache, or an open ``shale.Cache``. default_timeout: seconds, for values
        without a timeout; 0: no limit. options: those of ``shale.Cache``."""
        super().__init__(default_timeout)
        self.ignore_delete_many_errors = ignore_delete_many_errors
        self._cache = opened(directory, **options)

    def _age(self, timeout: Timeout) -> Seconds:
        if timeout is None:
            timeout = self.default_timeout
        return timeout or NEVER

    def _dump(self, value: Any) -> Any:
        return value if self.serializer is None else self.serializer.dumps(value)

    def _load(self, value: Any) -> Any:
        if value is None or self.serializer is None:
            return value
        return self.serializer.loads(value)

    def get(self, key: str) -> Any:
        """The value, or None."""
        return self._load(self._cache.get(key))

    def get_many(self, *keys: str) -> list[Any]:
        """The values, or None for a missing one."""
        found = self._cache.get_many(keys)
        return [self._load(found.get(key)) for key in keys]

    def set(self, key: str, value: Any, timeout: Timeout = None) -> bool:
        """Stores a value; always True. timeout: seconds, 0: no limit."""
        return self._cache.set(key, self._dump(value), max_age=self._age(timeout))

    def add(self, key: str, value: Any, timeout: Timeout = None) -> bool:
        """Stores a value if there is none. Whether it did."""
        return self._cache.add(key, self._dump(value), max_age=self._age(timeout))

    def set_many(self, mapping: Mapping[str, Any], timeout: Timeout = None) -> list[str]:
        """Stores many values. Returns their keys."""
        items = {key: self._dump(value) for key, value in mapping.items()}
        self._cache.set_many(items, max_age=self._age(timeout))
        return list(items)

    def delete(self, key: str) -> bool:
        """Removes an entry. Whether there was one."""
        return self._cache.remove(key)

    def has(self, key: str) -> bool:
        """Whether ``get`` would find it."""
        return key in self._cache

    def clear(self) -> bool:
        """Removes all entries; always True."""
        self._cache.clear()
        return True

    def inc(self, key: str, delta: int = 1) -> int:
        """Adds to an int, and returns the new one; a missing one counts as 0."""
        if self.serializer is None:
            return self._cache.incr(key, delta, max_age=self._age(None))
        new = self._cache.update(
            key,
            lambda old: self._dump((self._load(old) or 0) + delta),
            max_age=self._age(None),
        )
        return int(self._load(new))

    def dec(self, key: str, delta: int = 1) -> int:
        """``inc(key, -delta)``."""
        return self.inc(key, -delta)
