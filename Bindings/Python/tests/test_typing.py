"""What ``Cache[K, V]`` says to a type checker: mypy checks this file, in ``Scripts/lint``, and an
error that is expected and does not come is one too."""

from __future__ import annotations

from collections.abc import Iterator
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
    """What can be no key is none in a type either."""


async def coroutines(cache: shale.AsyncCache[str, int]) -> None:
    assert_type(await cache.get("a"), Union[int, None])
    await cache.set("a", "text")  # type: ignore[arg-type]
