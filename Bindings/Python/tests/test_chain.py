"""A load that waits for itself is an error that names the chain."""

from __future__ import annotations

import asyncio
import contextvars
import pickle
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loaders import PATIENCE, Loader, in_thread, never, waiters
from support import SMALL

import shale
from shale._loading import in_flight


def run(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, PATIENCE))


@pytest.mark.parametrize("options", [{}, {"wait": 0}, {"timeout": 1000}, {"soft_timeout": 0}])
def test_a_load_that_asks_for_its_own_key(cache: shale.Cache, options: Any) -> None:
    def load() -> Any:
        return cache.get_or_load("a", never, **options)

    with pytest.raises(shale.DeadlockError, match="'a' -> 'a'") as caught:
        cache.get_or_load("a", load, **options)
    assert caught.value.chain == ("a", "a")
    # The lease was released.
    assert cache.get_or_load("a", lambda: 1) == 1


def test_by_way_of_another(cache: shale.Cache) -> None:
    def a() -> Any:
        return cache.get_or_load("b", b)

    def b() -> Any:
        return cache.get_or_load(("c", 1), lambda: cache.get_or_load("a", a, wait=PATIENCE))

    with pytest.raises(shale.DeadlockError) as caught:
        cache.get_or_load("a", a)
    assert caught.value.chain == ("a", "b", ("c", 1), "a")
    assert str(caught.value).startswith("'a' -> 'b' -> ('c', 1) -> 'a': ")
    assert in_flight._keys == {}


def test_even_where_there_is_a_value(cache: shale.Cache) -> None:
    cache.set("a", "old", max_age=0, stale=600)
    with pytest.raises(shale.DeadlockError):
        cache.get_or_load("a", lambda: cache.get_or_load("a", never, wait=PATIENCE))


def test_through_another_cache_of_the_directory(cache: shale.Cache, directory: Path) -> None:
    link = directory.parent / "link"
    link.symlink_to(directory)
    with shale.Cache(link) as other, pytest.raises(shale.DeadlockError, match="'a' -> 'a'"):
        cache.get_or_load("a", lambda: other.get_or_load("a", never, wait=PATIENCE))


def test_another_cache_has_other_keys(cache: shale.Cache, tmp_path: Path) -> None:
    with shale.Cache(tmp_path / "other", capacity=SMALL) as other, shale.Cache(None) as third:
        assert (
            cache.get_or_load(
                "a", lambda: other.get_or_load("a", lambda: third.get_or_load("a", lambda: 1))
            )
            == 1
        )


def test_memoized_functions(cache: shale.Cache) -> None:
    @cache.memoize(name="f")
    def f(n: int) -> Any:
        return f(n)

    with pytest.raises(shale.DeadlockError) as caught:
        f(1)
    assert caught.value.chain == (f.cache_key(1), f.cache_key(1))


@pytest.mark.parametrize("options", [{}, {"timeout": 1000}])
def test_coroutines_and_their_tasks(cache: shale.Cache, options: Any) -> None:
    coroutines = shale.AsyncCache(cache)

    async def a() -> Any:
        return await asyncio.gather(coroutines.get_or_load("b", b, **options))

    async def b() -> Any:
        return await asyncio.create_task(coroutines.get_or_load("a", a, **options))

    with pytest.raises(shale.DeadlockError) as caught:
        run(coroutines.get_or_load("a", a, **options))
    assert caught.value.chain == ("a", "b", "a")
    assert in_flight._keys == {}


def test_from_a_coroutine_into_a_thread(cache: shale.Cache) -> None:
    async def load() -> Any:
        return await asyncio.to_thread(cache.get_or_load, "a", never, wait=PATIENCE)

    with pytest.raises(shale.DeadlockError, match="'a' -> 'a'"):
        run(shale.AsyncCache(cache).get_or_load("a", load))


def test_a_call_that_would_freeze_the_loop_of_the_coroutine_that_loads(
    cache: shale.Cache,
) -> None:
    async def main() -> None:
        go = asyncio.Event()

        async def load() -> int:
            await go.wait()
            return 1

        loading = asyncio.create_task(shale.AsyncCache(cache).get_or_load("a", load))
        while not in_flight._keys:
            await asyncio.sleep(0)
        with pytest.raises(shale.DeadlockError, match="event loop"):
            cache.get_or_load("a", never, wait=PATIENCE)
        # In a thread, the load waits.
        second = asyncio.create_task(asyncio.to_thread(cache.get_or_load, "a", never))
        while not waiters():
            await asyncio.sleep(0.001)
        go.set()
        assert (await loading, await second) == (1, 1)
        assert cache.get_or_load("a", never) == 1

    run(main())


def test_a_task_that_outlives_the_load_may_ask_for_its_key(cache: shale.Cache) -> None:
    coroutines = shale.AsyncCache(cache)

    async def main() -> None:
        over = asyncio.Event()
        tasks: list[asyncio.Task[Any]] = []

        async def later() -> Any:
            await over.wait()
            cache.remove("a")
            return await coroutines.get_or_load("a", two)

        async def two() -> int:
            return 2

        async def load() -> int:
            tasks.append(asyncio.create_task(later()))
            return 1

        assert await coroutines.get_or_load("a", load) == 1
        over.set()
        assert await tasks[0] == 2

    run(main())


def test_so_may_a_load_that_outlives_the_load_in_whose_course_it_began(
    cache: shale.Cache,
) -> None:
    coroutines = shale.AsyncCache(cache)

    async def main() -> None:
        begun, over = asyncio.Event(), asyncio.Event()
        tasks: list[asyncio.Task[Any]] = []

        async def b() -> Any:
            begun.set()
            await over.wait()
            cache.remove("a")
            return await coroutines.get_or_load("a", two)

        async def two() -> int:
            return 2

        async def a() -> int:
            tasks.append(asyncio.create_task(coroutines.get_or_load("b", b)))
            await begun.wait()
            return 1

        assert await coroutines.get_or_load("a", a) == 1
        over.set()
        assert await tasks[0] == 2

    run(main())


def test_a_load_that_is_over_waits_for_nothing(cache: shale.Cache) -> None:
    coroutines = shale.AsyncCache(cache)

    async def main() -> None:
        over, go = asyncio.Event(), asyncio.Event()
        tasks: list[asyncio.Task[Any]] = []

        async def later() -> Any:
            await over.wait()
            return await coroutines.get_or_load("b", never)

        async def first_a() -> int:
            tasks.append(asyncio.create_task(later()))
            return 1

        async def second_a() -> int:
            await go.wait()
            return 2

        async def b() -> Any:
            return await coroutines.get_or_load("a", never)

        assert await coroutines.get_or_load("a", first_a) == 1
        cache.remove("a")
        tasks.append(asyncio.create_task(coroutines.get_or_load("a", second_a)))
        await asyncio.sleep(0)
        tasks.append(asyncio.create_task(coroutines.get_or_load("b", b)))
        await asyncio.sleep(0)
        over.set()
        # later() waits for b, b for a, and a to go.
        while len(waiters()) < 2:
            await asyncio.sleep(0)
        go.set()
        assert await asyncio.gather(*tasks) == [2, 2, 2]

    run(main())


def test_a_thread_of_another_context_waits(cache: shale.Cache) -> None:
    load = Loader(held=True)
    first = in_thread(lambda: cache.get_or_load("a", load))
    assert load.begun.wait(PATIENCE)
    second = in_thread(lambda: contextvars.Context().run(cache.get_or_load, "a", never))
    load.go.set()
    assert (first(), second()) == (1, 1)


def test_two_threads_whose_loads_wait_for_one_another(cache: shale.Cache) -> None:
    both = threading.Barrier(2)

    def loader(other: str) -> Callable[[], Any]:
        def load() -> Any:
            both.wait(PATIENCE)
            return cache.get_or_load(other, lambda: "loaded again")

        return load

    results = [
        in_thread(lambda: cache.get_or_load("a", loader("b"))),
        in_thread(lambda: cache.get_or_load("b", loader("a"))),
    ]
    errors: list[shale.DeadlockError] = []
    values: list[Any] = []
    for result in results:
        try:
            values.append(result())
        except shale.DeadlockError as error:
            errors.append(error)
    # One of them got the error, and the other one loaded its key alone.
    assert values == ["loaded again"]
    assert errors[0].chain in (("a", "b", "a"), ("b", "a", "b"))
    assert in_flight._keys == {}


def test_who_waits_for_a_limited_time_waits(cache: shale.Cache) -> None:
    both = threading.Barrier(2)

    def loader(other: str) -> Callable[[], Any]:
        def load() -> Any:
            both.wait(PATIENCE)
            return cache.get_or_load(other, lambda: "own", wait=0.01)

        return load

    first = in_thread(lambda: cache.get_or_load("a", loader("b")))
    second = in_thread(lambda: cache.get_or_load("b", loader("a")))
    assert (first(), second()) == ("own", "own")


def test_the_error_can_be_pickled() -> None:
    error = shale.DeadlockError(["a", 1, "a"])
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.chain, str(copy)) == (error.chain, str(error))


@given(st.dictionaries(st.integers(0, 5), st.lists(st.integers(0, 5), max_size=3)))
def test_a_load_ends_if_and_only_if_no_key_needs_itself(needs: dict[int, list[int]]) -> None:
    with shale.Cache(None, capacity="2MiB", sync_on_close=False) as cache:
        stored: set[int] = set()

        def expected(key: int, chain_so_far: tuple[int, ...]) -> tuple[int, ...] | None:
            """The chain of the first key whose load needs the key itself."""
            if key in chain_so_far:
                return (*chain_so_far[chain_so_far.index(key) :], key)
            if key in stored:
                return None
            for each in needs.get(key, []):
                chain = expected(each, (*chain_so_far, key))
                if chain is not None:
                    return chain
            stored.add(key)
            return None

        def load(key: int) -> int:
            for each in needs.get(key, []):
                cache.get_or_load(each, partial(load, each))
            return key

        for key in range(6):
            chain = expected(key, ())
            if chain is None:
                assert cache.get_or_load(key, partial(load, key)) == key
            else:
                with pytest.raises(shale.DeadlockError) as caught:
                    cache.get_or_load(key, partial(load, key))
                assert caught.value.chain == chain
    assert in_flight._keys == {}
