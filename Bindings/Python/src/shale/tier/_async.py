"""`AsyncTier`: a tier for coroutines."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Iterable
from typing import TYPE_CHECKING, Any, Callable, Union

from .._chain import end_of_load
from .._keys import encode_key
from .._options import Tag, tag_bytes
from .._units import Seconds
from ._course import Ask, Call, Pause, Result, Steps, storing
from ._tier import Tier

if TYPE_CHECKING:
    from typing_extensions import Self

    from .._keys import Key

# Seconds. The end of a load by another event loop is not told here.
_LONGEST_WAIT = 1.0


class AsyncTier:
    """A ``Tier`` whose methods are coroutines.

        async with await AsyncTier.open("/var/cache/near", redis.Redis(host="cache")) as tier:
            await tier.set("user:7", {"name": "Ada"}, max_age=3600)
            await tier.get("user:7")

    They do what the tier's methods of the same names do. What is near is read at once, on the event
    loop: going through a thread would take many times as long. What asks the remote runs in a
    thread (``asyncio.to_thread``), so the client is that of ``Tier``. Who waits for another's read
    or load awaits it.
    """

    def __init__(self, tier: Tier) -> None:
        """Coroutines for a tier that is open."""
        self._tier = tier

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
        await asyncio.to_thread(self._tier.close)

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
        return tier._hit(key) or await _run(tier._find(key, None, None, stale, False))

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
        return tier._hit(key, True) or await _run(tier._find(key, load, how, stale, False))

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
        await asyncio.to_thread(self._tier._set, encode_key(key), value, how)

    async def remove(self, key: Key) -> bool:
        return await asyncio.to_thread(self._tier._remove, encode_key(key))

    async def invalidate(self, tag: Tag) -> None:
        await asyncio.to_thread(self._tier._invalidate, tag_bytes(tag))


async def _run(steps: Steps[Result]) -> Result:
    """Awaits what the steps ask for."""
    answer: Any = None
    error: BaseException | None = None
    while True:
        try:
            step = steps.send(answer) if error is None else steps.throw(error)
        except StopIteration as end:
            result: Result = end.value
            return result
        answer = error = None
        try:
            if isinstance(step, Pause):
                await _pause(step)
            elif isinstance(step, Call):
                answer = await asyncio.to_thread(step.function, *step.arguments)
            elif isinstance(step, Ask):
                pending = step.loader()
                if not isinstance(pending, Awaitable):
                    raise TypeError(
                        "the loader of a coroutine is async; for a plain function give "
                        "lambda: asyncio.to_thread(load)"
                    )
                answer = await pending
        except BaseException as raised:
            error = raised


async def _pause(pause: Pause) -> None:
    ended = end_of_load(pause.turn.place)
    if ended is None:
        await asyncio.sleep(pause.seconds)
    else:
        await asyncio.wait({ended}, timeout=min(pause.turn.left, _LONGEST_WAIT))
