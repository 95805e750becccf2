"""``get_or_load`` for coroutines.

A coroutine that waits must not hold its event loop. Where another of the same
loop is loading, it waits for the end of that; where it is another thread or
process, nobody will tell it, and it looks again after growing pauses.

This module is imported by those who use it alone: asyncio takes longer to import
than all the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Callable, Final, TypeVar, cast

from ._keys import Key
from ._loading import Policy, Turn

if TYPE_CHECKING:
    from ._cache import Cache

V = TypeVar("V")

# Seconds.
_FIRST_PAUSE: Final = 0.001
_LONGEST_PAUSE: Final = 0.025


async def load_async(
    cache: Cache, key: Key, policy: Policy, loader: Callable[[], Awaitable[V]]
) -> V:
    """As `load`, without keeping the event loop from running."""
    with Turn(cache, key, policy) as turn:
        loop = asyncio.get_running_loop()
        loads = cache._loads
        place = (loop, turn.stored_key)
        pause = _FIRST_PAUSE
        while not turn.look(0):
            under_way = loads.get(place)
            if under_way is not None:
                await asyncio.wait({under_way}, timeout=min(turn.left, policy.lease))
            else:
                await asyncio.sleep(min(turn.left, pause))
                pause = min(2 * pause, _LONGEST_PAUSE)
        if not turn.loads:
            return cast(V, turn.value)
        ended = loads[place] = loop.create_future()
        try:
            value = await loader()
        except Exception:
            if turn.fresh:
                return cast(V, turn.value)
            raise
        else:
            return turn.store(value)
        finally:
            # Who waits goes on when this coroutine next awaits: the lease is given back by then.
            ended.set_result(None)
            if loads.get(place) is ended:
                del loads[place]
