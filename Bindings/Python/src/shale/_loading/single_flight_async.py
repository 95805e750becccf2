"""``get_or_load`` for coroutines.

A coroutine that waits must not block its event loop: its bell is a future.

Only callers that need it import this module: asyncio takes longer to import than all of Shale.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Callable

from .._typing import Key
from .attempts import LoadAttempt
from .load import Load
from .policy import Policy
from .results import LoadResult
from .single_flight import NONE, after_hit, emit_served, hit, may_look

if TYPE_CHECKING:
    from .._data.records import Entry
    from .._store.store import Store

    AsyncLoader = Callable[[Entry | None], Awaitable[Any]]


class LoopBell:
    """For a coroutine. Any thread may ring."""

    __slots__ = ("_future", "_rung")
    blocks = False

    def __init__(self) -> None:
        self._future: asyncio.Future[None] | None = None
        self._rung = False

    def ring(self) -> None:
        self._rung = True
        future = self._future
        if future is None:
            return
        loop = future.get_loop()
        if asyncio._get_running_loop() is loop:
            _wake(future)
        else:
            # (The loop may be closed.)
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(_wake, future)

    async def wait(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        future = self._future = loop.create_future()
        timer = loop.call_later(seconds, _wake, future)
        try:
            # It may have rung before there was a future.
            if not self._rung:
                await future
        finally:
            self._rung = False
            self._future = None
            timer.cancel()


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


# References to tasks whose callers went on without them; asyncio keeps only weak ones.
_tasks: set[asyncio.Task[LoadResult]] = set()


async def value_of_async(
    cache: Store[Any, Any], key: Key, policy: Policy, loader: AsyncLoader, default: Any = None
) -> Any:
    """The value of `load_async`."""
    counted = may_look(cache)
    if counted:
        value = hit(cache, key, policy)
        if value is not NONE:
            return value
        policy = after_hit(cache, key, policy)
    result = await load_async(cache, key, policy, loader, counted)
    return default if result.missing else result.value


async def load_async(
    cache: Store[Any, Any], key: Key, policy: Policy, loader: AsyncLoader, counted: bool = False
) -> LoadResult:
    """As `load`, without blocking the event loop."""
    result = await _load(cache, key, policy, loader, counted)
    emit_served(cache, key, result)
    return result


async def _load(
    cache: Store[Any, Any], key: Key, policy: Policy, loader: AsyncLoader, counted: bool
) -> LoadResult:
    bell = LoopBell()
    attempt = LoadAttempt(cache, key, policy, bell, counted)
    try:
        try:
            attempt.enter()
            found = attempt.look()
            if found is None:
                with attempt.waiting():
                    while found is None:
                        await bell.wait(attempt.pause())
                        found = attempt.look()
            if not isinstance(found, Load):
                return found
            return await (_limited(found, loader) if found.limited else _run(found, loader))
        finally:
            attempt.leave()
    finally:
        # A signal handler's exception may have cut off the first.
        attempt.leave()


async def _run(load: Load, loader: AsyncLoader) -> LoadResult:
    try:
        load.runs = True
        with load:
            load.begin()
            try:
                pending = loader(load.previous)
            except Exception as error:
                instead = load.failed(error)
                if instead is None:
                    raise
                return instead
            if not isinstance(pending, Awaitable):
                load.refused(
                    TypeError(
                        "the loader of a coroutine is async; for a plain function give "
                        "lambda: asyncio.to_thread(load)"
                    )
                )
            try:
                answer = await pending
            except Exception as error:
                instead = load.failed(error)
                if instead is None:
                    raise
                return instead
            return load.succeeded(answer)
    finally:
        load.end()


async def _limited(load: Load, loader: AsyncLoader) -> LoadResult:
    task = asyncio.ensure_future(_run(load, loader))
    _tasks.add(task)

    def ended(task: asyncio.Task[LoadResult]) -> None:
        _tasks.discard(task)
        # A task that is cancelled before its first step has not ended its load.
        load.end()
        if not task.cancelled() and load.left:
            error = task.exception()
            if error is not None:
                load.log(error)

    task.add_done_callback(ended)
    load.runs = True
    try:
        done, _ = await asyncio.wait({task}, timeout=load.patience())
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()
        raise
    return task.result() if done else load.leave()
