"""A load stores no value that was replaced, removed or invalidated while it ran.

The course of each test: a loader reads the true value; that changes, and a call changes the cache;
the loader returns the old value. No later caller may get it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from loaders import PATIENCE, STORED, Loader, in_thread, is_free, never, until, waiting
from support import SMALL, Clock, start_child

import shale
from shale._data.options import set_options
from shale._loading import in_flight
from shale._loading.load import Load
from shale._loading.results import LoadResult
from shale._native import library
from shale._native.library import SIZES
from shale._store import leases

NEWER = "a newer set"


def set_and_remove(cache: shale.Cache) -> None:
    cache["k"] = NEWER
    cache.remove("k")


def set_and_evict(cache: shale.Cache) -> None:
    cache["k"] = NEWER
    assert cache.evict(10)


def delete(cache: shale.Cache) -> None:
    with contextlib.suppress(KeyError):
        del cache["k"]


def pop_under_listeners(cache: shale.Cache) -> None:
    stop = cache.on("remove", lambda _event: None)
    cache.pop("k")
    stop()


def pop_in_a_coroutine(cache: shale.Cache) -> None:
    # (An event loop may run in this thread.)
    with pytest.raises(StopIteration):
        shale.AsyncCache(cache).pop("k").send(None)


CHANGES: dict[str, Callable[[shale.Cache], object]] = {
    "remove": lambda cache: cache.remove("k"),
    "remove_many": lambda cache: cache.remove_many(["j", "k"]),
    "del": delete,
    "pop": lambda cache: cache.pop("k"),
    "pop under listeners": pop_under_listeners,
    "pop in a coroutine": pop_in_a_coroutine,
    "invalidate": lambda cache: cache.invalidate("tag"),
    "expire": lambda cache: cache.expire("k"),
    "expire the tag": lambda cache: cache.invalidate("tag", expire=True),
    "clear": lambda cache: cache.clear(),
    "set": lambda cache: cache.set("k", NEWER),
    "set_many": lambda cache: cache.set_many({"k": NEWER}),
    "set and remove": set_and_remove,
    "set and evict": set_and_evict,
    "incr": lambda cache: cache.incr("k", 41, initial=1),
}
LEAVES = {"set": NEWER, "set_many": NEWER, "incr": 42}
"""The value of the key after the change; None: it is a miss."""

UNREADABLE = ctypes.byref(set_options(b"\xffP1?", tags=[b"tag"]))
"""The options of a value whose meta no release has."""

BEFORE = ("absent", "stale", "fresh", "missing", "known missing", "unreadable")


def stories(*before: str) -> list[tuple[str, str]]:
    """(change, state of the key before). incr counts neither in a text nor in a value that it
    cannot read."""
    return [
        (name, was)
        for name in CHANGES
        for was in before
        if not (name == "incr" and was in ("fresh", "unreadable"))
    ]


WAITING = [
    (name, before)
    for name, before in stories("absent", "stale")
    if not (name.startswith("expire") and before == "stale")
]
"""The changes after which a caller waits: an expired value is served during the load."""


class Story:
    def __init__(self, cache: shale.Cache, clock: Clock, before: str) -> None:
        self.cache = cache
        self.truth = "old truth"
        self.loads = 0
        self.options: dict[str, Any] = {"tag": "tag", "max_age": 100, "stale": 1000}
        if before == "stale":
            cache.set("k", "stale", max_age=1, stale=1000, tag="tag")
            clock.advance(2)
        elif before == "missing":
            cache.get_or_load("k", lambda: shale.Missing(max_age=1), stale=1000, tag="tag")
            clock.advance(2)
        elif before == "known missing":
            cache.get_or_load("k", lambda: shale.Missing(max_age=100), stale=1000, tag="tag")
            self.options["refresh_ahead"] = 1e9
        elif before == "unreadable":
            cache._call(library.fast_set, STORED, SIZES[len(STORED)], b"", SIZES[0], UNREADABLE)
        elif before == "fresh":
            cache.set("k", "fresh", max_age=100, stale=1000, tag="tag")
            # So large a mean that every caller would load ahead.
            self.options["refresh_ahead"] = 1e9

    def read(self) -> str:
        self.loads += 1
        return self.truth

    def change(self, name: str) -> None:
        self.truth = "new truth"
        CHANGES[name](self.cache)

    def check(self, name: str) -> None:
        """After the load."""
        expected = LEAVES.get(name)
        assert self.cache.get("k", stale=not name.startswith("expire")) == expected
        self.options.pop("refresh_ahead", None)
        assert self.cache.get_or_load("k", self.read, **self.options) == (expected or "new truth")
        assert self.cache.get_or_load("k", never, **self.options) == (expected or "new truth")


@pytest.mark.parametrize(("name", "before"), stories(*BEFORE))
def test_a_change_during_a_load(aging: shale.Cache, clock: Clock, name: str, before: str) -> None:
    story = Story(aging, clock, before)

    def load() -> str:
        value = story.read()
        story.change(name)
        return value

    assert aging.get_or_load("k", load, **story.options) == "old truth"
    story.check(name)


@pytest.mark.parametrize("name", [name for name, _ in stories("absent")])
def test_a_change_during_a_load_that_finds_nothing(
    aging: shale.Cache, clock: Clock, name: str
) -> None:
    story = Story(aging, clock, "absent")

    def load(_previous: Any) -> shale.Missing:
        story.change(name)
        return shale.Missing()

    assert aging.entry_or_load("k", load, **story.options) == LoadResult(
        None, "loaded", missing=True
    )
    story.check(name)


def test_a_tag_of_the_loaders_own(cache: shale.Cache) -> None:
    def load() -> shale.Loaded[str]:
        cache.invalidate("own")
        return shale.Loaded("old truth", tags=["own"])

    assert cache.get_or_load("k", load, tag="tag") == "old truth"
    assert "k" not in cache


@pytest.mark.parametrize(
    "harmless",
    [
        lambda cache: cache.invalidate("another"),
        lambda cache: cache.set("another", 1),
        lambda cache: cache.remove("another"),
        lambda cache: cache.evict(10),
        lambda cache: cache.touch("k"),
        lambda cache: cache.get("k", stale=True),
        lambda cache: cache.sync(),
    ],
)
@pytest.mark.parametrize("before", BEFORE)
def test_what_is_no_change_of_the_key(
    aging: shale.Cache, clock: Clock, before: str, harmless: Callable[[shale.Cache], object]
) -> None:
    story = Story(aging, clock, before)

    def load() -> str:
        harmless(aging)
        return story.read()

    assert aging.get_or_load("k", load, **story.options) == "old truth"
    assert aging["k"] == "old truth"


@pytest.mark.parametrize(("name", "before"), WAITING)
def test_threads(aging: shale.Cache, clock: Clock, name: str, before: str) -> None:
    story = Story(aging, clock, before)
    begun, go = threading.Event(), threading.Event()

    def load() -> str:
        value = story.read()
        begun.set()
        assert go.wait(PATIENCE)
        return value

    first = in_thread(lambda: aging.get_or_load("k", load, **story.options))
    assert begun.wait(PATIENCE)
    story.change(name)
    # A caller after the change, while the old load runs.
    second = in_thread(lambda: aging.get_or_load("k", story.read, **story.options))
    if name in LEAVES:
        assert second() == LEAVES[name]
    go.set()
    assert first() == "old truth"
    assert second() == LEAVES.get(name, "new truth")
    assert aging.get("k") == LEAVES.get(name, "new truth")


@pytest.mark.parametrize("name", [name for name, _ in stories("stale")])
def test_a_load_that_goes_on_in_the_background(aging: shale.Cache, clock: Clock, name: str) -> None:
    story = Story(aging, clock, "stale")
    begun, go = threading.Event(), threading.Event()

    def load() -> str:
        value = story.read()
        begun.set()
        assert go.wait(PATIENCE)
        return value

    served = aging.get_or_load("k", load, soft_timeout=0, **story.options)
    assert served == "stale"
    assert begun.wait(PATIENCE)
    story.change(name)
    go.set()
    until(lambda: not in_flight._keys)
    story.check(name)


@pytest.mark.parametrize("name", [name for name, _ in stories("absent")])
def test_a_load_whose_caller_has_waited_enough_for_another(
    aging: shale.Cache, clock: Clock, name: str
) -> None:
    story = Story(aging, clock, "absent")
    begun, go = threading.Event(), threading.Event()

    def hold() -> str:
        begun.set()
        assert go.wait(PATIENCE)
        raise LookupError

    def load() -> str:
        value = story.read()
        story.change(name)
        return value

    first = in_thread(lambda: aging.get_or_load("k", hold))
    assert begun.wait(PATIENCE)
    try:
        # It has no lease, as the other load holds it.
        assert aging.get_or_load("k", load, wait=0, **story.options) == "old truth"
        assert aging.get("k") == LEAVES.get(name)
        # A load without a change is stored.
        if name not in LEAVES:
            assert aging.get_or_load("k", story.read, wait=0, **story.options) == "new truth"
            assert aging["k"] == "new truth"
    finally:
        go.set()
        with contextlib.suppress(LookupError):
            first()


def test_a_load_that_has_lost_its_lease_is_stored_all_the_same(cache: shale.Cache) -> None:
    loads: list[Load] = []
    began = Load.__enter__

    def load() -> str:
        [under_way] = loads
        assert under_way._lease is not None
        cache._pool.run(leases._release, STORED, under_way._lease.token)
        assert not under_way._lease.renew()
        return "value"

    def enter(each: Load) -> Load:
        loads.append(each)
        return began(each)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Load, "__enter__", enter)
        assert cache.get_or_load("k", load) == "value"
    assert cache["k"] == "value"


@pytest.mark.parametrize(("name", "before"), WAITING)
def test_coroutines(aging: shale.Cache, clock: Clock, name: str, before: str) -> None:
    story = Story(aging, clock, before)

    async def main() -> None:
        cache = shale.AsyncCache(aging)
        begun, go = asyncio.Event(), asyncio.Event()

        async def load() -> str:
            value = story.read()
            begun.set()
            await asyncio.wait_for(go.wait(), PATIENCE)
            return value

        async def read() -> str:
            return story.read()

        first = asyncio.ensure_future(cache.get_or_load("k", load, **story.options))
        await begun.wait()
        story.change(name)
        second = asyncio.ensure_future(cache.get_or_load("k", read, **story.options))
        await asyncio.sleep(0)
        go.set()
        assert await asyncio.wait_for(first, PATIENCE) == "old truth"
        assert await asyncio.wait_for(second, PATIENCE) == LEAVES.get(name, "new truth")

    asyncio.run(main())
    assert aging.get("k") == LEAVES.get(name, "new truth")


def test_a_memoized_function(cache: shale.Cache) -> None:
    truth = ["old"]

    @cache.memoize(name="f")
    def function(argument: int) -> str:
        value = truth[0]
        if value == "old":
            truth[0] = "new"
            # The key has no value yet.
            assert not function.invalidate(argument)
        return value

    assert function(1) == "old"
    assert function(1) == "new"


OTHER = """
    import sys, shale

    with shale.Cache(sys.argv[1]) as cache:
        def load():
            print("has read", flush=True)
            sys.stdin.readline()
            return "old truth"

        print(cache.get_or_load("k", load, tag="tag"), flush=True)
        print(cache.get_or_load("k", lambda: "new truth", tag="tag"), flush=True)
"""


@pytest.mark.parametrize("name", [name for name, _ in stories("absent")])
def test_two_processes(directory: Path, name: str) -> None:
    with shale.Cache(directory, capacity=SMALL) as cache:
        child = start_child(OTHER, directory)
        assert child.stdout is not None
        try:
            assert child.stdout.readline() == "has read\n"
            CHANGES[name](cache)
            out, _ = child.communicate("go\n", timeout=PATIENCE)
        finally:
            child.kill()
            child.wait(PATIENCE)
            child.stdout.close()
        expected = LEAVES.get(name, "new truth")
        assert out == f"old truth\n{expected}\n"
        assert cache.get("k") == expected


def test_those_who_waited_when_a_load_began_have_its_value(cache: shale.Cache) -> None:
    """Although the key changes during each load: otherwise they would load one by one."""
    waiters, loads = 8, 0
    begun, go = threading.Event(), threading.Event()

    def load() -> int:
        nonlocal loads
        loads += 1
        number = loads
        begun.set()
        # The first load began before the other calls.
        assert go.wait(PATIENCE)
        cache.invalidate("tag")
        return number

    def ask() -> LoadResult:
        return cache.entry_or_load("k", lambda _: load(), tag="tag")

    results = [in_thread(ask)]
    assert begun.wait(PATIENCE)
    results += [in_thread(ask) for _ in range(waiters)]
    until(lambda: waiting(cache) == waiters)
    go.set()
    first, *others = [result() for result in results]
    assert first == LoadResult(1, "loaded")
    # None of them gets a value that was loaded before its call.
    assert sorted(others) == [LoadResult(2, "loaded")] + (waiters - 1) * [LoadResult(2, "waited")]
    assert loads == 2
    assert "k" not in cache
    assert not in_flight._keys


def test_one_who_is_late_to_look_has_it_too(
    cache: shale.Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The load ends after the waiting call checks for a handed-on value and before it gets the
    lease."""
    late, ended = threading.Event(), threading.Event()
    look = leases.look
    waiter = Loader()

    def look_late(*arguments: Any) -> Any:
        if threading.current_thread().name == "late":
            late.set()
            assert ended.wait(PATIENCE)
        return look(*arguments)

    def load() -> str:
        cache.remove("k")
        return "handed on"

    monkeypatch.setattr(leases, "look", look_late)

    def ask_late() -> LoadResult:
        threading.current_thread().name = "late"
        return cache.entry_or_load("k", lambda _: waiter())

    second = in_thread(ask_late)
    assert late.wait(PATIENCE)
    assert cache.get_or_load("k", load) == "handed on"
    ended.set()
    assert second() == LoadResult("handed on", "waited")
    assert waiter.calls == 0
    # Its lease was released.
    assert is_free(cache)
