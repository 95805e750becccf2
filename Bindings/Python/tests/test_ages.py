"""Ages in seconds, by a clock that the test moves."""

from __future__ import annotations

import contextvars
import math
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from support import SMALL, run_child
from support import Clock as SetClock

import shale
from shale._native.clock import Clock


def test_an_entry_is_fresh_until_its_age(aging: shale.Cache, clock: SetClock) -> None:
    aging.set("k", 1, max_age=10)
    clock.advance(9.999)
    assert aging["k"] == 1
    assert "k" in aging
    clock.advance(0.001)
    assert "k" not in aging
    assert aging.get("k") is None
    assert aging.get("k", stale=True) is None
    assert list(aging) == []


def test_ages_are_exact_to_the_millisecond(aging: shale.Cache, clock: SetClock) -> None:
    aging.set("k", 1, max_age=0.25)
    clock.advance(0.249)
    assert aging.get("k") == 1
    clock.advance(0.001)
    assert aging.get("k") is None


def test_without_an_age_it_stays(aging: shale.Cache, clock: SetClock) -> None:
    aging["k"] = 1
    clock.advance(1e9)
    assert aging["k"] == 1


def test_the_default_age_belongs_to_the_cache(directory: Path, clock: SetClock) -> None:
    with shale.Cache(directory, capacity=SMALL, max_age=10, now=clock):
        pass
    with shale.Cache(directory, now=clock) as cache:
        cache["default"] = 1
        cache.set("own", 2, max_age=20)
        cache.set("never", 3, max_age=shale.NEVER)
        clock.advance(10)
        assert sorted(cache) == ["never", "own"]
        clock.advance(10)
        assert list(cache) == ["never"]


def test_stale_entries_are_for_those_who_ask(aging: shale.Cache, clock: SetClock) -> None:
    aging.set("k", "v", max_age=10, stale=5)
    entry = aging.entry("k", stale=True)
    assert entry is not None
    assert not entry.stale
    clock.advance(10)
    assert aging.get("k") is None
    assert aging.entry("k") is None
    assert aging.get_many(["k"]) == {}
    assert list(aging) == []
    assert aging.get("k", stale=True) == "v"
    assert aging.get_many(["k"], stale=True) == {"k": "v"}
    assert list(aging.keys(stale=True)) == ["k"]
    assert list(aging.items(stale=True)) == [("k", "v")]
    entry = aging.entry("k", stale=True)
    assert entry is not None
    assert entry.stale
    clock.advance(5)
    assert aging.get("k", stale=True) is None


def test_zero_is_no_age_at_all(aging: shale.Cache) -> None:
    aging.set("stale at once", 1, max_age=0, stale=5)
    assert "stale at once" not in aging
    assert aging.get("stale at once", stale=True) == 1


def test_zero_stale_beats_the_default(directory: Path, clock: SetClock) -> None:
    with shale.Cache(directory, capacity=SMALL, max_age=1, stale=100, now=clock) as cache:
        cache["kept"] = 1
        cache.set("gone", 2, stale=0)
        clock.advance(1)
        assert cache.get_many(["kept", "gone"], stale=True) == {"kept": 1}


def test_touch_gives_a_new_age_from_now(aging: shale.Cache, clock: SetClock) -> None:
    aging.set("k", "v", max_age=10)
    before = aging.entry("k")
    clock.advance(9)
    assert aging.touch("k", max_age=10)
    clock.advance(9)
    after = aging.entry("k")
    assert before is not None
    assert after is not None
    assert after.value == "v"
    assert after.version == before.version
    assert aging.touch("k", max_age=shale.NEVER)
    clock.advance(1e8)
    assert aging["k"] == "v"
    assert aging.touch("k")
    assert aging["k"] == "v"


def test_touch_revives_what_is_stale(aging: shale.Cache, clock: SetClock) -> None:
    aging.set("k", "v", max_age=10, stale=10)
    clock.advance(15)
    assert "k" not in aging
    assert aging.touch("k", 10)
    assert aging["k"] == "v"


def test_touch_finds_nothing_that_is_gone(aging: shale.Cache, clock: SetClock) -> None:
    aging.set("k", "v", max_age=10)
    clock.advance(10)
    assert not aging.touch("k", 10)
    assert "k" not in aging


def test_add_counts_what_is_stale_as_absent(aging: shale.Cache, clock: SetClock) -> None:
    aging.set("k", 1, max_age=10, stale=100)
    clock.advance(10)
    assert aging.add("k", 2)
    assert aging["k"] == 2


def test_purge_removes_what_is_gone(aging: shale.Cache, clock: SetClock) -> None:
    for number in range(10):
        aging.set(number, number, max_age=1 if number < 4 else 100)
    assert aging.purge() == 0
    clock.advance(1)
    assert aging.purge() == 4
    assert len(aging) == 6


class Broken(BaseException):
    pass


@pytest.mark.parametrize("kind", [RuntimeError, IndexError, KeyboardInterrupt, Broken])
def test_what_a_clock_raises_goes_to_the_caller(
    directory: Path, capfd: pytest.CaptureFixture[str], kind: type[BaseException]
) -> None:
    broken = False

    def now() -> float:
        if broken:
            raise kind("no time")
        return 1_800_000_000.0

    with shale.Cache(directory, capacity=SMALL, now=now) as cache:
        cache.set("k", "old", max_age=1000)
        iterator = iter(cache.items())
        calls: list[Callable[[], object]] = [
            lambda: cache.get("k"), lambda: cache.set("k", "new"), lambda: cache.get_many(["k"]),
            lambda: cache.set_many({"k": "new"}), lambda: next(iterator), lambda: len(cache),
            lambda: cache.touch("k", 5), lambda: cache.remove("k"), lambda: "k" in cache,
            lambda: cache.get_or_load("k", lambda: "new"), lambda: shale.Cache(directory, now=now),
        ]  # fmt: skip
        broken = True
        for call in calls:
            with pytest.raises(kind, match="no time"):
                call()
        broken = False
        assert len(cache._pool.idle) == cache._pool._made
        entry = cache.entry("k")
        assert entry is not None
        assert (entry.value, entry.expires) == ("old", 1_800_001_000.0)
        broken = True
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("answer", [math.nan, math.inf, 1e300, "now", None, 1j])
def test_what_is_no_time(directory: Path, answer: Any) -> None:
    with pytest.raises(shale.InvalidError, match="now returns seconds"):
        shale.Cache(directory, now=lambda: answer)


@pytest.mark.parametrize("seconds", [0, 0.0004, 1, -1, 1e9, 4e9])
def test_any_time_is_taken_as_it_is(directory: Path, seconds: float) -> None:
    """Also by a thread that has not asked yet."""
    clock = Clock(lambda: seconds)
    assert clock.ask() == round(seconds * 1000)
    assert contextvars.Context().run(clock.function, 5) == 5
    assert clock.function(5) == round(seconds * 1000)


def test_the_library_is_given_the_time_by_c_alone() -> None:
    """No Python code runs during the library's call: no signal handler, and no exception."""
    clock = Clock(lambda: 7)
    clock.ask()
    calls: list[object] = []
    sys.setprofile(lambda frame, event, _argument: calls.append((event, frame.f_code.co_name)))
    try:
        clock.function(1)
    finally:
        sys.setprofile(None)
    assert [each for each in calls if each[0] == "call"] == []  # type: ignore[index]


def test_signals_harm_no_time(directory: Path) -> None:
    script = """
        import signal, sys, time
        import shale

        class Interrupt(Exception):
            pass

        def interrupt(*_arguments):
            raise Interrupt

        began = time.time() - 1
        cache = shale.Cache(sys.argv[1], capacity="8MiB", now=lambda: time.time())
        signal.signal(signal.SIGALRM, interrupt)
        caught = number = 0
        # Some of these arrive in the library's call.
        while number < 3000:
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-5 + number % 40 * 1e-6)
                number += 1
                cache.set(number % 50, number, max_age=1000)
                cache.touch(number % 50, 1000)
                for _ in range(100):
                    cache.get(number % 50)
            except Interrupt:
                caught += 1
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        assert caught > 100
        for key in cache:
            entry = cache.entry(key)
            assert began <= entry.created <= time.time() + 1, entry
            assert began + 1000 <= entry.expires <= time.time() + 1001, entry
        print("in time")
    """
    assert run_child(script, directory) == "in time\n"


def test_threads_have_their_own_time(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread stops between its clock and the library's call, while another one goes on."""
    local = threading.local()
    local.seconds = 1_800_000_000.0
    asked = threading.Event()
    go_on = threading.Event()
    ask = Clock.ask

    def slow(clock: Clock) -> int:
        answer = ask(clock)
        if local.seconds == 1_900_000_000.0:
            asked.set()
            assert go_on.wait(60)
        return answer

    monkeypatch.setattr(Clock, "ask", slow)
    with shale.Cache(directory, capacity=SMALL, now=lambda: local.seconds) as cache:

        def work() -> None:
            local.seconds = 1_900_000_000.0
            cache.set("other", 1)

        thread = threading.Thread(target=work)
        thread.start()
        assert asked.wait(60)
        cache["k"] = 1
        go_on.set()
        thread.join(60)
        created = {key: entry.created for key in cache if (entry := cache.entry(key))}
        assert created == {"k": 1_800_000_000.0, "other": 1_900_000_000.0}


def test_a_clock_may_use_the_cache(directory: Path) -> None:
    seen: list[object] = []
    asking: list[shale.Cache] = []

    def curious() -> float:
        if asking:
            seen.append(asking.pop().get("other"))
        return 1_800_000_000.0

    with shale.Cache(directory, capacity=SMALL, now=curious) as cache:
        cache.set("k", "k" * 10, max_age=10)
        cache.set("other", "other" * 1000, max_age=10)
        asking.append(cache)
        assert cache["k"] == "k" * 10
        asking.append(cache)
        assert dict(cache.items()) == {"k": "k" * 10, "other": "other" * 1000}
        assert seen == ["other" * 1000] * 2


def test_expire_ends_an_age(aging: shale.Cache, clock: SetClock) -> None:
    assert not aging.expire("k")
    aging.set("k", 1, max_age=100, stale=10)
    clock.advance(5)
    assert aging.expire("k")
    assert aging.get("k") is None
    entry = aging.entry("k", stale=True)
    assert entry is not None
    assert (entry.value, entry.expires, entry.stale) == (1, clock(), True)
    assert aging.touch("k", 10)
    assert aging["k"] == 1
    assert aging.expire("k")
    clock.advance(10)
    assert aging.get("k", stale=True) is None
    aging.set("k", 2)
    assert aging.expire("k")
    assert aging.get("k", stale=True) is None


def test_ages_are_timedeltas_too(aging: shale.Cache, clock: SetClock) -> None:
    minute = timedelta(minutes=1)
    aging.set("set", 1, max_age=minute, stale=timedelta(0))
    aging.add("add", 1, max_age=minute)
    aging.set_many({"many": 1}, max_age=minute)
    aging.incr("incr", max_age=minute)
    aging["touched"] = 1
    aging.touch("touched", minute)
    aging.get_or_load("loaded", lambda: 1, max_age=minute, jitter=timedelta(0), lease=minute)
    aging.get_or_load("said", lambda: shale.Loaded(1, max_age=minute), timeout=minute)
    aging.update("update", lambda _old: 1, max_age=minute)
    assert {entry.expires for key in aging if (entry := aging.entry(key))} == {clock() + 60}
    for _ in range(20):
        aging.get_or_load("jitter", lambda: 1, max_age=minute, jitter=minute)
        entry = aging.entry("jitter")
        assert entry is not None
        assert 30 <= entry.ttl <= 60
        aging.remove("jitter")
    aging.set("little", 1, max_age=timedelta(microseconds=1))
    assert "little" in aging
    clock.advance(0.001)
    assert "little" not in aging
    for wrong in (timedelta(-1), timedelta(microseconds=-1)):
        with pytest.raises(shale.InvalidError, match="negative"):
            aging.set("k", 1, max_age=wrong)
        with pytest.raises(shale.InvalidError, match="negative"):
            aging.lock("k", timeout=wrong)
    with shale.Cache(aging.directory, max_age=timedelta(days=1), now=clock) as other:
        other["k"] = 1
    entry = aging.entry("k")
    assert entry is not None
    assert entry.ttl == 86_400


def test_what_is_left_of_an_age(aging: shale.Cache, clock: SetClock) -> None:
    def left(key: str = "k") -> float:
        entry = aging.entry(key, stale=True)
        assert entry is not None
        return entry.ttl

    aging.set("k", 1, max_age=10, stale=10, tag="t")
    aging["never"] = 1
    assert (left(), left("never")) == (10, shale.NEVER)
    clock.advance(2.5)
    assert left() == 7.5
    aging.on("hit", lambda _event: None)
    assert left() == 7.5
    clock.advance(7.5)
    assert left() == 0
    clock.advance(5)
    assert left() == 0
    aging.set("k", 1, max_age=10, stale=10, tag="t")
    aging.invalidate("t", expire=True)
    assert left() == 0
    aging.set("k", 1, stale=10, tag="t")
    aging.invalidate("t", expire=True)
    assert left() == 0
    assert left("never") == shale.NEVER
    # To a loader as well.
    aging.set("k", 1, max_age=10)
    clock.advance(9.999)
    seen: list[float] = []
    while not seen:
        aging.entry_or_load(
            "k", lambda old: seen.append(old.ttl if old else -1), refresh_ahead=1000
        )
    assert seen == [0.001]


def test_what_is_left_by_the_systems_clock(cache: shale.Cache) -> None:
    cache.set("k", 1, max_age=1000)
    entry = cache.entry("k")
    assert entry is not None
    assert 900 < entry.ttl <= 1000
