"""`AsyncTier`: a tier for coroutines."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Callable, Final, Union
from weakref import WeakKeyDictionary

from .._data.options import Tag
from .._loading.single_flight_async import LoopBell
from .._native.units import Seconds
from ._io import Ask, Call, Exchange, Pause, Steps, V
from ._steps import Result, stored_key, stored_tag, storing
from ._tier import Tier

if TYPE_CHECKING:
    from typing_extensions import Self

    from .._typing import Key

# For calls of memcached.
_MOST_THREADS: Final = 32


class AsyncTier:
    """A ``Tier`` whose methods are coroutines.

        async with await AsyncTier.open("/var/cache/near", redis.Redis(host="cache")) as tier:
            await tier.set("user:7", {"name": "Ada"}, max_age=3600)
            await tier.get("user:7")

    They do what the tier's methods of the same names do. Values in the near cache are read at once,
    on the event loop: a thread would take many times as long. For calls of Redis and Valkey, each
    event loop has up to 32 connections of its own, with the options of the client, which is the
    same as for ``Tier``; calls of memcached run in as many threads. Waiting for another caller's
    read or load is awaited. A write that is cancelled counts as one that fails.
    """

    def __init__(self, tier: Tier) -> None:
        """Coroutines for an open tier.

        Raises InvalidError if connections for asyncio have no counterpart to those of the client.
        """
        self._tier = tier
        self._new_wire = tier._remote.async_wires(self._in_thread)
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._threads = ThreadPoolExecutor(_MOST_THREADS, "shale tier")
        self._wires: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
        """By event loop."""

    def _in_thread(self, function: Callable[[], V]) -> Awaitable[V]:
        self._begin_after_fork()
        return asyncio.get_running_loop().run_in_executor(self._threads, function)

    def _begin_after_fork(self) -> None:
        """A child of fork has neither the threads nor connections of its own."""
        if self._process != os.getpid():
            self._begin()

    def _wire(self) -> Any:
        self._begin_after_fork()
        loop = asyncio.get_running_loop()
        if loop not in self._wires:
            # Its connections keep a closed loop alive.
            for reference in self._wires.keyrefs():
                each = reference()
                wire = self._wires.pop(each, None) if each and each.is_closed() else None
                if wire is not None:
                    wire.close()
            self._wires[loop] = self._new_wire()
        return self._wires[loop]

    @classmethod
    async def open(
        cls, directory: Union[str, os.PathLike[str]], client: Any, **options: Any
    ) -> AsyncTier:
        """Opens a tier. The arguments are those of ``Tier``."""
        return cls(await asyncio.to_thread(lambda: Tier(directory, client, **options)))

    @property
    def tier(self) -> Tier:
        """The tier itself."""
        return self._tier

    async def close(self) -> None:
        """As ``Tier.close``. Closes the connections of this event loop."""
        wire = self._wires.pop(asyncio.get_running_loop(), None)
        if wire is not None:
            wire.close()
        await self._in_thread(self._tier.close)
        self._threads.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<shale.tier.AsyncTier of {self._tier!r}>"

    # Reading

    async def get(self, key: Key, default: Any = None, *, stale: bool = False) -> Any:
        result = await self.lookup(key, stale=stale)
        return default if result.missing else result.value

    async def lookup(self, key: Key, *, stale: bool = False) -> Result:
        tier = self._tier
        hit = tier._hit(key)
        if hit is not None:
            return hit
        return await self._run(tier._find(key, None, None, stale, LoopBell()))

    async def get_or_load(
        self, key: Key, load: Callable[[], Awaitable[Any]], *, default: Any = None, **options: Any
    ) -> Any:
        """As ``Tier.get_or_load``; ``load`` is async."""
        result = await self.lookup_or_load(key, load, **options)
        return default if result.missing else result.value

    async def lookup_or_load(
        self,
        key: Key,
        load: Callable[[], Awaitable[Any]],
        *,
        max_age: Seconds | None = None,
        missing_age: Seconds | None = None,
        tags: Iterable[Tag] = (),
        stale: bool = False,
    ) -> Result:
        """As ``Tier.lookup_or_load``; ``load`` is async."""
        tier = self._tier
        how = storing(max_age, tags, missing_age)
        hit = tier._hit(key, True)
        if hit is not None:
            return hit
        return await self._run(tier._find(key, load, how, stale, LoopBell()))

    # Writing

    async def set(
        self,
        key: Key,
        value: Any,
        *,
        max_age: Seconds | None = None,
        tags: Iterable[Tag] = (),
    ) -> None:
        how = storing(max_age, tags)
        await self._run(self._tier._set(stored_key(key), value, how))

    async def remove(self, key: Key) -> bool:
        return await self._run(self._tier._remove(stored_key(key)))

    async def invalidate(self, tag: Tag) -> None:
        await self._run(self._tier._invalidate(stored_tag(tag)))

    async def _run(self, steps: Steps[V]) -> V:
        """Runs the steps, and awaits them."""
        answer: Any = None
        error: BaseException | None = None
        while True:
            try:
                step = steps.send(answer) if error is None else steps.throw(error)
            except StopIteration as end:
                result: V = end.value
                return result
            answer = error = None
            try:
                if isinstance(step, Exchange):
                    answer = await self._wire().exchange(step)
                elif isinstance(step, Call):
                    answer = await self._in_thread(step.function)
                elif isinstance(step, Ask):
                    answer = await _load(step.loader)
                elif isinstance(step, Pause):
                    await step.bell.wait(step.seconds)
                else:
                    await asyncio.sleep(step.seconds)
            except BaseException as raised:
                error = raised


def _load(loader: Callable[[], Any]) -> Awaitable[Any]:
    pending = loader()
    if not isinstance(pending, Awaitable):
        raise TypeError(
            "the loader of a coroutine is async; for a plain function give "
            "lambda: asyncio.to_thread(load)"
        )
    return pending
