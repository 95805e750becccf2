"""``get_or_load``: of all threads that miss a key, one loads it."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from loaders import PATIENCE, Failure, Loader, fail, in_thread, is_free, never, until, waiting
from support import SMALL, Clock
from test_threads import run_threads

import shale


def test_a_miss_is_loaded_and_stored(cache: shale.Cache) -> None:
    load = Loader()
    assert cache.get_or_load("k", load) == 1
    assert cache["k"] == 1
    assert cache.get_or_load("k", load) == 1
    assert load.calls == 1


@pytest.mark.parametrize("value", [None, False, 0, b"", ()])
def test_every_value_is_one(cache: shale.Cache, value: Any) -> None:
    assert cache.get_or_load("k", lambda: value) == value
    found = cache.get_or_load("k", never)
    assert found == value
    assert type(found) is type(value)


def test_it_is_stored_as_set_would(aging: shale.Cache, clock: Clock) -> None:
    aging.get_or_load("k", lambda: 1, max_age=10, stale=5, tag="a", tags=["b"], pinned=True)
    entry = aging.entry("k")
    assert entry is not None
    assert entry.expires == clock() + 10
    assert entry.pinned
    clock.advance(10)
    assert aging.get("k", stale=True) == 1
    clock.advance(5)
    assert aging.get("k", stale=True) is None
    for tag in ("a", "b"):
        aging.get_or_load("k", lambda: 1, tag="a", tags=["b"])
        aging.invalidate(tag)
        assert "k" not in aging


def test_threads_load_once(cache: shale.Cache) -> None:
    loads: list[int] = []

    def load(key: int) -> Callable[[], str]:
        def run() -> str:
            loads.append(key)
            time.sleep(0.002)
            return f"value {key}"

        return run

    def work(_thread: int) -> None:
        for key in range(50):
            assert cache.get_or_load(key, load(key)) == f"value {key}"

    run_threads(8, work)
    assert sorted(loads) == list(range(50))


def test_who_waits_gets_the_value_as_soon_as_it_is_stored(cache: shale.Cache) -> None:
    load = Loader(held=True)
    first = in_thread(lambda: cache.get_or_load("k", load))
    assert load.begun.wait(PATIENCE)
    second = in_thread(lambda: cache.get_or_load("k", never))
    until(lambda: waiting(cache))
    # Before the load ends, and without its result.
    cache["k"] = "stored"
    assert second() == "stored"
    # However long they wait, one lookup is counted for each.
    assert cache.stats().misses == 2
    load.go.set()
    assert first() == 1


def test_a_failure_goes_to_all_that_waited_and_the_next_call_loads(cache: shale.Cache) -> None:
    begun = threading.Event()
    go = threading.Event()

    def failing() -> Any:
        begun.set()
        assert go.wait(PATIENCE)
        raise Failure

    calls = [in_thread(lambda: cache.get_or_load("k", failing))]
    assert begun.wait(PATIENCE)
    calls += [in_thread(lambda: cache.get_or_load("k", never)) for _ in range(20)]
    until(lambda: waiting(cache) == 20)
    go.set()
    errors = set()
    for call in calls:
        with pytest.raises(Failure) as raised:
            call()
        errors.add(raised.value)
        # Each call's traceback leads to the loader.
        assert "failing" in [frame.name for frame in raised.traceback]
    assert len(errors) == 1
    assert cache.get_or_load("k", lambda: "next") == "next"


def test_a_load_that_raises_stores_nothing_and_holds_nobody_up(cache: shale.Cache) -> None:
    for _ in range(3):
        with pytest.raises(Failure):
            cache.get_or_load("k", fail, lease=3600)
        assert "k" not in cache
        assert is_free(cache)
    assert cache.get_or_load("k", lambda: 1) == 1


def test_stale_is_for_all_but_the_one_who_loads(aging: shale.Cache, clock: Clock) -> None:
    aging.set("k", "old", max_age=10, stale=100)
    clock.advance(10)
    load = Loader(held=True)
    first = in_thread(lambda: aging.get_or_load("k", load))
    assert load.begun.wait(PATIENCE)
    for _ in range(3):
        assert aging.get_or_load("k", never) == "old"
    load.go.set()
    assert first() == 1
    assert aging.get_or_load("k", never) == 1


def test_who_wants_no_stale_value_waits(aging: shale.Cache, clock: Clock) -> None:
    aging.set("k", "old", max_age=10, stale=100)
    clock.advance(10)
    load = Loader(held=True)
    first = in_thread(lambda: aging.get_or_load("k", load))
    assert load.begun.wait(PATIENCE)
    second = in_thread(lambda: aging.get_or_load("k", never, stale=0))
    until(lambda: waiting(aging))
    load.go.set()
    assert (first(), second()) == (1, 1)


def test_a_failed_load_raises_and_leaves_what_is_stale(aging: shale.Cache, clock: Clock) -> None:
    aging.set("k", "old", max_age=10, stale=100)
    clock.advance(10)
    with pytest.raises(Failure):
        aging.get_or_load("k", fail)
    assert aging.get("k", stale=True) == "old"


def test_wait_bounds_the_waiting(cache: shale.Cache) -> None:
    load = Loader(held=True)
    first = in_thread(lambda: cache.get_or_load("k", load))
    assert load.begun.wait(PATIENCE)
    begun = time.monotonic()
    assert cache.get_or_load("k", lambda: "own", wait=0.15) == "own"
    assert time.monotonic() - begun >= 0.15
    cache.remove("k")
    assert cache.get_or_load("k", lambda: "at once", wait=0) == "at once"
    load.go.set()
    assert first() == 1


def test_wait_may_be_any_number(cache: shale.Cache) -> None:
    assert cache.get_or_load("k", lambda: 1, wait=10**400) == 1


def test_refresh_ahead_loads_while_the_value_is_fresh(aging: shale.Cache, clock: Clock) -> None:
    load = Loader()
    aging.set("k", 0, max_age=1000)
    # With a mean of a millionth of the time left, no caller draws as much.
    for _ in range(20):
        assert aging.get_or_load("k", load, max_age=1000, refresh_ahead=0.001) == 0
    clock.advance(999.999)
    # With a mean of a million times the time left, nearly every caller draws more.
    found = {aging.get_or_load("k", load, max_age=1000, refresh_ahead=1000) for _ in range(3)}
    assert 1 in found
    assert aging.get("k") == load.calls


def test_a_refresh_that_fails_is_no_failure(aging: shale.Cache, clock: Clock) -> None:
    calls: list[None] = []

    def failing() -> Any:
        calls.append(None)
        raise Failure

    aging.set("k", "good", max_age=1000)
    clock.advance(999.999)
    for _ in range(5):
        assert aging.get_or_load("k", failing, refresh_ahead=1000) == "good"
    assert calls
    clock.advance(1)
    with pytest.raises(Failure):
        aging.get_or_load("k", failing, refresh_ahead=1000)


def test_what_cannot_be_read_is_loaded_by_one(directory: Path) -> None:
    with shale.Cache(directory, capacity=SMALL, serializer=shale.PickleSerializer()) as pickling:
        pickling["k"] = 1j
    loads: list[None] = []

    def load() -> str:
        loads.append(None)
        time.sleep(0.1)
        return "readable"

    with shale.Cache(directory) as cache:
        run_threads(4, lambda _thread: cache.get_or_load("k", load))
        assert cache["k"] == "readable"
    assert len(loads) == 1


def test_stale_and_unreadable_is_a_miss(directory: Path, clock: Clock) -> None:
    pickle = shale.PickleSerializer()
    with shale.Cache(directory, capacity=SMALL, now=clock, serializer=pickle) as pickling:
        pickling.set("k", 1j, max_age=10, stale=100)
    clock.advance(10)
    with shale.Cache(directory, now=clock) as cache:
        with pytest.raises(Failure):
            cache.get_or_load("k", fail)
        assert cache.get_or_load("k", lambda: 1) == 1


@pytest.mark.parametrize("value", [object(), bytes(4 << 20)], ids=["type", "size"])
def test_a_value_that_cannot_be_stored_goes_to_all_that_waited(
    cache: shale.Cache, value: object, caplog: pytest.LogCaptureFixture
) -> None:
    begun, go = threading.Event(), threading.Event()

    def load() -> object:
        begun.set()
        assert go.wait(PATIENCE)
        return value

    first = in_thread(lambda: cache.get_or_load("k", load))
    assert begun.wait(PATIENCE)
    others = [in_thread(lambda: cache.get_or_load("k", never)) for _ in range(20)]
    until(lambda: waiting(cache) == 20)
    go.set()
    assert first() is value
    assert all(other() == value for other in others)
    assert "k" not in cache
    assert len(cache) == 0
    assert cache.stats().own.unstored == 1
    assert len(caplog.records) == 1
    # Not those that ask after a change.
    assert cache.get_or_load("k", lambda: "next") == "next"


def test_a_value_that_cannot_be_stored_may_be_outdated(cache: shale.Cache) -> None:
    load = Loader(held=True)
    value = object()

    def first_load() -> object:
        load()
        return value

    first = in_thread(lambda: cache.get_or_load("k", first_load))
    assert load.begun.wait(PATIENCE)
    cache.remove("k")
    second = in_thread(lambda: cache.get_or_load("k", lambda: "newer"))
    until(lambda: waiting(cache))
    load.go.set()
    assert first() is value
    assert second() == "newer"


def test_a_value_that_is_too_large_is_returned(cache: shale.Cache) -> None:
    value = b"x" * (4 << 20)
    with pytest.raises(shale.TooLargeError):
        cache["k"] = value
    assert cache.get_or_load("k", lambda: value) is value
    assert "k" not in cache


def test_a_read_only_cache_loads_without_storing(directory: Path) -> None:
    with shale.Cache(directory, capacity=SMALL) as cache:
        cache["there"] = "stored"
        with shale.Cache(directory, read_only=True) as reader:
            load = Loader()
            assert reader.get_or_load("there", never) == "stored"
            assert [reader.get_or_load("k", load) for _ in range(2)] == [1, 2]
        assert "k" not in cache


def test_a_read_only_cache_loads_what_it_cannot_read(directory: Path) -> None:
    with shale.Cache(directory, capacity=SMALL, serializer=shale.PickleSerializer()) as pickling:
        pickling["k"] = 1j
    with shale.Cache(directory, read_only=True) as reader:
        assert reader.get_or_load("k", lambda: 1) == 1


def test_a_read_only_cache_serves_what_is_stale(directory: Path, clock: Clock) -> None:
    with shale.Cache(directory, capacity=SMALL, now=clock) as cache:
        cache.set("k", "old", max_age=10, stale=100)
    clock.advance(10)
    with shale.Cache(directory, read_only=True, now=clock) as reader:
        assert reader.get_or_load("k", lambda: 1) == 1
        assert reader.entry_or_load("k", fail, stale_if_error=True)[:3] == ("old", "cache", True)


def test_what_cannot_be_stored_is_counted_and_logged_once(
    cache: shale.Cache, caplog: pytest.LogCaptureFixture
) -> None:
    large = bytes(4 << 20)
    for _ in range(3):
        assert cache.get_or_load("k", lambda: large) == large
    assert cache.stats().own.unstored == 3
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("shale", "WARNING")
    assert "'k'" in record.getMessage()
    assert str(len(large)) in record.getMessage()
    with shale.Cache(cache.directory, read_only=True) as reader:
        assert reader.get_or_load("k", lambda: 1) == 1
        assert reader.stats().own.unstored == 0
    assert len(caplog.records) == 1


def test_a_read_only_cache_does_not_load_ahead(directory: Path, clock: Clock) -> None:
    """It could not store its loads, so each reader would load."""
    with shale.Cache(directory, capacity=SMALL, now=clock) as cache:
        cache.set("k", "fresh", max_age=10)
    with shale.Cache(directory, read_only=True, now=clock) as reader:
        clock.advance(9.999)
        load = Loader()
        for _ in range(100):
            found: object = reader.get_or_load("k", load, refresh_ahead=1e6)
            assert found == "fresh"
        assert load.calls == 0
        clock.advance(0.001)
        assert reader.get_or_load("k", load, refresh_ahead=1e6) == 1


def test_a_load_may_load_other_keys(cache: shale.Cache) -> None:
    def fibonacci(n: int) -> int:
        if n < 2:
            return n
        return cache.get_or_load(n - 1, lambda: fibonacci(n - 1)) + cache.get_or_load(
            n - 2, lambda: fibonacci(n - 2)
        )

    assert fibonacci(90) == 2880067194370816120
    assert len(cache) == 90


@pytest.mark.parametrize(
    ("named", "error"),
    [
        ({"max_age": -1}, shale.InvalidError),
        ({"stale": "1"}, TypeError),
        ({"tags": "news"}, TypeError),
        ({"tag": 1}, TypeError),
        ({"wait": -1}, shale.InvalidError),
        ({"wait": None}, TypeError),
        ({"wait": float("nan")}, shale.InvalidError),
        ({"lease": 0}, shale.InvalidError),
        ({"lease": 3600.1}, shale.InvalidError),
        ({"lease": True}, TypeError),
        ({"refresh_ahead": -0.1}, shale.InvalidError),
    ],
)
def test_wrong_options_are_errors_before_anything_is_loaded(
    cache: shale.Cache, named: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        cache.get_or_load("k", never, **named)
    with pytest.raises(error):
        cache.memoize(**named)


def test_a_wrong_key_is_an_error_before_anything_is_loaded(cache: shale.Cache) -> None:
    with pytest.raises(TypeError, match="a key is"):
        cache.get_or_load(1.5, never)  # type: ignore[call-overload]
    with pytest.raises(shale.TooLargeError):
        cache.get_or_load("k" * 70000, never)


def test_lookups_are_counted_once(aging: shale.Cache, clock: Clock) -> None:
    aging.get_or_load("k", lambda: 1, max_age=10, stale=10)
    aging.get_or_load("k", never)
    aging.get_or_load("k", never)
    clock.advance(10)
    aging.get_or_load("k", lambda: 2, max_age=10)
    stats = aging.stats()
    assert (stats.misses, stats.hits, stats.stale_hits) == (1, 2, 1)


def test_ctrl_c_ends_the_waiting(cache: shale.Cache) -> None:
    load = Loader(held=True)
    first = in_thread(lambda: cache.get_or_load("k", load))
    assert load.begun.wait(PATIENCE)

    def interrupt(_signal: int, _frame: object) -> None:
        raise KeyboardInterrupt

    def kill() -> None:
        until(lambda: waiting(cache))
        os.kill(os.getpid(), signal.SIGALRM)

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            in_thread(kill)
            cache.get_or_load("k", never)
        assert not waiting(cache)
    finally:
        signal.signal(signal.SIGALRM, before)
    load.go.set()
    assert first() == 1


def test_ctrl_c_in_the_load_gives_the_lease_back(cache: shale.Cache) -> None:
    def interrupted() -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.get_or_load("k", interrupted, lease=3600)
    assert is_free(cache)
    assert cache.get_or_load("k", lambda: 1) == 1


def test_closing_ends_the_waiting(directory: Path) -> None:
    cache = shale.Cache(directory, capacity=SMALL)
    load = Loader(held=True)
    first = in_thread(lambda: cache.get_or_load("k", load))
    assert load.begun.wait(PATIENCE)
    second = in_thread(lambda: cache.get_or_load("k", never))
    cache.close()
    with pytest.raises(shale.InvalidError, match="closed"):
        second()
    load.go.set()
    with pytest.raises(shale.InvalidError, match="closed"):
        first()


@pytest.mark.parametrize("by_tag", [False, True])
def test_what_was_expired_serves_while_it_is_loaded(aging: shale.Cache, by_tag: bool) -> None:
    options: Any = {"max_age": 100, "stale": 1000, "tag": "tag"}
    assert aging.get_or_load("k", lambda: "old", **options) == "old"
    if by_tag:
        aging.invalidate("tag", expire=True)
    else:
        assert aging.expire("k")

    def load() -> str:
        # Other callers are served at once.
        assert in_thread(lambda: aging.get_or_load("k", never, **options))() == "old"
        return "new"

    assert aging.get_or_load("k", load, **options) == "new"
    assert aging["k"] == "new"


async def coroutine() -> int:
    return 1


@pytest.mark.parametrize("limits", [{}, {"timeout": 1000}])
@pytest.mark.filterwarnings("error")
def test_an_async_loader_of_a_plain_call(aging: shale.Cache, clock: Clock, limits: Any) -> None:
    aging.set("k", "old", max_age=10, stale=1000)
    clock.advance(10)
    calls: list[Callable[[], object]] = [
        lambda: aging.get_or_load("k", coroutine, stale_if_error=True, **limits),
        lambda: aging.entry_or_load("k", lambda _old: coroutine(), stale_if_error=True, **limits),
        aging.memoize(lambda: coroutine(), name="f", **limits),
    ]
    for call in calls:
        # A stale value does not hide the mistake.
        with pytest.raises(TypeError, match="AsyncCache"):
            call()
    assert aging.get("k", stale=True) == "old"
    assert is_free(aging)


@pytest.mark.parametrize("limits", [{}, {"timeout": 1000}])
def test_a_plain_loader_of_a_coroutine(aging: shale.Cache, clock: Clock, limits: Any) -> None:
    aging.set("k", "old", max_age=10, stale=1000)
    clock.advance(10)
    plain: Any = lambda *_old: "new"  # noqa: E731
    coroutines = shale.AsyncCache(aging)
    calls: list[Callable[[], Any]] = [
        lambda: coroutines.get_or_load("k", plain, stale_if_error=True, **limits),
        lambda: coroutines.entry_or_load("k", plain, stale_if_error=True, **limits),
    ]
    for call in calls:
        with pytest.raises(TypeError, match="to_thread"):
            asyncio.run(call())
    assert aging.get("k", stale=True) == "old"
    assert is_free(aging)
