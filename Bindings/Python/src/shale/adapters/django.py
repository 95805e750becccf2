"""A cache backend for Django: ``pip install shale-cache[django]``.

CACHES = {
    "default": {
        "BACKEND": "shale.adapters.django.ShaleCache",
        "LOCATION": "/var/cache/app",
        "OPTIONS": {"capacity": "1GiB"},
    }
}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django.core.cache.backends.base import DEFAULT_TIMEOUT, BaseCache
from django.utils.module_loading import import_string

from .._native.errors import InvalidError
from .._native.units import NEVER
from ._opening import opened


class ShaleCache(BaseCache):
    """One directory, for all threads and processes of a site.

    LOCATION is the directory, created if there is none. OPTIONS are those of ``shale.Cache``;
    ``MAX_ENTRIES`` is its ``max_entries``. Django's own middleware and ``cache_page`` store
    ``HttpResponse`` objects, which Shale has no form for: they need
    ``"serializer": "shale.PickleSerializer"`` (a class by its name, or an object). Unpickling runs
    code that the bytes choose; see ``shale.PickleSerializer``.

    All threads of a process share one open cache; ``close``, which Django calls after each request,
    does not close it. ``incr`` and ``add`` are atomic; ``incr`` does not change the age.
    """

    def __init__(self, location: Any, params: Mapping[str, Any]) -> None:
        super().__init__(params)
        options = dict(params.get("OPTIONS", {}))
        options.pop("CULL_FREQUENCY", None)  # the engine evicts entries one by one
        if "MAX_ENTRIES" in options:
            options["max_entries"] = options.pop("MAX_ENTRIES")
        serializer = options.get("serializer")
        if isinstance(serializer, str):
            options["serializer"] = import_string(serializer)()
        self._cache = opened(location, **{"accept_capacity": True, **options})

    def _key(self, key: Any, version: int | None) -> str:
        return str(self.make_and_validate_key(key, version=version))

    def _age(self, timeout: Any) -> float:
        if timeout is DEFAULT_TIMEOUT:
            timeout = self.default_timeout
        return NEVER if timeout is None else max(0.0, float(timeout))

    def add(
        self, key: Any, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None
    ) -> bool:
        """Stores a value if there is none. Whether it did. Atomic."""
        return self._cache.add(self._key(key, version), value, max_age=self._age(timeout))

    def get(self, key: Any, default: Any = None, version: int | None = None) -> Any:
        """The value, or ``default``."""
        return self._cache.get(self._key(key, version), default)

    def set(
        self, key: Any, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None
    ) -> None:
        """Stores a value. timeout: seconds, None: no limit."""
        self._cache.set(self._key(key, version), value, max_age=self._age(timeout))

    def touch(self, key: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> bool:
        """Gives an entry a new age. False if there is none."""
        return self._cache.touch(self._key(key, version), self._age(timeout))

    def delete(self, key: Any, version: int | None = None) -> bool:
        """Removes an entry. Whether there was one."""
        return self._cache.remove(self._key(key, version))

    def has_key(self, key: Any, version: int | None = None) -> bool:
        """Whether ``get`` would find it."""
        return self._key(key, version) in self._cache

    def incr(self, key: Any, delta: int = 1, version: int | None = None) -> int:
        """Adds to an int of 64 bits. Atomic. ValueError for a missing key, TypeError for a value
        that is not an int."""
        try:
            number = self._cache.incr(self._key(key, version), delta, create=False)
        except InvalidError as error:
            raise TypeError(f"{key!r}: {error}") from error
        if number is None:
            raise ValueError(f"Key {key!r} not found")
        return number

    def get_many(self, keys: Iterable[Any], version: int | None = None) -> dict[Any, Any]:
        """The existing values, by key."""
        wanted = {self._key(key, version): key for key in keys}
        found = self._cache.get_many(wanted)
        return {wanted[key]: value for key, value in found.items()}

    def set_many(
        self,
        data: Mapping[Any, Any],
        timeout: Any = DEFAULT_TIMEOUT,
        version: int | None = None,
    ) -> list[Any]:
        """Stores many values. Returns the failed keys: none, as a failure is an exception."""
        items = {self._key(key, version): value for key, value in data.items()}
        self._cache.set_many(items, max_age=self._age(timeout))
        return []

    def delete_many(self, keys: Iterable[Any], version: int | None = None) -> None:
        """Removes many entries."""
        self._cache.remove_many([self._key(key, version) for key in keys])

    def clear(self) -> None:
        """Removes all entries, of every version and prefix."""
        self._cache.clear()
