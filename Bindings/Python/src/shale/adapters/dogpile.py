"""A backend for dogpile.cache: ``pip install shale-cache[dogpile]``.

region = make_region().configure(
    "shale.adapters.dogpile",
    expiration_time=3600,
    arguments={"directory": "/var/cache/app", "capacity": "1GiB"},
)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dogpile.cache.api import NO_VALUE, CacheBackend, CachedValue, CacheMutex

from .._data.options import OpenOptions
from .._native.units import LEASE, Seconds
from .._store.locks import Lock
from ._opening import opened


class ShaleBackend(CacheBackend):
    """The backend ``"shale.adapters.dogpile"``, an entry point of the package.

    arguments: ``directory``, of the cache, or an open ``shale.Cache``; ``lease``, seconds after
    which another caller gets the mutex of a process that was stopped (30); and the options of
    ``shale.Cache``. The mutex is a ``shale.Lock``: one caller at a time loads, in all processes.

    Values are those of Shale; for other types give ``serializer=shale.PickleSerializer()``, or give
    the region a serializer.
    """

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self._lease = arguments.get("lease", LEASE)
        options = {name: arguments[name] for name in OpenOptions.__annotations__ & arguments.keys()}
        self._cache = opened(arguments["directory"], **options)

    def get_mutex(self, key: str) -> Mutex:
        """The lock of a key."""
        return Mutex(self._cache, key, self._lease)

    def get(self, key: str) -> Any:
        """The value that ``set`` stored, or NO_VALUE."""
        return _read(self._cache.get(key, NO_VALUE))

    def get_multi(self, keys: Sequence[str]) -> list[Any]:
        """The value of each key, or NO_VALUE."""
        found = self._cache.get_many(keys)
        return [_read(found.get(key, NO_VALUE)) for key in keys]

    def set(self, key: str, value: Any) -> None:
        """Stores a CachedValue, or the bytes of the region's serializer."""
        self._cache.set(key, _written(value))

    def set_multi(self, mapping: Mapping[str, Any]) -> None:
        """Stores many values."""
        self._cache.set_many({key: _written(value) for key, value in mapping.items()})

    def delete(self, key: str) -> None:
        """Removes an entry."""
        self._cache.remove(key)

    def delete_multi(self, keys: Sequence[str]) -> None:
        """Removes many entries."""
        self._cache.remove_many(keys)


def _written(value: Any) -> Any:
    # Shale stores no named tuples.
    return tuple(value) if isinstance(value, CachedValue) else value


def _read(value: Any) -> Any:
    return CachedValue(*value) if type(value) is tuple and len(value) == 2 else value


class Mutex(CacheMutex):
    """A lock of all threads and processes. It is not reentrant."""

    def __init__(self, cache: Any, key: str, lease: Seconds) -> None:
        self._cache = cache
        self._key = key
        self._lease = lease
        self._lock: Lock | None = None

    def acquire(self, wait: bool = True) -> bool:
        """Takes the lock, and waits for it without a limit, or not at all. Whether it is held."""
        lock = self._cache.lock(self._key, timeout=None if wait else 0, lease=self._lease)
        if not lock.acquire():
            return False
        self._lock = lock
        return True

    def release(self) -> None:
        """Releases it. RuntimeError if it is not held."""
        lock, self._lock = self._lock, None
        if lock is None:
            raise RuntimeError(f"the mutex of {self._key!r} is not held")
        lock.release()

    def locked(self) -> bool:
        """Whether any caller holds it."""
        probe = self._cache.lock(self._key, timeout=0, lease=self._lease)
        if not probe.acquire():
            return True
        probe.release()
        return False
