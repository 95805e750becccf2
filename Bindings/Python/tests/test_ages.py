"""Ages in seconds, by a clock that the test moves."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import SMALL, Clock

import shale


def test_an_entry_is_fresh_until_its_age(aging: shale.Cache, clock: Clock) -> None:
    aging.set("k", 1, max_age=10)
    clock.advance(9.999)
    assert aging["k"] == 1
    assert "k" in aging
    clock.advance(0.001)
    assert "k" not in aging
    assert aging.get("k") is None
    assert aging.get("k", stale=True) is None
    assert list(aging) == []


def test_ages_are_exact_to_the_millisecond(aging: shale.Cache, clock: Clock) -> None:
    aging.set("k", 1, max_age=0.25)
    clock.advance(0.249)
    assert aging.get("k") == 1
    clock.advance(0.001)
    assert aging.get("k") is None


def test_without_an_age_it_stays(aging: shale.Cache, clock: Clock) -> None:
    aging["k"] = 1
    clock.advance(1e9)
    assert aging["k"] == 1


def test_the_default_age_belongs_to_the_cache(directory: Path, clock: Clock) -> None:
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


def test_stale_entries_are_for_those_who_ask(aging: shale.Cache, clock: Clock) -> None:
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


def test_zero_stale_beats_the_default(directory: Path, clock: Clock) -> None:
    with shale.Cache(directory, capacity=SMALL, max_age=1, stale=100, now=clock) as cache:
        cache["kept"] = 1
        cache.set("gone", 2, stale=0)
        clock.advance(1)
        assert cache.get_many(["kept", "gone"], stale=True) == {"kept": 1}


def test_touch_gives_a_new_age_from_now(aging: shale.Cache, clock: Clock) -> None:
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


def test_touch_revives_what_is_stale(aging: shale.Cache, clock: Clock) -> None:
    aging.set("k", "v", max_age=10, stale=10)
    clock.advance(15)
    assert "k" not in aging
    assert aging.touch("k", 10)
    assert aging["k"] == "v"


def test_touch_finds_nothing_that_is_gone(aging: shale.Cache, clock: Clock) -> None:
    aging.set("k", "v", max_age=10)
    clock.advance(10)
    assert not aging.touch("k", 10)
    assert "k" not in aging


def test_add_counts_what_is_stale_as_absent(aging: shale.Cache, clock: Clock) -> None:
    aging.set("k", 1, max_age=10, stale=100)
    clock.advance(10)
    assert aging.add("k", 2)
    assert aging["k"] == 2


def test_purge_removes_what_is_gone(aging: shale.Cache, clock: Clock) -> None:
    for number in range(10):
        aging.set(number, number, max_age=1 if number < 4 else 100)
    assert aging.purge() == 0
    clock.advance(1)
    assert aging.purge() == 4
    assert len(aging) == 6


def test_a_clock_that_fails_is_not_the_end(
    directory: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def broken() -> float:
        raise RuntimeError("no time")

    with shale.Cache(directory, capacity=SMALL, now=broken) as cache:
        cache.set("k", 1, max_age=1000)
        assert cache["k"] == 1
    assert "no time" in capfd.readouterr().err


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


def test_expire_ends_an_age(aging: shale.Cache, clock: Clock) -> None:
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
