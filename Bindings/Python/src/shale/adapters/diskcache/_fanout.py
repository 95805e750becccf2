"""``FanoutCache`` of diskcache, on Shale: one cache, as the engine has its own shards."""

from __future__ import annotations

import contextlib
import os
import time
import warnings
from collections.abc import Container, Iterator
from typing import Any, Callable

from ._cache import DEFAULT_SETTINGS, Cache, Timeout
from ._disk import ENOVAL, Disk
from ._memoize import memoizer
from ._persistent import Deque, Index


class _Whole(Cache):
    """The one cache of a `FanoutCache`."""

    def __init__(
        self, directory: Any, timeout: float, disk: type[Disk], settings: dict[str, Any]
    ) -> None:
        self._begin(directory, timeout, disk, settings, shards=None)


class FanoutCache:
    """A cache with the interface of ``diskcache.FanoutCache``: if another writer does not finish in
    time, a method fails silently, unless it is called with ``retry=True``. Its other methods are
    those of ``Cache``.
    """

    def __init__(
        self,
        directory: Any = None,
        shards: int = 8,
        timeout: float = 0.010,
        disk: type[Disk] = Disk,
        **settings: Any,
    ) -> None:
        """Opens the cache. shards: the factor for a ``size_limit`` that ``reset`` gets, which in
        diskcache is that of one shard. The other arguments are those of ``Cache``."""
        self._count = shards
        # A tuple, as in diskcache.
        self._shards: Any = (_Whole(directory, timeout, disk, settings),)
        self._disk = disk
        self._caches: dict[str, Cache] = {}
        self._deques: dict[str, Deque] = {}
        self._indexes: dict[str, Index] = {}

    @property
    def directory(self) -> str:
        """The path of its directory."""
        return str(self._shards[0].directory)

    def __getattr__(self, name: str) -> Any:
        if name == "size_limit":
            return self._shards[0].size_limit // self._count
        if name in DEFAULT_SETTINGS or name in ("timeout", "disk"):
            return getattr(self._shards[0], name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _try(self, otherwise: Any, name: str, *arguments: Any) -> Any:
        try:
            return getattr(self._shards[0], name)(*arguments)
        except Timeout:
            return otherwise

    @contextlib.contextmanager
    def transact(self, retry: bool = True) -> Iterator[None]:
        """As ``Cache.transact``; waits without a limit."""
        if not retry:
            raise ValueError("retry is True in FanoutCache.transact")
        with self._shards[0].transact(retry=True):
            yield

    def set(
        self,
        key: Any,
        value: Any,
        expire: float | None = None,
        read: bool = False,
        tag: Any = None,
        retry: bool = False,
    ) -> bool:
        """As ``Cache.set``. Whether it stored."""
        return bool(self._try(False, "set", key, value, expire, read, tag, retry))

    def __setitem__(self, key: Any, value: Any) -> None:
        self._shards[0][key] = value

    def add(
        self,
        key: Any,
        value: Any,
        expire: float | None = None,
        read: bool = False,
        tag: Any = None,
        retry: bool = False,
    ) -> bool:
        """As ``Cache.add``."""
        return bool(self._try(False, "add", key, value, expire, read, tag, retry))

    def touch(self, key: Any, expire: float | None = None, retry: bool = False) -> bool:
        """As ``Cache.touch``."""
        return bool(self._try(False, "touch", key, expire, retry))

    def incr(self, key: Any, delta: Any = 1, default: Any = 0, retry: bool = False) -> Any:
        """As ``Cache.incr``; None if it failed."""
        return self._try(None, "incr", key, delta, default, retry)

    def decr(self, key: Any, delta: Any = 1, default: Any = 0, retry: bool = False) -> Any:
        """As ``Cache.decr``; None if it failed."""
        return self._try(None, "decr", key, delta, default, retry)

    def get(
        self,
        key: Any,
        default: Any = None,
        read: bool = False,
        expire_time: bool = False,
        tag: bool = False,
        retry: bool = False,
    ) -> Any:
        """As ``Cache.get``."""
        try:
            return self._shards[0].get(key, default, read, expire_time, tag, retry)
        except Timeout:
            return default

    def __getitem__(self, key: Any) -> Any:
        return self._shards[0][key]

    def read(self, key: Any) -> Any:
        """As ``Cache.read``."""
        value = self.get(key, ENOVAL, read=True, retry=True)
        if value is ENOVAL:
            raise KeyError(key)
        return value

    def __contains__(self, key: Any) -> bool:
        return key in self._shards[0]

    def pop(
        self,
        key: Any,
        default: Any = None,
        expire_time: bool = False,
        tag: bool = False,
        retry: bool = False,
    ) -> Any:
        """As ``Cache.pop``."""
        return self._try(default, "pop", key, default, expire_time, tag, retry)

    def delete(self, key: Any, retry: bool = False) -> bool:
        """As ``Cache.delete``."""
        return bool(self._try(False, "delete", key, retry))

    def __delitem__(self, key: Any) -> None:
        del self._shards[0][key]

    def memoize(
        self,
        name: str | None = None,
        typed: bool = False,
        expire: float | None = None,
        tag: Any = None,
        ignore: Container[Any] = (),
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """As ``Cache.memoize``."""

        def set(key: Any, result: Any) -> None:
            if expire is None or expire > 0:
                self.set(key, result, expire, tag=tag, retry=True)

        return memoizer(lambda key: self.get(key, ENOVAL), set, name, typed, ignore)

    def check(self, fix: bool = False, retry: bool = False) -> list[warnings.WarningMessage]:
        """As ``Cache.check``."""
        return list(self._shards[0].check(fix, retry))

    def expire(self, retry: bool = False) -> int:
        """As ``Cache.expire``."""
        return self._all("expire", time.time(), retry=retry)

    def create_tag_index(self) -> None:
        """As ``Cache.create_tag_index``."""
        self._shards[0].create_tag_index()

    def drop_tag_index(self) -> None:
        """As ``Cache.drop_tag_index``."""
        self._shards[0].drop_tag_index()

    def evict(self, tag: Any, retry: bool = False) -> int:
        """As ``Cache.evict``."""
        return self._all("evict", tag, retry=retry)

    def cull(self, retry: bool = False) -> int:
        """As ``Cache.cull``."""
        return self._all("cull", retry=retry)

    def clear(self, retry: bool = False) -> int:
        """As ``Cache.clear``."""
        return self._all("clear", retry=retry)

    def _all(self, name: str, *arguments: Any, retry: bool) -> int:
        """Repeats a method until it does not time out, and adds up its results."""
        count = 0
        while True:
            try:
                return count + int(getattr(self._shards[0], name)(*arguments, retry=retry))
            except Timeout as timeout:
                count += timeout.args[0] if timeout.args else 0

    def stats(self, enable: bool = True, reset: bool = False) -> tuple[int, int]:
        """As ``Cache.stats``."""
        hits, misses = self._shards[0].stats(enable, reset)
        return hits, misses

    def volume(self) -> int:
        """As ``Cache.volume``."""
        return int(self._shards[0].volume())

    def close(self) -> None:
        """As ``Cache.close``. Objects of ``cache``, ``deque`` and ``index`` are made again
        later."""
        self._shards[0].close()
        self._caches.clear()
        self._deques.clear()
        self._indexes.clear()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def __getstate__(self) -> Any:
        return self.directory, self._count, self.timeout, self._disk

    def __setstate__(self, state: Any) -> None:
        self.__init__(*state)  # type: ignore[misc]

    def __repr__(self) -> str:
        return f"<shale.adapters.diskcache.FanoutCache {self.directory}>"

    def __iter__(self) -> Iterator[Any]:
        """As of ``Cache``: in the order of insertion, of all shards."""
        return iter(self._shards[0])

    def __reversed__(self) -> Iterator[Any]:
        return iter(reversed(self._shards[0]))

    def __len__(self) -> int:
        return len(self._shards[0])

    def reset(self, key: str, value: Any = ENOVAL) -> Any:
        """As ``Cache.reset``. A ``size_limit`` is that of one of ``shards``."""
        if key == "size_limit":
            whole = value if value is ENOVAL else int(value * self._count)
            return self._reset(key, whole) // self._count
        return self._reset(key, value)

    def _reset(self, key: str, value: Any) -> Any:
        while True:
            try:
                return self._shards[0].reset(key, value)
            except Timeout:
                continue

    # Caches, deques and indexes in its directory

    def cache(
        self, name: str, timeout: float = 60, disk: type[Disk] | None = None, **settings: Any
    ) -> Cache:
        """A separate ``Cache``, in a directory within this one's."""
        if name not in self._caches:
            path = self._path("cache", name)
            self._caches[name] = Cache(path, timeout, disk or self._disk, **settings)
        return self._caches[name]

    def deque(self, name: str, maxlen: int | None = None) -> Deque:
        """A separate ``Deque``, likewise."""
        if name not in self._deques:
            path = self._path("deque", name)
            cache = Cache(path, disk=self._disk, eviction_policy="none")
            self._deques[name] = Deque.fromcache(cache, maxlen=maxlen)
        return self._deques[name]

    def index(self, name: str) -> Index:
        """A separate ``Index``, likewise."""
        if name not in self._indexes:
            path = self._path("index", name)
            cache = Cache(path, disk=self._disk, eviction_policy="none")
            self._indexes[name] = Index.fromcache(cache)
        return self._indexes[name]

    def _path(self, kind: str, name: str) -> str:
        return os.path.join(self.directory, kind, *name.split("/"))
