"""get_many, set_many, remove_many: each key as in a call of its own."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies import value_shape, values
from support import Clock

import shale
from shale._native.handles import BATCH


@pytest.mark.parametrize("count", [0, 1, BATCH - 1, BATCH, BATCH + 1, 3 * BATCH + 5])
def test_any_number_of_keys(cache: shale.Cache, count: int) -> None:
    stored = {("key", number): f"value {number}" for number in range(count)}
    cache.set_many(stored)
    assert len(cache) == count
    missing: list[Any] = [("none", number) for number in range(count)]
    asked = [key for pair in zip(stored, missing) for key in pair]
    assert cache.get_many(asked) == stored
    assert list(cache.get_many(asked)) == list(stored)
    assert cache.remove_many(asked) == count
    assert len(cache) == 0


@given(st.dictionaries(st.text() | st.binary() | st.integers(), values, max_size=20))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_types_mix_in_a_batch(cache: shale.Cache, stored: dict[Any, Any]) -> None:
    cache.set_many(stored)
    found = cache.get_many(stored)
    assert {key: value_shape(value) for key, value in found.items()} == {
        key: value_shape(value) for key, value in stored.items()
    }
    for key, value in stored.items():
        assert value_shape(cache[key]) == value_shape(value)


def test_pairs_and_generators(cache: shale.Cache) -> None:
    cache.set_many([("a", 1), ("b", "x"), ("a", "last")])
    assert cache.get_many(key for key in ("a", "a", "b")) == {"a": "last", "b": "x"}


def test_large_values_in_a_batch(cache: shale.Cache) -> None:
    stored = {number: os.urandom(300_000) for number in range(6)}
    stored[6] = os.urandom(1_500_000)
    cache.set_many(stored)
    for _ in range(2):
        assert cache.get_many(stored) == stored


def test_options_hold_for_all(aging: shale.Cache, clock: Clock) -> None:
    aging.set_many({"a": 1, "b": "x", "c": b"y"}, max_age=10, stale=5, pinned=True)
    for key in ("a", "b", "c"):
        entry = aging.entry(key)
        assert entry is not None
        assert entry.pinned
    clock.advance(10)
    assert aging.get_many(["a", "b", "c"]) == {}
    assert aging.get_many(["a", "b", "c"], stale=True) == {"a": 1, "b": "x", "c": b"y"}


def test_what_cannot_be_encoded_stores_nothing(cache: shale.Cache) -> None:
    with pytest.raises(TypeError):
        cache.set_many({"a": 1, "b": object()})
    assert len(cache) == 0


def test_one_key_too_long(cache: shale.Cache) -> None:
    with pytest.raises(shale.TooLargeError):
        cache.get_many(["a", "x" * 70_000])
    with pytest.raises(shale.TooLargeError):
        cache.set_many({"x" * 70_000: 1})


@pytest.mark.parametrize("listening", [False, True])
@pytest.mark.parametrize("keys", ["ab", b"ab", bytearray(b"ab"), memoryview(b"ab")])
def test_one_key_is_no_list_of_keys(cache: shale.Cache, keys: Any, listening: bool) -> None:
    if listening:
        cache.on("miss", lambda _event: None)
    cache.set_many([("a", 1), ("b", 2), (97, 3), (98, 4)])
    for call in (cache.get_many, cache.remove_many):
        with pytest.raises(TypeError, match="list of keys"):
            call(keys)
    assert len(cache) == 4


@pytest.mark.parametrize("listening", [False, True])
@pytest.mark.parametrize("bad", [True, 1.0, (True,)])
def test_a_bad_key_is_found_beside_its_equal(cache: shale.Cache, bad: Any, listening: bool) -> None:
    if listening:
        cache.on("miss", lambda _event: None)
    cache.set_many([(1, "a"), ((1,), "b")])
    for keys in ([bad], [1, (1,), bad], [bad, 1, (1,)]):
        for call in (cache.get_many, cache.remove_many):
            with pytest.raises(TypeError, match="a key is"):
                call(keys)
    assert len(cache) == 2
