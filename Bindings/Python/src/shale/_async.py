"""The cache for coroutines: `AsyncCache`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Iterable
from typing import TYPE_CHECKING, Any, Callable, Final, Generic, TypeVar, Union, overload

from ._cache import Cache
from ._data.options import Tag
from ._data.records import Entry, Report, Stats
from ._loading.policy import policy
from ._loading.single_flight_async import load_async, value_of_async
from ._native.units import Seconds
from ._store.locks import LockBase
from ._typing import KT, VT, T

if TYPE_CHECKING:
    from typing import Literal

    from typing_extensions import Buffer, Self, Unpack

    from ._data.options import (
        EntryOptions,
        LeaseOptions,
        LockOptions,
        OpenOptions,
        ReadOptions,
        SetOptions,
        StoreOptions,
    )
    from ._loading.manual import Lease
    from ._loading.memoize import Memoized, P
    from ._loading.policy import LoadOptions
    from ._loading.results import Loaded, LoadResult, Missing, NotModified
    from ._store.events import EventName, Listener
    from ._store.readers import Reader
    from ._typing import Items, Key

K = TypeVar("K")
V = TypeVar("V")

# Items of an iteration after which other coroutines may run.
_STEPS: Final = 128


class AsyncCache(Generic[KT, VT]):
    """A ``Cache`` whose methods are coroutines.

        async with await shale.AsyncCache.open("/var/cache/app") as cache:
            await cache.set("key", "value", max_age=60)
            await cache.get("key")

    They do what the cache's methods of the same names do. Calls that take microseconds run at once,
    on the event loop: a thread would take many times as long. Calls that may take long run in a
    thread (``asyncio.to_thread``): opening, closing, ``sync``, ``clear``, ``evict``, ``purge`` and
    ``verify``. ``get_or_load`` awaits another caller's load.

    A value of many megabytes, or a batch of many thousands, blocks the event loop while it is
    copied. If that matters, call the cache itself in a thread:
    ``await asyncio.to_thread(cache.cache.get, key)``.

    Several of these objects and threads may use a cache at the same time. Several event loops may
    use one of these objects.
    """

    def __init__(self, cache: Cache[KT, VT]) -> None:
        """Coroutines for an open cache."""
        self._cache = cache

    @classmethod
    async def open(
        cls,
        directory: Union[str, bytes, os.PathLike[str], os.PathLike[bytes], None],
        **options: Unpack[OpenOptions],
    ) -> AsyncCache[KT, VT]:
        """Opens a cache. The arguments are those of ``Cache``."""
        opened = await asyncio.to_thread(Cache[KT, VT], directory, **options)
        return cls(opened)

    # The handle

    @property
    def cache(self) -> Cache[KT, VT]:
        """The cache itself."""
        return self._cache

    @property
    def directory(self) -> str | None:
        return self._cache.directory

    @property
    def closed(self) -> bool:
        return self._cache.closed

    async def close(self) -> None:
        await asyncio.to_thread(self._cache.close)

    async def sync(self) -> None:
        await asyncio.to_thread(self._cache.sync)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<shale.AsyncCache of {self._cache!r}>"

    # Reading

    @overload
    async def get(
        self, key: KT, default: None = None, **options: Unpack[ReadOptions]
    ) -> VT | None: ...

    @overload
    async def get(
        self, key: KT, default: Union[VT, T], **options: Unpack[ReadOptions]
    ) -> Union[VT, T]: ...

    async def get(self, key: KT, default: Any = None, **options: Unpack[ReadOptions]) -> Any:
        return self._cache.get(key, default, **options)

    async def entry(self, key: KT, **options: Unpack[ReadOptions]) -> Entry[VT] | None:
        return self._cache.entry(key, **options)

    async def get_many(self, keys: Iterable[K], **options: Unpack[ReadOptions]) -> dict[K, VT]:
        return self._cache.get_many(keys, **options)

    async def get_into(self, key: KT, buffer: Buffer, **options: Unpack[ReadOptions]) -> int | None:
        return self._cache.get_into(key, buffer, **options)

    async def reader(self, key: KT, **options: Unpack[ReadOptions]) -> Reader | None:
        """``Cache.reader``. The file is in memory, and is read without awaiting."""
        return self._cache.reader(key, **options)

    def __contains__(self, key: object) -> bool:
        """Not a coroutine: Python has no ``await`` for ``in``."""
        return key in self._cache

    # Writing

    async def set(self, key: KT, value: VT, **options: Unpack[SetOptions]) -> bool:
        return self._cache.set(key, value, **options)

    async def add(self, key: KT, value: VT, **options: Unpack[StoreOptions]) -> bool:
        return self._cache.add(key, value, **options)

    async def set_many(self, items: Items[KT, VT], **options: Unpack[StoreOptions]) -> None:
        self._cache.set_many(items, **options)

    @overload
    async def incr(
        self,
        key: KT,
        delta: int = 1,
        *,
        initial: int = 0,
        create: Literal[True] = True,
        **options: Unpack[EntryOptions],
    ) -> int: ...

    @overload
    async def incr(
        self,
        key: KT,
        delta: int = 1,
        *,
        initial: int = 0,
        create: bool,
        **options: Unpack[EntryOptions],
    ) -> int | None: ...

    async def incr(
        self,
        key: KT,
        delta: int = 1,
        *,
        initial: int = 0,
        create: bool = True,
        **options: Unpack[EntryOptions],
    ) -> int | None:
        return self._cache.incr(key, delta, initial=initial, create=create, **options)

    @overload
    async def decr(
        self,
        key: KT,
        delta: int = 1,
        *,
        initial: int = 0,
        create: Literal[True] = True,
        **options: Unpack[EntryOptions],
    ) -> int: ...

    @overload
    async def decr(
        self,
        key: KT,
        delta: int = 1,
        *,
        initial: int = 0,
        create: bool,
        **options: Unpack[EntryOptions],
    ) -> int | None: ...

    async def decr(
        self,
        key: KT,
        delta: int = 1,
        *,
        initial: int = 0,
        create: bool = True,
        **options: Unpack[EntryOptions],
    ) -> int | None:
        return self._cache.decr(key, delta, initial=initial, create=create, **options)

    async def touch(self, key: KT, max_age: Seconds | None = None) -> bool:
        return self._cache.touch(key, max_age)

    async def expire(self, key: KT) -> bool:
        return self._cache.expire(key)

    async def setdefault(
        self,
        key: KT,
        default: VT = None,  # type: ignore[assignment]
        **options: Unpack[StoreOptions],
    ) -> VT:
        return self._cache.setdefault(key, default, **options)

    @overload
    async def update(
        self,
        key: KT,
        function: Callable[[Any], VT],
        default: Any = None,
        **options: Unpack[StoreOptions],
    ) -> VT: ...

    @overload
    async def update(self, items: Items[KT, VT], /, **options: Unpack[StoreOptions]) -> None: ...

    async def update(
        self, key: Any, function: Any = None, default: Any = None, **options: Unpack[StoreOptions]
    ) -> Any:
        """``Cache.update``. The function is a plain one."""
        return self._cache.update(key, function, default, **options)

    async def lease(self, key: KT, **options: Unpack[LeaseOptions]) -> Lease[KT, VT]:
        """``Cache.lease``. The lease is used without awaiting, also in ``with``."""
        return self._cache.lease(key, **options)

    def namespace(self, name: str, **options: Unpack[EntryOptions]) -> AsyncCache[Any, Any]:
        """``Cache.namespace``, for coroutines."""
        return AsyncCache(self._cache.namespace(name, **options))

    def lock(self, key: KT, **options: Unpack[LockOptions]) -> AsyncLock:
        """As ``Cache.lock``, for ``async with``: waiting does not block other coroutines."""
        return AsyncLock(self._cache, key, **options)

    # Loading

    @overload
    async def get_or_load(
        self,
        key: KT,
        load: Callable[[], Awaitable[Union[Loaded[V], Missing, NotModified]]],
        *,
        default: Any = None,
        **options: Unpack[LoadOptions],
    ) -> V: ...

    @overload
    async def get_or_load(
        self,
        key: KT,
        load: Callable[[], Awaitable[Union[V, Missing, NotModified]]],
        *,
        default: Any = None,
        **options: Unpack[LoadOptions],
    ) -> V: ...

    async def get_or_load(
        self,
        key: KT,
        load: Callable[[], Awaitable[Any]],
        *,
        default: Any = None,
        **options: Unpack[LoadOptions],
    ) -> Any:
        """As ``Cache.get_or_load``, for a ``load`` that is awaited.

        If the loading coroutine is cancelled, one of the waiting callers loads. With
        ``soft_timeout`` or ``timeout``, the load is a task, which continues when its caller goes on
        without it.
        """
        return await value_of_async(
            self._cache, key, policy(options), lambda _previous: load(), default
        )

    async def entry_or_load(
        self,
        key: KT,
        load: Callable[[Union[Entry[VT], None]], Awaitable[Any]],
        **options: Unpack[LoadOptions],
    ) -> LoadResult:
        """As ``Cache.entry_or_load``, for a ``load`` that is awaited."""
        return await load_async(self._cache, key, policy(options), load)

    @overload
    def memoize(
        self,
        function: Callable[P, V],
        /,
        *,
        name: str | None = None,
        key: Callable[..., Key] | None = None,
        **options: Unpack[LoadOptions],
    ) -> Memoized[P, V]: ...

    @overload
    def memoize(
        self,
        function: None = None,
        /,
        *,
        name: str | None = None,
        key: Callable[..., Key] | None = None,
        **options: Unpack[LoadOptions],
    ) -> Callable[[Callable[P, V]], Memoized[P, V]]: ...

    def memoize(self, function: Any = None, /, **options: Any) -> Any:
        """``Cache.memoize``."""
        decorate: Any = self._cache.memoize(**options)
        return decorate if function is None else decorate(function)

    # Removing

    async def remove(self, key: KT, *, if_version: int | None = None) -> bool:
        return self._cache.remove(key, if_version=if_version)

    async def remove_many(self, keys: Iterable[KT]) -> int:
        return self._cache.remove_many(keys)

    @overload
    async def pop(self, key: KT, default: None = None) -> VT | None: ...

    @overload
    async def pop(self, key: KT, default: Union[VT, T]) -> Union[VT, T]: ...

    async def pop(self, key: KT, default: Any = None) -> Any:
        return self._cache.pop(key, default)

    async def popitem(self) -> tuple[KT, VT]:
        return self._cache.popitem()

    async def invalidate(self, tag: Tag, *, expire: bool = False) -> None:
        self._cache.invalidate(tag, expire=expire)

    async def clear(self) -> None:
        await asyncio.to_thread(self._cache.clear)

    async def evict(self, count: int) -> int:
        return await asyncio.to_thread(self._cache.evict, count)

    async def purge(self) -> int:
        return await asyncio.to_thread(self._cache.purge)

    # Looking at the whole

    def __aiter__(self) -> AsyncIterator[KT]:
        return self.keys()

    def keys(self, *, stale: bool = False) -> AsyncIterator[KT]:
        return _yielding(self._cache.keys(stale=stale))

    def values(self, *, stale: bool = False) -> AsyncIterator[VT]:
        return _yielding(self._cache.values(stale=stale))

    def items(self, *, stale: bool = False) -> AsyncIterator[tuple[KT, VT]]:
        return _yielding(self._cache.items(stale=stale))

    def __len__(self) -> int:
        """Not a coroutine: Python has no ``await`` for ``len``. Walks all keys, and blocks the
        event loop meanwhile; ``(await cache.stats()).entries`` does not."""
        return len(self._cache)

    def __bool__(self) -> bool:
        """Whether there is any key. Not a coroutine, likewise."""
        return bool(self._cache)

    async def stats(self) -> Stats:
        return self._cache.stats()

    def on(self, name: EventName, listener: Listener) -> Callable[[], None]:
        """``Cache.on``. The listener is a plain function, which runs in the thread of the call."""
        return self._cache.on(name, listener)

    async def volume(self) -> int:
        return self._cache.volume()

    async def verify(self) -> Report:
        return await asyncio.to_thread(self._cache.verify)


class AsyncLock(LockBase):
    """The result of ``AsyncCache.lock``. An ``async with`` statement holds the lock in its body."""

    __slots__ = ()

    async def acquire(self) -> bool:
        """Waits for the lock, up to ``timeout``. Whether this object holds it now."""
        for pause in self._tries():
            await asyncio.sleep(pause)
        return self._lease is not None

    async def __aenter__(self) -> AsyncLock:
        if not await self.acquire():
            raise self._timed_out()
        return self

    async def __aexit__(self, *_exception: object) -> None:
        self.release()


async def _yielding(items: Iterable[V]) -> AsyncIterator[V]:
    """The items. Lets other coroutines run now and then."""
    for number, item in enumerate(items, 1):
        yield item
        if number % _STEPS == 0:
            await asyncio.sleep(0)
