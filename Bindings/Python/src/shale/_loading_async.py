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
from typing import TYPE_CHECKING, Any, Callable

from ._chain import end_of_load
from ._keys import Key
from ._load import Load
from ._loaded import LoadResult
from ._loading import NONE, hit, looks_first
from ._policy import Policy
from ._turn import Turn

if TYPE_CHECKING:
    from ._cache import Cache
    from ._records import Entry

    AsyncLoader = Callable[[Entry | None], Awaitable[Any]]

# Nobody else may hold a task whose caller has gone on without it.
_tasks: set[asyncio.Task[LoadResult]] = set()


async def value_of_async(
    cache: Cache[Any, Any], key: Key, policy: Policy, loader: AsyncLoader, default: Any = None
) -> Any:
    """`load_async`, of whose result its caller wants the value alone."""
    counted = looks_first(cache, policy)
    if counted:
        value = hit(cache, key, policy)
        if value is not NONE:
            return value
    result = await load_async(cache, key, policy, loader, counted)
    return default if result.missing else result.value


async def load_async(
    cache: Cache[Any, Any], key: Key, policy: Policy, loader: AsyncLoader, counted: bool = False
) -> LoadResult:
    """As `load`, without keeping the event loop from running."""
    result = await _load(cache, key, policy, loader, counted)
    listeners = cache._listeners
    return result if listeners is None else listeners.served(key, result)


async def _load(
    cache: Cache[Any, Any], key: Key, policy: Policy, loader: AsyncLoader, counted: bool
) -> LoadResult:
    turn = Turn(cache, key, policy, counted)
    found = turn.look()
    if found is None:
        with turn.waiting(blocks=False):
            while found is None:
                ended = end_of_load(turn.place)
                if ended is not None:
                    await asyncio.wait({ended}, timeout=min(turn.left, policy.lease))
                else:
                    await asyncio.sleep(turn.pause())
                found = turn.look()
    if not isinstance(found, Load):
        return found
    return await (_limited(found, loader) if found.limited else _run(found, loader))


async def _run(load: Load, loader: AsyncLoader) -> LoadResult:
    with load:
        load.begin()
        try:
            pending = loader(load.previous)
        except Exception as error:
            return load.failed(error)
        if not isinstance(pending, Awaitable):
            raise TypeError(
                "the loader of a coroutine is async; for a plain function give "
                "lambda: asyncio.to_thread(load)"
            )
        try:
            answer = await pending
        except Exception as error:
            return load.failed(error)
        return load.succeeded(answer)


async def _limited(load: Load, loader: AsyncLoader) -> LoadResult:
    task = asyncio.ensure_future(_run(load, loader))
    _tasks.add(task)

    def ended(task: asyncio.Task[LoadResult]) -> None:
        _tasks.discard(task)
        # One that is cancelled before its first step has not done so itself.
        load.release()
        if not task.cancelled() and load.left:
            error = task.exception()
            if error is not None:
                load.log(error)

    task.add_done_callback(ended)
    try:
        done, _ = await asyncio.wait({task}, timeout=load.patience())
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()
        raise
    return task.result() if done else load.leave()
