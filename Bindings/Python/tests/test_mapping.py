"""A cache is a ``MutableMapping``, by CPython's own tests of mappings."""

from __future__ import annotations

import importlib
from collections.abc import ItemsView, KeysView, Mapping, MutableMapping, ValuesView
from pathlib import Path
from typing import Any

import pytest
from support import SMALL, Clock
from test_threads import run_threads

import shale

try:
    mapping_tests: Any = importlib.import_module("test.mapping_tests")
except ImportError:  # some distributions leave CPython's own tests out
    mapping_tests = None


class AsADict(shale.Cache):
    """With a dict's behaviour in what a cache does otherwise, each on purpose:

    - a cache equals itself alone: to compare two would read them both, and what can be a key in a
      dict of caches now could not be then
    - ``pop`` of what is not there is a miss, and no exception
    - the keywords of ``update`` are options of the set
    """

    __eq__ = Mapping.__eq__
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, items: Any = (), **more: Any) -> None:
        super().__init__(None, capacity=SMALL)
        self.update(items, **more)

    def pop(self, key: Any, *default: Any) -> Any:
        return super().pop(key, *default) if default else MutableMapping.pop(self, key)

    def update(self, *items: Any, **more: Any) -> None:
        for each in (*items, more):
            super().update(each)


if mapping_tests is not None:

    class TestBasicProtocol(mapping_tests.BasicTestMappingProtocol):  # type: ignore[misc]
        type2test = AsADict

    class TestProtocol(mapping_tests.TestMappingProtocol):  # type: ignore[misc]
        type2test = AsADict

        # A cache is neither copied nor made from keys; its values are copies, which may change
        # without the cache; and its entries are in no order.
        test_copy = test_fromkeys = None
        test_setdefault = mapping_tests.BasicTestMappingProtocol.test_setdefault
        test_popitem = mapping_tests.BasicTestMappingProtocol.test_popitem


def test_its_abstract_types(cache: shale.Cache) -> None:
    users = cache.namespace("users")
    for each in (cache, users):
        assert isinstance(each, MutableMapping)
        assert isinstance(each.keys(), KeysView)
        assert isinstance(each.values(), ValuesView)
        assert isinstance(each.items(), ItemsView)


def test_it_equals_itself_alone(cache: shale.Cache, directory: Path) -> None:
    with shale.Cache(directory) as other:
        assert cache == cache
        assert cache != other
        assert cache != {}
        assert {cache: 1, other: 2}[cache] == 1


@pytest.mark.parametrize("of_namespace", [False, True])
def test_views_show_what_is_there_when_they_are_asked(
    aging: shale.Cache, clock: Clock, of_namespace: bool
) -> None:
    cache: shale.Cache = aging.namespace("part") if of_namespace else aging
    if of_namespace:
        aging["elsewhere"] = "x"
    keys, values, items = cache.keys(), cache.values(), cache.items()
    assert (len(keys), len(values), len(items)) == (0, 0, 0)
    cache.set("a", [1], max_age=10, stale=10)
    cache["b"] = b"2"
    assert set(keys) == {"a", "b"}
    assert sorted(values, key=repr) == [[1], b"2"]
    assert sorted(items) == [("a", [1]), ("b", b"2")]
    assert (len(keys), len(values), len(items)) == (2, 2, 2)
    assert "a" in keys
    assert [1] in values
    assert ("a", [1]) in items
    clock.advance(10)
    assert "a" not in keys
    assert [1] not in values
    assert ("a", [1]) not in items
    stale = cache.keys(stale=True), cache.values(stale=True), cache.items(stale=True)
    assert [len(view) for view in stale] == [2, 2, 2]
    assert "a" in stale[0]
    assert [1] in stale[1]
    assert ("a", [1]) in stale[2]
    assert ("a", [2]) not in stale[2]
    other: Any = "ab"
    assert other not in items
    assert keys & {"b", "c"} == {"b"}
    assert cache.keys() | {"c"} == {"b", "c"}
    # No entry was used.
    assert aging.stats().hits == 0
    assert repr(keys) == f"<CacheKeys of {cache!r}>"


def test_a_view_leaves_out_what_cannot_be_read(directory: Path) -> None:
    pickle = shale.PickleSerializer()
    with shale.Cache(directory, capacity=SMALL, serializer=pickle) as cache:
        cache["k"] = 1j
        cache["plain"] = 1
    with shale.Cache(directory) as cache:
        assert list(cache.values()) == [1]
        assert list(cache.items()) == [("plain", 1)]
        assert ("k", 1j) not in cache.items()


def test_popitem_gives_each_entry_to_one(cache: shale.Cache) -> None:
    cache.set_many((number, -number) for number in range(300))
    found: list[tuple[Any, Any]] = []

    def take(_thread: int) -> None:
        while True:
            try:
                found.append(cache.popitem())
            except KeyError:
                return

    run_threads(4, take)
    assert sorted(found) == [(number, -number) for number in range(300)]
    assert not cache


def test_popitem_passes_over_what_cannot_be_read(directory: Path) -> None:
    with shale.Cache(directory, capacity=SMALL, serializer=shale.PickleSerializer()) as cache:
        cache.set_many({"k": 1j, "plain": 1})
    with shale.Cache(directory) as cache:
        assert cache.popitem() == ("plain", 1)
        with pytest.raises(KeyError):
            cache.popitem()
        assert list(cache) == ["k"]


def test_setdefault_has_one_winner(cache: shale.Cache) -> None:
    found: list[Any] = []
    run_threads(4, lambda thread: found.append(cache.setdefault("k", thread, max_age=60)))
    assert found == [cache["k"]] * 4
    entry = cache.entry("k")
    assert entry is not None
    assert entry.ttl <= 60
    cache["none"] = None
    assert cache.setdefault("none", 1) is None


def test_setdefault_looks_again_where_another_was_faster(
    cache: shale.Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = shale.Cache.add

    def late(self: shale.Cache, key: Any, value: Any, **options: Any) -> bool:
        self[key] = "another's"
        return add(self, key, value, **options)

    monkeypatch.setattr(shale.Cache, "add", late)
    assert cache.setdefault("k", "ours") == "another's"


def test_add_and_setdefault_replace_what_cannot_be_read(directory: Path) -> None:
    with (
        shale.Cache(directory, serializer=shale.PickleSerializer()) as other,
        shale.Cache(directory) as cache,
    ):
        for key in "ab":
            other[key] = object()
        assert cache.add("a", 1)
        assert not cache.add("a", 2)
        assert cache.setdefault("b", 3) == 3
        assert dict(cache) == {"a": 1, "b": 3}


def test_update_as_a_dict_has_it(cache: shale.Cache) -> None:
    cache.update({"a": 1}, max_age=5)
    cache.update([("b", 2)])
    entry = cache.entry("a")
    assert entry is not None
    assert entry.ttl <= 5
    assert dict(cache) == {"a": 1, "b": 2}
    with pytest.raises(TypeError, match="c"):
        cache.update({}, c=3)  # type: ignore[call-overload]


def test_one_cache_is_written_into_another(cache: shale.Cache) -> None:
    cache.set_many({"a": 1, "b": (2, b"3")})
    with shale.Cache(None, capacity=SMALL) as other:
        for write in (other.update, other.set_many):
            other.clear()
            write(cache)
            assert dict(other) == {"a": 1, "b": (2, b"3")}
        users = other.namespace("users")
        users.update(cache)
        assert dict(users) == dict(cache)
        assert dict(**cache) == dict(cache)
