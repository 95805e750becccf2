"""``AsyncCache``: the cache for coroutines."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Awaitable, Coroutine
from pathlib import Path
from typing import Any, Callable

import pytest
from loaders import PATIENCE, waiting
from support import SMALL, Clock, run_child
from test_threads import run_threads

import shale
from shale._data import options
from shale._loading import in_flight


class Failure(Exception):
    pass


class Loader:
    """Returns 1, 2, 3 and so on. If held, waits for `go` first."""

    def __init__(self, *, held: bool = False) -> None:
        self.calls = 0
        self.begun = asyncio.Event()
        self.go = asyncio.Event()
        if not held:
            self.go.set()

    async def __call__(self) -> int:
        self.calls += 1
        number = self.calls
        self.begun.set()
        await asyncio.wait_for(self.go.wait(), PATIENCE)
        return number


async def never() -> Any:
    raise AssertionError("nothing is to be loaded")


async def fail() -> Any:
    raise Failure


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(main(), PATIENCE)

    asyncio.run(bounded())


async def turns(count: int = 5) -> None:
    """Lets the other coroutines run as far as they can."""
    for _ in range(count):
        await asyncio.sleep(0)


def test_it_does_what_the_cache_does(directory: Path) -> None:
    async def main() -> None:
        async with await shale.AsyncCache.open(directory, capacity=SMALL, max_age=3600) as cache:
            assert cache.directory == str(directory)
            await cache.set("k", (1, b"2"), tag="news", pinned=True)
            assert await cache.get("k") == (1, b"2")
            assert await cache.get("none", 3) == 3
            entry = await cache.entry("k")
            assert entry is not None
            assert entry.pinned
            assert "k" in cache
            assert not await cache.add("k", 1)
            assert await cache.incr("n", 2, initial=1) == 3
            assert await cache.decr("n", 2) == 1
            assert await cache.decr("none", create=False) is None
            assert await cache.touch("k", 10)
            await cache.set("old", 1, stale=60, tag="old")
            assert await cache.expire("old")
            assert await cache.get("old") is None
            assert await cache.get("old", stale=True) == 1
            await cache.touch("old", 10)
            await cache.invalidate("old", expire=True)
            assert await cache.get("old") is None
            assert await cache.pop("old") is None
            assert not await cache.remove("old")
            await cache.set_many({"a": 1, "b": 2}, tags=["news"])
            assert await cache.get_many(["a", "b", "c"]) == {"a": 1, "b": 2}
            assert len(cache) == 4
            assert await cache.pop("a") == 1
            assert await cache.remove("b")
            assert await cache.remove_many(["b", "n"]) == 1
            assert [key async for key in cache] == ["k"]
            assert [pair async for pair in cache.items()] == [("k", (1, b"2"))]
            await cache.invalidate("news")
            assert "k" not in cache
            await cache.sync()
            assert (await cache.verify()).corrupt_records == 0
            assert (await cache.stats()).invalidations == 2
            assert await cache.volume() > 0
            await cache.set("stale", 1, max_age=0, stale=60)
            assert await cache.get("stale", stale=True) == 1
            assert [key async for key in cache.keys(stale=True)] == ["stale"]
            await cache.set("gone", 1, max_age=0, stale=0)
            assert await cache.purge() == 1
            assert await cache.evict(1) == 1
            await cache.set("k", 1)
            await cache.clear()
            assert [key async for key in cache] == []
        assert cache.closed
        with pytest.raises(shale.InvalidError):
            await cache.get("k")

    run(main)


OPTIONS: dict[str, Any] = {
    "get": options.ReadOptions,
    "entry": options.ReadOptions,
    "get_many": options.ReadOptions,
    "get_into": options.ReadOptions,
    "reader": options.ReadOptions,
    "set": options.SetOptions,
    "lease": options.LeaseOptions,
    "lock": options.LockOptions,
}
"""The TypedDicts for the keywords of these methods of `Cache`."""


def parameters(method: Any) -> list[Any]:
    """(name, default, kind) of all but the first."""
    found = list(inspect.signature(method).parameters.values())[1:]
    return [(each.name, each.default, each.kind) for each in found]


def test_every_method_is_there_with_the_same_parameters() -> None:
    different = {
        "open",
        "cache",
        "directory",
        "closed",
        "keys",
        "values",
        "items",
        "memoize",
        "on",
        "lock",
        "namespace",
    }
    for name, method in vars(shale.Cache).items():
        if name.startswith("_") or name in ("directory", "closed"):
            continue
        own = getattr(shale.AsyncCache, name)
        expected = parameters(method)
        if name in OPTIONS:
            named = {each[0] for each in expected if each[2] is inspect.Parameter.KEYWORD_ONLY}
            assert named == set(OPTIONS[name].__annotations__)
            expected = [each for each in expected if each[0] not in named]
            expected.append(("options", inspect.Parameter.empty, inspect.Parameter.VAR_KEYWORD))
        assert parameters(own) == expected
        assert inspect.iscoroutinefunction(own) == (name not in different)


def test_the_options_of_opening_are_those_of_the_cache() -> None:
    named = [name for name, _, kind in parameters(shale.Cache.__init__) if kind.name[0] == "K"]
    assert set(named) == set(options.OpenOptions.__annotations__)


def test_quick_calls_need_no_thread(cache: shale.Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_arguments: Any) -> Any:
        raise AssertionError("a thread")

    async def main() -> None:
        monkeypatch.setattr(asyncio, "to_thread", none)
        coroutines = shale.AsyncCache(cache)
        await coroutines.set("k", 1)
        assert await coroutines.get("k") == 1
        assert await coroutines.get_or_load("k", never) == 1
        assert await coroutines.get_or_load("other", Loader()) == 1
        await coroutines.remove("k")

    run(main)


@pytest.mark.parametrize("name", ["sync", "clear", "purge", "verify", "close"])
def test_what_may_take_long_leaves_the_event_loop_alone(
    cache: shale.Cache, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    threads: list[int] = []
    own: Callable[[], Any] = getattr(cache, name)

    def noted() -> Any:
        threads.append(threading.get_ident())
        return own()

    async def main() -> None:
        monkeypatch.setattr(cache, name, noted)
        method: Callable[[], Awaitable[Any]] = getattr(shale.AsyncCache(cache), name)
        await method()

    run(main)
    assert len(threads) == 1
    assert threads != [threading.get_ident()]


def test_iteration_lets_others_run(cache: shale.Cache) -> None:
    cache.set_many({number: number for number in range(1000)})

    async def main() -> None:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        ticking = asyncio.ensure_future(tick())
        seen = [key async for key in shale.AsyncCache(cache)]
        ticking.cancel()
        assert sorted(map(repr, seen)) == sorted(map(repr, range(1000)))
        assert ticks >= 5

    run(main)


def test_an_abandoned_iteration_does_not_keep_the_cache_open(directory: Path) -> None:
    async def main() -> None:
        cache = await shale.AsyncCache.open(directory, capacity=SMALL)
        await cache.set_many({number: number for number in range(20)})
        async for _ in cache:
            break
        await cache.close()
        # Another capacity is accepted only without other users.
        async with await shale.AsyncCache.open(directory, capacity="4MiB") as other:
            assert len(other) == 20

    run(main)


def test_coroutines_load_once(cache: shale.Cache) -> None:
    async def main() -> None:
        load = Loader(held=True)
        coroutines = shale.AsyncCache(cache)
        waiting = [asyncio.ensure_future(coroutines.get_or_load("k", load)) for _ in range(50)]
        await load.begun.wait()
        await turns()
        load.go.set()
        assert await asyncio.gather(*waiting) == [1] * 50
        assert load.calls == 1
        assert in_flight._keys == {}

    run(main)


def test_those_who_wait_in_the_same_loop_are_woken(
    cache: shale.Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        load = Loader(held=True)
        coroutines = shale.AsyncCache(cache)
        first = asyncio.ensure_future(coroutines.get_or_load("k", load))
        await load.begun.wait()
        sleep = asyncio.sleep

        async def no_pause(seconds: float) -> None:
            assert seconds == 0
            await sleep(0)

        monkeypatch.setattr(asyncio, "sleep", no_pause)
        others = [asyncio.ensure_future(coroutines.get_or_load("k", never)) for _ in range(3)]
        await turns()
        load.go.set()
        assert await asyncio.gather(first, *others) == [1] * 4

    run(main)


def test_waiting_for_a_thread_leaves_the_event_loop_alone(cache: shale.Cache) -> None:
    begun = threading.Event()
    go = threading.Event()

    def load() -> str:
        begun.set()
        assert go.wait(PATIENCE)
        return "of the thread"

    async def main() -> None:
        thread = threading.Thread(target=cache.get_or_load, args=("k", load))
        thread.start()
        assert begun.wait(PATIENCE)
        waiting = asyncio.ensure_future(shale.AsyncCache(cache).get_or_load("k", never))
        # Only this loop ends the load.
        for _ in range(20):
            await asyncio.sleep(0.01)
        assert not waiting.done()
        go.set()
        assert await waiting == "of the thread"
        thread.join()

    run(main)


def test_a_thread_waits_for_a_coroutine(cache: shale.Cache) -> None:
    async def main() -> None:
        load = Loader(held=True)
        loading = asyncio.ensure_future(shale.AsyncCache(cache).get_or_load("k", load))
        await load.begun.wait()
        second = asyncio.ensure_future(asyncio.to_thread(cache.get_or_load, "k", int))
        while not waiting(cache):
            await asyncio.sleep(0.001)
        load.go.set()
        assert (await loading, await second) == (1, 1)

    run(main)


def test_two_event_loops_load_once(cache: shale.Cache) -> None:
    calls: list[int] = []

    async def load() -> str:
        calls.append(threading.get_ident())
        await asyncio.sleep(0.05)
        return "loaded"

    async def main() -> None:
        coroutines = shale.AsyncCache(cache)
        loaded = await asyncio.gather(*(coroutines.get_or_load("k", load) for _ in range(5)))
        assert loaded == ["loaded"] * 5

    run_threads(3, lambda _thread: run(main))
    assert len(calls) == 1


def test_a_failure_goes_to_all_that_waited_and_the_next_call_loads(cache: shale.Cache) -> None:
    async def main() -> None:
        go = asyncio.Event()

        async def failing() -> Any:
            await go.wait()
            raise Failure

        coroutines = shale.AsyncCache(cache)
        calls = [asyncio.ensure_future(coroutines.get_or_load("k", failing))]
        await turns()
        calls += [asyncio.ensure_future(coroutines.get_or_load("k", never)) for _ in range(20)]
        await turns()
        go.set()
        errors = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(errors[0], Failure)
        assert all(error is errors[0] for error in errors)
        assert await coroutines.get_or_load("k", Loader()) == 1

    run(main)


def test_where_the_one_who_loads_is_cancelled_another_loads(cache: shale.Cache) -> None:
    async def main() -> None:
        first_load, second_load = Loader(held=True), Loader()
        coroutines = shale.AsyncCache(cache)
        # The lease outlasts the test's patience.
        first = asyncio.ensure_future(coroutines.get_or_load("k", first_load, lease=3600))
        await first_load.begun.wait()
        second = asyncio.ensure_future(coroutines.get_or_load("k", second_load))
        await turns()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert await second == 1

    run(main)


def test_who_is_cancelled_while_waiting_leaves_the_load_alone(cache: shale.Cache) -> None:
    async def main() -> None:
        load = Loader(held=True)
        coroutines = shale.AsyncCache(cache)
        first = asyncio.ensure_future(coroutines.get_or_load("k", load))
        await load.begun.wait()
        second = asyncio.ensure_future(coroutines.get_or_load("k", never))
        await turns()
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        load.go.set()
        assert await first == 1

    run(main)


def test_stale_is_for_all_but_the_one_who_loads(aging: shale.Cache, clock: Clock) -> None:
    async def main() -> None:
        aging.set("k", "old", max_age=10, stale=100)
        clock.advance(10)
        load = Loader(held=True)
        coroutines = shale.AsyncCache(aging)
        first = asyncio.ensure_future(coroutines.get_or_load("k", load))
        await load.begun.wait()
        assert await coroutines.get_or_load("k", never) == "old"
        load.go.set()
        assert await first == 1
        clock.advance(1e9)
        with pytest.raises(Failure):
            await coroutines.get_or_load("other", fail)

    run(main)


def test_a_refresh_that_fails_is_no_failure(aging: shale.Cache, clock: Clock) -> None:
    async def main() -> None:
        aging.set("k", "good", max_age=1000)
        clock.advance(999.999)
        coroutines = shale.AsyncCache(aging)
        assert await coroutines.get_or_load("k", fail, refresh_ahead=1000) == "good"
        clock.advance(1)
        with pytest.raises(Failure):
            await coroutines.get_or_load("k", fail, refresh_ahead=1000)

    run(main)


def test_wait_bounds_the_waiting(cache: shale.Cache) -> None:
    async def main() -> None:
        load = Loader(held=True)
        coroutines = shale.AsyncCache(cache)
        first = asyncio.ensure_future(coroutines.get_or_load("k", load))
        await load.begun.wait()
        begun = time.monotonic()
        assert await coroutines.get_or_load("k", Loader(), wait=0.1) == 1
        assert time.monotonic() - begun >= 0.1
        load.go.set()
        assert await first == 1

    run(main)


def test_memoize(cache: shale.Cache) -> None:
    calls: list[str] = []
    coroutines = shale.AsyncCache(cache)

    @coroutines.memoize(name="page", max_age=60)
    async def page(url: str) -> None:
        calls.append(url)
        await asyncio.sleep(0.01)

    async def main() -> None:
        await asyncio.gather(page("a"), page(url="a"), page("b"))

    run(main)
    assert calls == ["a", "b"]
    assert page.cache_key("a") in cache


def test_asyncio_is_imported_by_its_users_alone() -> None:
    script = """
        import sys, shale
        shale.Cache(None, capacity="8MiB").get_or_load("k", dict)
        print("asyncio" in sys.modules, shale.AsyncCache.__name__, "asyncio" in sys.modules)
        try:
            shale.NoSuchThing
        except AttributeError as error:
            print(error)
    """
    assert run_child(script) == (
        "False AsyncCache True\nmodule 'shale' has no attribute 'NoSuchThing'\n"
    )
