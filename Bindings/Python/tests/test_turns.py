"""The turns of the calls that wait for a load: what each costs, and what each gets."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
import time
import weakref
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from loaders import PATIENCE, Failure, Loader, fail, in_thread, until, waiting
from support import SMALL

import shale
from shale._loading import attempts, failures
from shale._store import leases


def test_a_load_that_is_cancelled_wakes_one_waiter(
    cache: shale.Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N loads of one key, each of which is cancelled, take a number of lookups that grows with N
    and not with its square."""
    calls = 100
    lookups = 0

    def counted(function: Any) -> Any:
        def call(*arguments: Any) -> Any:
            nonlocal lookups
            lookups += 1
            return function(*arguments)

        return call

    monkeypatch.setattr(leases, "look", counted(leases.look))
    monkeypatch.setattr(leases, "read", counted(leases.read))
    # Only a ring ends a pause, so no lookup depends on time.
    monkeypatch.setattr(attempts, "_FIRST_PAUSE", PATIENCE)
    monkeypatch.setattr(attempts, "_LONGEST_PAUSE", PATIENCE)
    monkeypatch.setattr(attempts, "_LONGEST_WAIT", PATIENCE)

    async def cancel_all() -> None:
        loading: asyncio.Queue[asyncio.Task[Any] | None] = asyncio.Queue()

        async def load() -> None:
            loading.put_nowait(asyncio.current_task())
            await asyncio.sleep(PATIENCE)

        coroutines = shale.AsyncCache(cache)
        tasks = [asyncio.create_task(coroutines.get_or_load("k", load)) for _ in range(calls)]
        for _ in range(calls):
            task = await loading.get()
            assert task is not None
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(result, asyncio.CancelledError) for result in results)

    asyncio.run(asyncio.wait_for(cancel_all(), PATIENCE))
    assert lookups < 4 * calls


def test_more_loads_wait_for_each_other_than_calls_nest(directory: Path) -> None:
    count = 500

    async def chain(cache: shale.AsyncCache[Any, Any]) -> None:
        go = [asyncio.Event() for _ in range(count)]

        async def load(number: int) -> int:
            await go[number].wait()
            if number + 1 == count:
                return number
            value: int = await cache.get_or_load(number + 1, lambda: load(number + 1))
            return value

        tasks: list[asyncio.Task[int]] = [
            asyncio.create_task(cache.get_or_load(number, partial(load, number)))
            for number in range(count)
        ]
        # The last one waits first, so each finds the chain of all after it.
        for event in reversed(go[:-1]):
            event.set()
            for _ in range(3):
                await asyncio.sleep(0)
        go[-1].set()
        assert await asyncio.gather(*tasks) == count * [count - 1]

    with shale.Cache(directory, capacity="64MiB") as cache:
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(300)
        try:
            asyncio.run(asyncio.wait_for(chain(shale.AsyncCache(cache)), PATIENCE))
        finally:
            sys.setrecursionlimit(limit)


def test_a_renewed_value_is_fresh_for_those_that_waited_too(cache: shale.Cache) -> None:
    cache.set("k", "value", max_age=0, stale=600)
    loader = Loader(held=True)

    def load(_previous: object) -> Any:
        loader()
        return shale.NotModified(max_age=600)

    renewing = in_thread(lambda: cache.entry_or_load("k", load))
    assert loader.begun.wait(PATIENCE)
    waiter = in_thread(lambda: cache.entry_or_load("k", load, stale=0))
    until(lambda: waiting(cache) == 1)
    loader.go.set()
    assert renewing() == shale.LoadResult("value", "renewed")
    assert waiter() == shale.LoadResult("value", "waited")


class Unusable:
    pass


class Broken:
    """A serializer that fails, and not because of a value's type."""

    name = "broken"

    def dumps(self, value: object) -> bytes:
        raise RuntimeError

    def loads(self, data: bytes) -> object:
        raise AssertionError


async def later() -> None:
    pass


@pytest.mark.parametrize(
    ("answer", "error"), [(later, TypeError), (Unusable, RuntimeError)], ids=["async", "serializer"]
)
def test_a_wrong_answer_fails_once(directory: Path, answer: Any, error: type[Exception]) -> None:
    loader = Loader(held=True)

    def load() -> Any:
        loader()
        return answer()

    def caught() -> Exception:
        with pytest.raises(error) as info:
            cache.get_or_load("k", load)
        return info.value

    with shale.Cache(directory, capacity=SMALL, serializer=Broken()) as cache:
        first = in_thread(caught)
        assert loader.begun.wait(PATIENCE)
        others = [in_thread(caught) for _ in range(3)]
        until(lambda: waiting(cache) == 3)
        loader.go.set()
        failure = first()
        assert all(other() is failure for other in others)
        assert loader.calls == 1


def test_a_failure_is_in_no_circle(cache: shale.Cache) -> None:
    """What its loader referenced is freed with it."""
    values: list[weakref.ref[Failure]] = []

    def load() -> Any:
        error = Failure()
        values.append(weakref.ref(error))
        try:
            raise error
        finally:
            del error

    gc.disable()
    try:
        with pytest.raises(Failure) as caught:
            cache.get_or_load("k", load)
        del caught
        with contextlib.suppress(Failure):
            cache.get_or_load("k", load)
        assert values[1]() is None
    finally:
        gc.enable()


def test_pauses_that_are_over_keep_no_failures(
    cache: shale.Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "pauses", failures.Pauses())
    for number in range(10):
        with pytest.raises(Failure):
            cache.get_or_load(number, fail, retry_after=0.001)
    time.sleep(0.002)
    with pytest.raises(Failure):
        cache.get_or_load("last", fail, retry_after=600)
    assert len(failures.pauses._failed) == 1
