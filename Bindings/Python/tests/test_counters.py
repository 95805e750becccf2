"""incr: an int of 64 bits, atomic, and no other type."""

from __future__ import annotations

from typing import Any

import pytest
from support import Clock

import shale


def test_counts_from_initial(cache: shale.Cache) -> None:
    assert cache.incr("a") == 1
    assert cache.incr("a", 5) == 6
    assert cache.incr("a", -10) == -4
    assert cache.incr("b", initial=100) == 101
    assert cache.incr("b", initial=100) == 102
    assert cache.incr("c", 0, initial=7) == 7
    assert cache.incr("c", 0) == 7


def test_decr_subtracts(cache: shale.Cache) -> None:
    part = cache.namespace("part")
    for counted in (cache, part):
        assert counted.decr("n") == -1
        assert counted.decr("n", 5) == -6
        assert counted.decr("n", -10) == 4
        assert counted.decr("m", 2, initial=10) == 8
        assert counted.decr("none", create=False) is None
        assert counted["n"] == 4
    cache["text"] = "12345678"
    with pytest.raises(shale.InvalidError):
        cache.decr("text")


def test_decr_takes_the_options_of_incr(aging: shale.Cache, clock: Clock) -> None:
    heard: list[Any] = []
    stop = aging.on("set", lambda event: heard.append(event.key))
    assert aging.decr("n", max_age=10, tag="t") == -1
    assert heard == ["n"]
    stop()
    clock.advance(10)
    assert aging.decr("n", tag="t") == -1
    aging.invalidate("t")
    assert "n" not in aging


def test_what_it_makes_is_an_int(cache: shale.Cache) -> None:
    cache.incr("n")
    assert cache["n"] == 1
    assert type(cache["n"]) is int


@pytest.mark.parametrize("number", [0, 41, -5, 2**63 - 2, -(2**63)])
def test_counts_on_what_set_stored(cache: shale.Cache, number: int) -> None:
    cache["n"] = number
    assert cache.incr("n") == number + 1
    assert cache["n"] == number + 1


def test_ages_and_tags_are_for_a_new_counter(aging: shale.Cache, clock: Clock) -> None:
    aging.incr("n", max_age=10, tag="t")
    clock.advance(5)
    assert aging.incr("n", max_age=1000) == 2
    clock.advance(5)
    assert aging.incr("n", max_age=10, tag="t") == 1
    aging.invalidate("t")
    assert "n" not in aging


def test_a_touched_or_tagged_int_stays_as_it_is(aging: shale.Cache, clock: Clock) -> None:
    aging.set("n", 1, max_age=10, tag="t")
    assert aging.incr("n") == 2
    clock.advance(9)
    assert aging["n"] == 2
    aging.invalidate("t")
    assert "n" not in aging


@pytest.mark.parametrize(
    "value", ["12345678", 1.5, b"short", b"longer than eight", None, True, [1], 2**70, ""]
)
def test_anything_else_is_refused(cache: shale.Cache, value: Any) -> None:
    cache["k"] = value
    for delta in (1, 0, -1):
        with pytest.raises(shale.InvalidError):
            cache.incr("k", delta)
    assert cache["k"] == value


def test_counts_on_another_programs_counter(cache: shale.Cache) -> None:
    cache[b"n"] = (5).to_bytes(8, "little", signed=True)
    assert cache.incr(b"n") == 6
    assert cache.incr(b"n", 0) == 6
    assert cache[b"n"] == (6).to_bytes(8, "little", signed=True)


@pytest.mark.parametrize(("start", "delta"), [(2**63 - 1, 1), (-(2**63), -1), (-2, -(2**63))])
def test_overflow_changes_nothing(cache: shale.Cache, start: int, delta: int) -> None:
    cache["n"] = start
    with pytest.raises(shale.InvalidError):
        cache.incr("n", delta)
    assert cache["n"] == start
    with pytest.raises(shale.InvalidError):
        cache.incr("new", delta, initial=start)
    assert "new" not in cache


def test_deltas_are_ints_of_64_bits(cache: shale.Cache) -> None:
    for number in (2**63, -(2**63) - 1):
        with pytest.raises(shale.InvalidError):
            cache.incr("n", number)
    with pytest.raises(shale.InvalidError, match="delta"):
        cache.decr("n", -(2**63))  # the negative has 65 bits
    wrong: list[Any] = [1.0, "1", None, True]
    for delta in wrong:
        for count in (cache.incr, cache.decr):
            with pytest.raises(TypeError, match="delta"):
                count("n", delta)
    assert "n" not in cache


def test_a_missing_counter_may_stay_missing(aging: shale.Cache, clock: Clock) -> None:
    assert aging.incr("n", create=False) is None
    assert "n" not in aging
    aging.set("n", 5, max_age=10, stale=10)
    assert aging.incr("n", 2, create=False) == 7
    clock.advance(10)
    assert aging.incr("n", create=False) is None
    aging.get_or_load("missing", shale.Missing)
    assert aging.incr("missing", create=False) is None
    assert aging.incr("n", create=True) == 1
