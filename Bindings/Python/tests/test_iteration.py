"""Iteration returns the original keys."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies import key_shape, keys
from support import SMALL, Clock

import shale


@given(st.lists(keys, max_size=10))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_original_keys(cache: shale.Cache, wanted: list[Any]) -> None:
    cache.clear()
    for key in wanted:
        cache[key] = "v"
    assert {key_shape(key) for key in cache} == {key_shape(key) for key in wanted}


def test_keys_items_and_dict(cache: shale.Cache) -> None:
    stored = {number: str(number) * 10 for number in range(1000)}
    cache.set_many(stored)
    assert set(cache) == set(cache.keys()) == set(stored)
    assert dict(cache.items()) == stored
    assert len(cache) == 1000


def test_len_and_bool_agree_with_iteration(aging: shale.Cache, clock: Clock) -> None:
    def agrees(count: int) -> None:
        assert (len(aging), bool(aging), len(list(aging))) == (count, count > 0, count)

    agrees(0)
    aging.set_many(dict.fromkeys(range(300), 1), tag="news")
    aging.set_many(dict.fromkeys(range(300, 500), b"x"), max_age=10, stale=10)
    agrees(500)
    aging.invalidate("news")
    assert aging.stats().entries == 500
    agrees(200)
    clock.advance(10)
    agrees(0)
    aging.get_or_load("k", shale.Missing)
    agrees(0)
    aging["k"] = None
    agrees(1)


def test_a_cache_is_no_sequence(cache: shale.Cache) -> None:
    cache.set_many({0: "a", 1: "b"})
    with pytest.raises(TypeError, match="reversible"):
        reversed(cache)
    # numpy.array calls it first.
    with pytest.raises(TypeError, match="no array"):
        cache.__array__(dtype=None, copy=None)


def test_the_cache_may_change_meanwhile(cache: shale.Cache) -> None:
    cache.set_many(dict.fromkeys(range(500), "x"))
    seen = set()
    for key in cache:
        seen.add(key)
        cache.remove(key)
        cache[("new", key)] = "y" * 50
    assert {key for key in seen if isinstance(key, int)} == set(range(500))


def test_what_lives_throughout_comes_at_least_once(cache: shale.Cache) -> None:
    cache.set_many(dict.fromkeys(range(300), "x"))
    seen = set()
    for number, key in enumerate(cache):
        seen.add(key)
        if number < 2000:
            cache[("grow", number)] = "y"
    assert set(range(300)) <= seen


def test_several_at_once(cache: shale.Cache) -> None:
    cache.set_many({number: number for number in range(20)})
    pairs = {(one, other) for one in cache for other in cache}
    assert len(pairs) == 400


def test_abandoned_iterators(directory: Path) -> None:
    cache = shale.Cache(directory, capacity=SMALL)
    cache.set_many({number: number for number in range(20)})
    kept = []
    for _ in range(50):
        iterator = iter(cache)
        next(iterator)
        kept.append(iterator)
    del kept[:25], iterator
    gc.collect()
    cache.close()
    for iterator in kept:
        with pytest.raises(shale.InvalidError):
            next(iterator)
    with shale.Cache(directory, capacity="4MiB") as other:
        assert len(other) == 20


def test_an_iterator_ends_once(cache: shale.Cache) -> None:
    cache["k"] = 1
    iterator = iter(cache)
    assert list(iterator) == ["k"]
    assert list(iterator) == []
