"""``DjangoCache`` of diskcache, on Shale. New programs use ``shale.adapters.django``."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any, Callable

from django.core.cache.backends.base import DEFAULT_TIMEOUT

from ..._data.serializers import Serializer
from .._forms import REFUSED
from ..django import Django, DjangoSerializer
from ._cache import Cache
from ._disk import ENOVAL, Disk
from ._fanout import FanoutCache
from ._memoize import memoizer
from ._persistent import Deque, Index


class DjangoDisk(Disk):
    """Stores Shale's values, and those of ``shale.adapters.django.DjangoSerializer``."""

    def serializer(self) -> Serializer | None:
        return DjangoSerializer()


class DjangoCache(Django):
    """A backend of Django with the interface of ``diskcache.DjangoCache``.

        CACHES = {
            "default": {
                "BACKEND": "shale.adapters.diskcache.DjangoCache",
                "LOCATION": "/var/cache/app",
                "OPTIONS": {"size_limit": 2**30},
            }
        }

    OPTIONS are the arguments of ``FanoutCache``; ``"disk": PickleDisk`` stores objects of any type.
    The default disk, ``DjangoDisk``, also stores ``SafeString`` and responses. A value that cannot
    be stored is logged and not cached, as in ``shale.adapters.django``. ``MAX_ENTRIES`` and
    ``CULL_FREQUENCY`` have no effect, as in diskcache.
    """

    def __init__(self, directory: str, params: dict[str, Any]) -> None:
        super().__init__(params)
        shards = params.get("SHARDS", 8)
        timeout = params.get("DATABASE_TIMEOUT", 0.010)
        options = {"disk": DjangoDisk, **params.get("OPTIONS", {})}
        for name in ("MAX_ENTRIES", "CULL_FREQUENCY"):
            options.pop(name, None)
        self.without_pickle = options["disk"] in (Disk, DjangoDisk)
        self._cache = FanoutCache(directory, shards, timeout, **options)

    @property
    def directory(self) -> str:
        """The path of its directory."""
        return self._cache.directory

    def cache(self, name: str) -> Cache:
        """``FanoutCache.cache``."""
        return self._cache.cache(name)

    def deque(self, name: str, maxlen: int | None = None) -> Deque:
        """``FanoutCache.deque``."""
        return self._cache.deque(name, maxlen=maxlen)

    def index(self, name: str) -> Index:
        """``FanoutCache.index``."""
        return self._cache.index(name)

    def add(
        self,
        key: Any,
        value: Any,
        timeout: Any = DEFAULT_TIMEOUT,
        version: int | None = None,
        read: bool = False,
        tag: Any = None,
        retry: bool = True,
    ) -> bool:
        """Stores a value if there is none. Whether there was none."""
        name = self.make_key(key, version=version)
        age = self.get_backend_timeout(timeout)
        try:
            return self._cache.add(name, value, age, read, tag, retry)
        except REFUSED as error:
            self.refuse(key, value, error)
            return name not in self._cache

    def get(
        self,
        key: Any,
        default: Any = None,
        version: int | None = None,
        read: bool = False,
        expire_time: bool = False,
        tag: bool = False,
        retry: bool = False,
    ) -> Any:
        """The value, or ``default``; with read, expire_time and tag as ``FanoutCache.get``."""
        key = self.make_key(key, version=version)
        return self._cache.get(key, default, read, expire_time, tag, retry)

    def read(self, key: Any, version: int | None = None) -> Any:
        """``FanoutCache.read``."""
        return self._cache.read(self.make_key(key, version=version))

    def set(
        self,
        key: Any,
        value: Any,
        timeout: Any = DEFAULT_TIMEOUT,
        version: int | None = None,
        read: bool = False,
        tag: Any = None,
        retry: bool = True,
    ) -> bool:
        """Stores a value. Whether it did."""
        name = self.make_key(key, version=version)
        age = self.get_backend_timeout(timeout)
        try:
            return self._cache.set(name, value, age, read, tag, retry)
        except REFUSED as error:
            self.refuse(key, value, error)
            self._cache.delete(name, retry)
            return False

    def set_many(
        self,
        data: Mapping[Any, Any],
        timeout: Any = DEFAULT_TIMEOUT,
        version: int | None = None,
    ) -> list[Any]:
        """Stores many values. Returns the keys of those that it did not store."""
        return [key for key, value in data.items() if not self.set(key, value, timeout, version)]

    def touch(
        self,
        key: Any,
        timeout: Any = DEFAULT_TIMEOUT,
        version: int | None = None,
        retry: bool = True,
    ) -> bool:
        """Gives an entry a new age. False if there is none."""
        key = self.make_key(key, version=version)
        return self._cache.touch(key, self.get_backend_timeout(timeout), retry)

    def pop(
        self,
        key: Any,
        default: Any = None,
        version: int | None = None,
        expire_time: bool = False,
        tag: bool = False,
        retry: bool = True,
    ) -> Any:
        """Removes an entry and returns its value, or ``default``."""
        key = self.make_key(key, version=version)
        return self._cache.pop(key, default, expire_time, tag, retry)

    def delete(self, key: Any, version: int | None = None, retry: bool = True) -> bool:
        """Removes an entry. Whether there was one."""
        return self._cache.delete(self.make_key(key, version=version), retry)

    def incr(
        self,
        key: Any,
        delta: Any = 1,
        version: int | None = None,
        default: Any = None,
        retry: bool = True,
    ) -> Any:
        """Adds to a number. ValueError if it is missing and default is None."""
        key = self.make_key(key, version=version)
        try:
            return self._cache.incr(key, delta, default, retry)
        except KeyError:
            raise ValueError(f"Key {key!r} not found") from None

    def decr(
        self,
        key: Any,
        delta: Any = 1,
        version: int | None = None,
        default: Any = None,
        retry: bool = True,
    ) -> Any:
        """``incr(key, -delta)``."""
        return self.incr(key, -delta, version, default, retry)

    def has_key(self, key: Any, version: int | None = None) -> bool:
        """Whether ``get`` would find it."""
        return self.make_key(key, version=version) in self._cache

    def expire(self) -> int:
        """``FanoutCache.expire``."""
        return self._cache.expire()

    def stats(self, enable: bool = True, reset: bool = False) -> tuple[int, int]:
        """``FanoutCache.stats``."""
        return self._cache.stats(enable=enable, reset=reset)

    def create_tag_index(self) -> None:
        """``FanoutCache.create_tag_index``."""
        self._cache.create_tag_index()

    def drop_tag_index(self) -> None:
        """``FanoutCache.drop_tag_index``."""
        self._cache.drop_tag_index()

    def evict(self, tag: Any) -> int:
        """``FanoutCache.evict``."""
        return self._cache.evict(tag)

    def cull(self) -> int:
        """``FanoutCache.cull``."""
        return self._cache.cull()

    def clear(self) -> int:
        """Removes all entries, of every version and prefix."""
        return self._cache.clear()

    def close(self, **_kwargs: Any) -> None:
        """Does nothing: Django calls it after each request, and the cache stays open."""

    def get_backend_timeout(self, timeout: Any = DEFAULT_TIMEOUT) -> Any:
        """Seconds, or None for no limit."""
        return self.default_timeout if timeout is DEFAULT_TIMEOUT else timeout

    def memoize(
        self,
        name: str | None = None,
        timeout: Any = DEFAULT_TIMEOUT,
        version: int | None = None,
        typed: bool = False,
        tag: Any = None,
        ignore: Container[Any] = (),
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """``Cache.memoize``, with a timeout and a version."""

        def get(key: Any) -> Any:
            return self.get(key, ENOVAL, version)

        def set(key: Any, result: Any) -> None:
            if timeout is None or timeout is DEFAULT_TIMEOUT or timeout > 0:
                self.set(key, result, timeout, version, tag=tag)

        return memoizer(get, set, name, typed, ignore)
