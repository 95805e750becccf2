"""``stale_if_error`` and ``retry_after``: the results of failed loads."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from loaders import Failure, Loader, fail, in_thread, is_free, never, until
from support import SMALL, Clock

import shale
from shale._loading import failures
from shale._loading.in_flight import Outcome


@pytest.fixture
def stale(aging: shale.Cache, clock: Clock) -> shale.Cache:
    """A cache with a stale "old" under "k"."""
    aging.set("k", "old", max_age=10, stale=1000)
    clock.advance(10)
    return aging


def test_stale_if_error(stale: shale.Cache) -> None:
    found = stale.entry_or_load("k", fail, stale_if_error=True)
    assert found[:3] == ("old", "cache", True)
    assert isinstance(found.error, Failure)
    # Each call loads again.
    assert stale.get_or_load("k", lambda: 1, stale_if_error=True) == 1


def test_stale_if_error_raises_where_there_is_nothing(stale: shale.Cache) -> None:
    with pytest.raises(Failure):
        stale.get_or_load("other", fail, stale_if_error=True)
    with pytest.raises(Failure):
        stale.get_or_load("k", fail, stale_if_error=True, stale=0)


def test_in_the_pause_stale_is_served_without_another_try(stale: shale.Cache) -> None:
    with pytest.raises(Failure) as raised:
        stale.get_or_load("k", fail, retry_after=3600)
    for _ in range(3):
        found = stale.entry_or_load("k", never, retry_after=3600)
        assert found == ("old", "cache", True, False, raised.value)
    # The lease is free: a process without the pause loads.
    assert stale.get_or_load("k", lambda: 1) == 1


def test_the_pause_ends(stale: shale.Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    options: Any = {"retry_after": 5, "stale_if_error": True}
    assert stale.get_or_load("k", fail, **options) == "old"
    now += 4.999
    assert stale.get_or_load("k", never, **options) == "old"
    now += 0.001
    assert stale.get_or_load("k", lambda: 1, **options) == 1


def test_a_value_ends_the_pause(stale: shale.Cache, clock: Clock) -> None:
    options: Any = {"retry_after": 3600, "stale_if_error": True, "max_age": 10, "stale": 1000}
    assert stale.get_or_load("k", fail, **options) == "old"
    assert stale.get_or_load("k", lambda: 1, max_age=10, stale=1000) == 1
    clock.advance(10)
    assert stale.get_or_load("k", lambda: 2, **options) == 2


def test_the_pause_holds_without_a_stale_value(stale: shale.Cache) -> None:
    with pytest.raises(Failure) as first:
        stale.get_or_load("other", fail, retry_after=3600)
    for _ in range(2):
        with pytest.raises(Failure) as raised:
            stale.get_or_load("other", never, retry_after=3600)
        assert raised.value is first.value
    assert stale.get_or_load("other", lambda: 1) == 1


def test_the_process_shares_the_pause(stale: shale.Cache, directory: Path, clock: Clock) -> None:
    options: Any = {"retry_after": 3600, "stale_if_error": True}
    assert in_thread(lambda: stale.get_or_load("k", fail, **options))() == "old"
    with shale.Cache(directory, now=clock) as other:
        assert other.get_or_load("k", never, **options) == "old"
        waiting = shale.AsyncCache(other).get_or_load("k", never, **options)
        assert asyncio.run(waiting) == "old"


def test_another_cache_and_another_key_have_pauses_of_their_own(
    stale: shale.Cache, clock: Clock, tmp_path: Path
) -> None:
    options: Any = {"retry_after": 3600, "stale_if_error": True}
    assert stale.get_or_load("k", fail, **options) == "old"
    stale.set("other", "old", max_age=0, stale=1000)
    assert stale.get_or_load("other", lambda: 1, **options) == 1
    with shale.Cache(tmp_path / "other", capacity=SMALL, now=clock) as other:
        other.set("k", "old", max_age=0, stale=1000)
        assert other.get_or_load("k", lambda: 1, **options) == 1


def test_a_fresh_value_has_its_pause_too(aging: shale.Cache, clock: Clock) -> None:
    aging.set("k", "good", max_age=1000)
    clock.advance(999.999)
    load = Loader()
    calls: list[None] = []

    def failing_once() -> Any:
        calls.append(None)
        raise Failure

    for _ in range(50):
        found = aging.get_or_load("k", failing_once, refresh_ahead=1000, retry_after=3600)
        assert found == "good"
    assert len(calls) == 1
    clock.advance(1)
    assert aging.get_or_load("k", load) == 1


def test_a_limit_that_is_exceeded_is_a_failure(stale: shale.Cache) -> None:
    load = Loader(held=True)
    options: Any = {"retry_after": 3600, "stale_if_error": True, "timeout": 0.05, "lease": 0.1}
    found = stale.entry_or_load("k", lambda _: load(), **options)
    assert found.value == "old"
    until(lambda: is_free(stale))
    # Its lease is over, its pause is not.
    found = stale.entry_or_load("k", never, **options)
    assert isinstance(found.error, shale.LoadTimeoutError)
    load.go.set()


def test_there_are_so_many_pauses_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "_MOST", 3)
    pauses = failures.Pauses()
    load_keys: list[Any] = [("cache", b"%d" % number) for number in range(5)]
    for each in load_keys:
        pauses.begin(each, Outcome(error=Failure()), 3600)
    assert [pauses.cause(each) is not None for each in load_keys] == [False] * 2 + [True] * 3
