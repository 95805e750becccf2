"""``soft_timeout`` and ``timeout``: the results of callers of slow loads."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import logging
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from loaders import PATIENCE, Failure, Loader, fail, in_thread, is_free, never, until
from support import Clock

import shale
from shale._loading import in_flight, single_flight_async
from shale._store import heartbeat


class Held:
    """A loader for both kinds of callers; returns 1 when it is released."""

    def __init__(self, answer: Callable[[], Any] = lambda: 1) -> None:
        self._answer = answer
        self.calls = 0
        self.ended = 0
        self.go = threading.Event()

    def plain(self, _previous: object = None) -> Any:
        self.calls += 1
        try:
            assert self.go.wait(PATIENCE)
            return self._answer()
        finally:
            self.ended += 1

    async def coroutine(self, _previous: object = None) -> Any:
        self.calls += 1
        try:
            end = time.monotonic() + PATIENCE
            while not self.go.is_set():
                assert time.monotonic() < end
                await asyncio.sleep(0.001)
            return self._answer()
        finally:
            self.ended += 1


class Ask:
    """``entry_or_load`` of threads or of coroutines, with its loads in the background."""

    def __init__(self, cache: shale.Cache, loop: asyncio.AbstractEventLoop | None) -> None:
        self.cache = cache
        self._loop = loop

    def __call__(self, load: Held, key: str = "k", **options: Any) -> shale.LoadResult:
        if self._loop is None:
            return self.cache.entry_or_load(key, load.plain, **options)
        coroutines = shale.AsyncCache(self.cache)
        return self._loop.run_until_complete(
            coroutines.entry_or_load(key, load.coroutine, **options)
        )

    def until(self, condition: Callable[[], Any]) -> None:
        """Waits until it holds, and lets the loads in the background run."""
        if self._loop is None:
            return until(condition)

        async def wait() -> None:
            while not condition():
                await asyncio.sleep(0.001)

        return self._loop.run_until_complete(asyncio.wait_for(wait(), PATIENCE))


@pytest.fixture(params=["threads", "coroutines"])
def ask(request: pytest.FixtureRequest, aging: shale.Cache) -> Iterator[Ask]:
    if request.param == "threads":
        yield Ask(aging, None)
    else:
        loop = asyncio.new_event_loop()
        yield Ask(aging, loop)
        loop.close()
    until(lambda: in_flight._keys == {})
    assert heartbeat._heartbeat._due == {}


def make_stale(cache: shale.Cache, clock: Clock) -> None:
    cache.set("k", "old", max_age=10, stale=1000)
    clock.advance(10)


# The soft limit


@pytest.mark.parametrize("limit", [0, 0.05])
def test_stale_is_served_after_the_soft_limit_and_the_load_goes_on(
    ask: Ask, clock: Clock, limit: float
) -> None:
    make_stale(ask.cache, clock)
    load = Held()
    assert ask(load, soft_timeout=limit) == shale.LoadResult("old", "cache", stale=True)
    ask.until(lambda: load.calls)
    # Its load still runs: for other callers its limit makes no difference.
    assert ask(Held(never), soft_timeout=limit).value == "old"
    load.go.set()
    ask.until(lambda: ask.cache.get("k") == 1)
    assert load.calls == 1


def test_a_load_within_the_soft_limit_is_waited_for(ask: Ask, clock: Clock) -> None:
    make_stale(ask.cache, clock)
    load = Held()
    load.go.set()
    assert ask(load, soft_timeout=1000) == shale.LoadResult(1, "loaded")


def test_where_there_is_nothing_the_soft_limit_is_none(ask: Ask) -> None:
    load = Held()
    load.go.set()
    assert ask(load, soft_timeout=0) == shale.LoadResult(1, "loaded")


def test_a_fresh_value_is_served_where_loading_ahead_takes_long(ask: Ask, clock: Clock) -> None:
    ask.cache.set("k", "good", max_age=1000)
    clock.advance(999.999)
    load = Held()
    # With a mean of a million times the time left, nearly every caller draws more.
    while not load.calls:
        found = ask(load, soft_timeout=0.01, refresh_ahead=1000)
        assert found == shale.LoadResult("good", "cache")
    load.go.set()
    ask.until(lambda: ask.cache.get("k") == 1)


def test_a_failure_in_the_background_is_logged(
    ask: Ask, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    make_stale(ask.cache, clock)
    load = Held(fail)
    with caplog.at_level(logging.WARNING, "shale"):
        assert ask(load, soft_timeout=0).error is None
        load.go.set()
        ask.until(lambda: caplog.records)
    (record,) = caplog.records
    assert "'k'" in record.getMessage()
    assert record.exc_info is not None
    assert record.exc_info[0] is Failure


def test_a_failure_within_the_soft_limit_goes_to_the_caller_alone(
    ask: Ask, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    make_stale(ask.cache, clock)
    load = Held(fail)
    load.go.set()
    with pytest.raises(Failure):
        ask(load, soft_timeout=1000)
    assert not caplog.records


# The hard limit


def test_the_hard_limit_is_an_error_that_says_so(ask: Ask) -> None:
    load = Held()
    with pytest.raises(shale.LoadTimeoutError, match=r"'k'.*0\.05") as caught:
        ask(load, timeout=0.05)
    assert isinstance(caught.value, TimeoutError)
    assert (caught.value.key, caught.value.timeout) == ("k", 0.05)
    load.go.set()
    # The load continued, and stored.
    ask.until(lambda: ask.cache.get("k") == 1)


def test_who_waits_has_a_hard_limit_too(ask: Ask) -> None:
    load = Loader(held=True)
    first = in_thread(lambda: ask.cache.get_or_load("k", load))
    assert load.begun.wait(PATIENCE)
    with pytest.raises(shale.LoadTimeoutError):
        ask(Held(never), timeout=0.05)
    load.go.set()
    assert first() == 1


def test_stale_if_error_holds_for_the_hard_limit(ask: Ask, clock: Clock) -> None:
    make_stale(ask.cache, clock)
    load = Held()
    found = ask(load, timeout=0.05, stale_if_error=True)
    assert found[:3] == ("old", "cache", True)
    assert isinstance(found.error, shale.LoadTimeoutError)
    with pytest.raises(shale.LoadTimeoutError):
        ask(load, "other", timeout=0.05, stale_if_error=True)
    load.go.set()
    ask.until(lambda: ask.cache.get_many(["k", "other"]) == {"k": 1, "other": 1})


def test_the_soft_limit_comes_before_the_hard_one(ask: Ask, clock: Clock) -> None:
    make_stale(ask.cache, clock)
    load = Held()
    assert ask(load, timeout=1000, soft_timeout=0.01).value == "old"
    load.go.set()
    ask.until(lambda: load.ended)


def test_past_the_hard_limit_the_lease_is_not_renewed(ask: Ask) -> None:
    load = Held()
    with pytest.raises(shale.LoadTimeoutError):
        ask(load, timeout=0.05, lease=0.3)
    # Another caller loads when the lease expires.
    second = Held(lambda: 2)
    second.go.set()
    assert ask(second, lease=3600).value == 2
    assert not load.ended
    load.go.set()
    ask.until(lambda: load.ended)


def test_the_load_runs_in_its_callers_context(ask: Ask) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    variable.set("here")
    load = Held(variable.get)
    load.go.set()
    assert ask(load, timeout=1000).value == "here"


def test_what_a_limited_load_raises(ask: Ask) -> None:
    load = Held(fail)
    load.go.set()
    with pytest.raises(Failure):
        ask(load, timeout=1000)


def test_what_ends_a_limited_load(cache: shale.Cache) -> None:
    def leave() -> Any:
        raise SystemExit

    with pytest.raises(SystemExit):
        cache.get_or_load("k", leave, timeout=1000)
    assert cache.get_or_load("k", lambda: 1, timeout=1000) == 1


def test_a_thread_that_cannot_start_gives_the_lease_back(
    cache: shale.Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        with pytest.raises(RuntimeError, match="start"):
            cache.get_or_load("k", never, timeout=1000)
    assert is_free(cache)


@pytest.mark.parametrize("steps", range(4))
def test_a_cancelled_caller_cancels_its_load(cache: shale.Cache, steps: int) -> None:
    events: list[str] = []

    async def load() -> None:
        events.append("begun")
        try:
            await asyncio.sleep(PATIENCE)
            events.append("not cancelled")
        finally:
            events.append("ended")

    async def main() -> None:
        coroutines = shale.AsyncCache(cache)
        caller = asyncio.create_task(coroutines.get_or_load("k", load, timeout=1000))
        for _ in range(steps):
            await asyncio.sleep(0)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        assert events == (["begun", "ended"] if steps else [])
        assert single_flight_async._tasks == set()
        assert is_free(cache)

    asyncio.run(main())


@pytest.mark.parametrize("steps", range(4))
def test_where_all_tasks_are_cancelled_the_lease_is_given_back(
    cache: shale.Cache, steps: int
) -> None:
    """As at the end of ``asyncio.run``: a load may be cancelled before its first step."""

    async def main() -> None:
        load = Held()
        coroutines = shale.AsyncCache(cache)
        caller = asyncio.create_task(coroutines.get_or_load("k", load.coroutine, timeout=1000))
        for _ in range(steps):
            await asyncio.sleep(0)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.wait({caller})

    asyncio.run(main())
    assert is_free(cache)


def test_memoized_functions_have_limits(cache: shale.Cache) -> None:
    load = Loader(held=True)

    @cache.memoize(name="f", timeout=0.05)
    def f(_n: int) -> int:
        return load()

    with pytest.raises(shale.LoadTimeoutError) as caught:
        f(1)
    assert caught.value.key == f.cache_key(1)
    load.go.set()
    until(lambda: f.cache_key(1) in cache)
    assert f(1) == 1


def test_the_error_can_be_pickled() -> None:
    error = shale.LoadTimeoutError("k", 0.5)
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.key, copy.timeout, str(copy)) == ("k", 0.5, str(error))


@pytest.mark.parametrize(
    ("named", "error"),
    [
        ({"timeout": 0}, shale.InvalidError),
        ({"timeout": -1}, shale.InvalidError),
        ({"timeout": None}, TypeError),
        ({"soft_timeout": -0.1}, shale.InvalidError),
        ({"soft_timeout": "1"}, TypeError),
        ({"retry_after": -1}, shale.InvalidError),
        ({"jitter": -1, "max_age": 1}, shale.InvalidError),
        ({"jitter": 1}, shale.InvalidError),
        ({"missing_age": -1}, shale.InvalidError),
        ({"no_such_option": 1}, TypeError),
    ],
)
def test_wrong_limits_are_errors_before_anything_is_loaded(
    cache: shale.Cache, named: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        cache.get_or_load("k", never, **named)
    with pytest.raises(error):
        cache.memoize(**named)


def test_limits_may_be_any_number(cache: shale.Cache) -> None:
    for number, limit in enumerate((10**400, 1e18, shale.NEVER)):
        options: Any = {"timeout": limit, "soft_timeout": limit}
        assert cache.get_or_load(number, lambda: 1, **options) == 1


def test_a_load_whose_event_loop_was_closed_holds_up_no_other(
    aging: shale.Cache, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    aging.set("k", "old", max_age=10, stale=1000)
    clock.advance(10)
    monkeypatch.setattr(heartbeat, "_SHARE", 1 / 500)
    loop = asyncio.new_event_loop()

    async def ask() -> Any:
        forever = asyncio.Event()
        return await shale.AsyncCache(aging).get_or_load("k", forever.wait, soft_timeout=0)

    assert loop.run_until_complete(ask()) == "old"
    loop.close()
    assert aging.get_or_load("k", lambda: "new", stale=0) == "new"
    assert heartbeat._heartbeat._due == {}

    def collected() -> str:
        # The coroutine ends in the midst of another load.
        single_flight_async._tasks.clear()
        gc.collect()
        with pytest.raises(shale.DeadlockError, match="'other' -> 'other'"):
            aging.get_or_load("other", never)
        return "loaded"

    assert aging.get_or_load("other", collected) == "loaded"
