"""The types of ``Cache[K, V]``: mypy checks this file, in ``Scripts/lint``, and a missing expected
error is an error too."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import date
from typing import TYPE_CHECKING, Any, Union

import shale

if TYPE_CHECKING:
    from typing_extensions import assert_type
else:

    def assert_type(value: Any, _kind: Any) -> Any:
        return value


def test_of_one_type(cache: shale.Cache[str, int]) -> None:
    cache["a"] = 1
    assert_type(cache["a"], int)
    assert_type(cache.get("a"), Union[int, None])
    assert_type(cache.get("a", 0), int)
    assert_type(cache.get("a", "none"), Union[int, str])
    assert_type(cache.pop("a"), Union[int, None])
    assert_type(cache.setdefault("a", 2), int)
    assert_type(cache.update("a", lambda old: 3), int)
    assert_type(cache.get_many(["a"]), dict[str, int])
    assert_type(cache.decr("n"), int)
    assert_type(cache.decr("n", create=bool(cache)), Union[int, None])
    assert_type(iter(cache), Iterator[str])
    assert_type(list(cache.values()), list[int])
    assert_type(list(cache.items()), list[tuple[str, int]])
    entry = cache.entry("a")
    assert entry is not None
    assert_type(entry.value, int)
    cache.set_many({"b": 2})
    cache.update({"b": 2}, max_age=60)
    with cache.lease("c") as lease:
        assert_type(lease.entry, Union[shale.Entry[int], None])
        lease.set(4)
    assert_type(cache.popitem(), tuple[str, int])


def test_of_any_type(cache: shale.Cache) -> None:
    cache["a"] = 1
    cache[b"b", 2] = {"any": "thing"}
    assert_type(cache["a"], Any)
    for key in cache:
        assert_type(key, shale.Key)
    assert_type(cache.get_or_load("c", lambda: "loaded"), str)
    assert_type(cache.get_many(["a"]), dict[str, Any])


def test_other_keys(cache: shale.Cache[uuid.UUID, int]) -> None:
    key = uuid.UUID(int=1)
    cache[key] = 1
    assert list(cache) == [key]
    days: shale.Cache[tuple[date, int], str] = shale.Cache(None, capacity="8MiB")
    days[date(2026, 1, 31), 1] = "a"
    assert_type(days.get((date(2026, 1, 31), 1)), Union[str, None])


def test_memoized_functions(cache: shale.Cache) -> None:
    class User:
        @cache.memoize
        def age(self, unit: str = "years") -> int:
            return len(unit)

    @cache.memoize(max_age=60)
    def double(number: int) -> int:
        return 2 * number

    assert_type(double(2), int)
    assert_type(double.cache_key(2), shale.Key)
    assert_type(double.invalidate(2), bool)
    assert_type(double.cache_info(), shale.CacheInfo)
    assert_type(double.cache_info().currsize, Union[int, None])
    assert_type(User().age("days"), int)
    assert_type(User().age.cache_info().hits, int)
    User().age.cache_clear()


def test_namespaces_and_coroutines(cache: shale.Cache) -> None:
    users: shale.Namespace[int, str] = cache.namespace("users")
    users[7] = "Ada"
    assert_type(users[7], str)
    assert_type(shale.AsyncCache(users), shale.AsyncCache[int, str])


def test_it_can_be_written_when_the_program_runs() -> None:
    opened = shale.Cache[str, int](None, capacity="8MiB")
    assert_type(opened, shale.Cache[str, int])
    assert type(opened) is shale.Cache
    assert isinstance(opened, shale.Cache)
    made: shale.Cache[str, int] = shale.Cache(None, capacity="8MiB")
    made["a"] = 1
    plain = shale.Cache(None, capacity="8MiB")
    assert_type(plain, shale.Cache)
    assert shale.AsyncCache[str, int](made).cache is made


def refused(cache: shale.Cache[str, int]) -> None:
    cache["a"] = "text"  # type: ignore[assignment]
    cache[b"a"] = 1  # type: ignore[index]
    cache.set("a", b"1")  # type: ignore[arg-type]
    cache.set_many({1: 2})  # type: ignore[arg-type]
    cache.get_or_load(1, int)  # type: ignore[call-overload]
    cache.remove(("a",))  # type: ignore[arg-type]


def refused_keys(cache: shale.Cache[float, int]) -> None:  # type: ignore[type-var]
    """A type that cannot be a key is an error."""


def refused_arguments(cache: shale.Cache) -> None:
    double = cache.memoize(lambda number: 2 * int(number), name="double")
    double.cache_info(1)  # type: ignore[call-arg]
    double.cache_clear(1)  # type: ignore[call-arg]


async def coroutines(cache: shale.AsyncCache[str, int]) -> None:
    assert_type(await cache.get("a"), Union[int, None])
    await cache.set("a", "text")  # type: ignore[arg-type]
