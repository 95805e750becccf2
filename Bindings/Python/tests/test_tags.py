"""Tags: entries that are invalidated together."""

from __future__ import annotations

from typing import Any

import pytest
from support import Clock

import shale


def test_invalidate_removes_every_entry_of_the_tag(cache: shale.Cache) -> None:
    cache.set("a", 1, tag="news")
    cache.set("b", 2, tags=["sport", "news"])
    cache.set("c", 3, tag="sport")
    cache["d"] = 4
    cache.invalidate("news")
    assert sorted(cache) == ["c", "d"]
    assert cache.stats().invalidations == 1


def test_what_is_set_afterwards_stays(cache: shale.Cache) -> None:
    cache.set("a", 1, tag="news")
    cache.invalidate("news")
    cache.set("a", 2, tag="news")
    assert cache["a"] == 2


def test_tag_and_tags_go_together(cache: shale.Cache) -> None:
    for tag in ("one", "two", "three"):
        cache.set("k", 1, tag="one", tags=("two", b"three"))
        assert "k" in cache
        cache.invalidate(tag)
        assert "k" not in cache


def test_a_text_is_its_utf8_bytes(cache: shale.Cache) -> None:
    cache.set("k", 1, tag="é")
    cache.invalidate("é".encode())
    assert "k" not in cache


def test_a_set_replaces_the_tags(cache: shale.Cache) -> None:
    cache.set("k", 1, tag="news")
    cache["k"] = 2
    cache.invalidate("news")
    assert cache["k"] == 2


def test_every_way_of_storing_takes_tags(cache: shale.Cache) -> None:
    cache.set_many({"a": 1, "b": "x"}, tags=["t"])
    cache.add("c", 1, tag="t")
    cache.incr("d", tag="t")
    cache.set_many([("e", None)], tag="t")
    assert len(cache) == 5
    cache.invalidate("t")
    assert list(cache) == []


def test_eight_tags_and_no_more(cache: shale.Cache) -> None:
    cache.set("k", 1, tags=[str(number) for number in range(8)])
    with pytest.raises(shale.InvalidError):
        cache.set("k", 2, tags=[str(number) for number in range(9)])
    assert cache["k"] == 1
    cache.invalidate("7")
    assert "k" not in cache


def test_tags_that_are_none(cache: shale.Cache) -> None:
    with pytest.raises(shale.InvalidError):
        cache.set("k", 1, tag="")
    with pytest.raises(shale.InvalidError):
        cache.invalidate(b"")
    wrong: list[Any] = [5, None, ["x"]]
    for tag in wrong:
        with pytest.raises(TypeError):
            cache.invalidate(tag)
    with pytest.raises(TypeError, match="tag="):
        cache.set("k", 1, tags="news")
    with pytest.raises(TypeError):
        cache.set("k", 1, tags=[5])  # type: ignore[list-item]
    assert "k" not in cache


def test_expire_makes_every_entry_of_the_tag_stale(aging: shale.Cache, clock: Clock) -> None:
    aging.set("kept", 1, stale=10, tag="news")
    aging.set("not kept", 2, tag="news")
    aging.set("other", 3, stale=10, tag="sport")
    aging.invalidate("news", expire=True)
    assert list(aging) == ["other"]
    assert sorted(aging.keys(stale=True)) == ["kept", "other"]
    assert aging.get("kept") is None
    assert aging.get("kept", stale=True) == 1
    aging.set("kept", 4, stale=10, tag="news")
    assert aging["kept"] == 4
    aging.invalidate("news", expire=True)
    clock.advance(10)
    assert aging.get("kept", stale=True) is None
