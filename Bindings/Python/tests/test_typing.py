"""The types of ``Cache[K, V]``: mypy and pyright check this file, in ``Scripts/lint``. An expected
error that is missing is an error too."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any, Generic, Optional, TypeVar, Union, overload

import shale

if TYPE_CHECKING:
    from typing_extensions import assert_type

    from shale.serializers import MsgspecSerializer, PydanticSerializer
else:

    def assert_type(value: Any, _kind: Any) -> Any:
        return value


T = TypeVar("T")


@dataclass
class User:
    name: str


@dataclass
class Page(Generic[T]):
    items: list[T]


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
    @cache.memoize(name="double")
    def double(number: int, *, plus: int = 0) -> int:
        return 2 * number + plus

    double("a")  # type: ignore[arg-type]
    double(1, 2)  # type: ignore[call-arg]
    double.invalidate(number="a")  # type: ignore[arg-type]
    double.cache_info(1)  # type: ignore[call-arg]
    double.cache_clear(1)  # type: ignore[call-arg]


async def coroutines(cache: shale.AsyncCache[str, int]) -> None:
    assert_type(await cache.get("a"), Union[int, None])
    await cache.set("a", "text")  # type: ignore[arg-type]


class Service:
    """Methods of all kinds, of a cache that is made before."""

    cache: shale.Cache = shale.Cache(None, capacity="8MiB")

    @cache.memoize(max_age=60)
    def users(self, team: str, *, limit: int = 10) -> list[User]:
        return [User(team)][:limit]

    @cache.memoize
    async def page(self, number: int) -> Page[User] | None:
        return Page([]) if number else None

    @staticmethod
    @cache.memoize(name="static")
    def by_name() -> dict[str, User]:
        return {}


def memoized_methods(service: Service) -> None:
    assert_type(service.users("a"), list[User])
    assert_type(service.users("a", limit=1), list[User])
    assert_type(service.users.cache_key("a", limit=1), shale.Key)
    assert_type(service.users.invalidate("a"), bool)
    assert_type(Service.users(service, "a"), list[User])
    assert_type(Service.by_name(), dict[str, User])
    service.users("a", 1)  # type: ignore[call-arg]
    service.users(1)  # type: ignore[arg-type]
    service.users.invalidate()  # type: ignore[call-arg]


async def memoized_coroutines(service: Service, cache: shale.AsyncCache) -> None:
    assert_type(await service.page(1), Union[Page[User], None])
    assert_type(service.page.invalidate(1), bool)

    @cache.memoize(max_age=60)
    async def users(*names: str) -> list[User]:
        return [User(name) for name in names]

    assert_type(await users("a", "b"), list[User])
    await users(1)  # type: ignore[arg-type]


async def loads(cache: shale.Cache[str, User], loop: shale.AsyncCache[str, list[User]]) -> None:
    def load() -> User:
        return User("a")

    def load_with_age() -> shale.Loaded[User]:
        return shale.Loaded(User("a"), max_age=60)

    def load_or_miss() -> Union[User, shale.Missing]:
        return shale.Missing()

    async def load_all() -> list[User]:
        return []

    assert_type(cache.get_or_load("a", load), User)
    assert_type(cache.get_or_load("a", load_with_age), User)
    assert_type(cache.get_or_load("a", load_or_miss, max_age=60), User)
    assert_type(cache.entry_or_load("a", lambda old: old), shale.LoadResult)
    assert_type(await loop.get_or_load("a", load_all), list[User])
    assert_type(await loop.get("a"), Union[list[User], None])
    assert_type(await loop.get("a", ()), Union[list[User], tuple[()]])
    cache.set("a", User("b"), max_age=60, tag="t")
    cache.set("a", [User("b")])  # type: ignore[arg-type]
    await loop.set("a", User("b"))  # type: ignore[arg-type]
    cache.get_or_load("a", load, no_option=1)  # type: ignore[call-overload]


def typed_serializers() -> None:
    """Any type expression is an argument."""
    for serializer in (
        PydanticSerializer(User, list[User], Optional[User], Union[User, Page[int]], Page[User]),
        MsgspecSerializer(User, dict[str, User], tuple[User, ...], Optional[Page[User]]),
        MsgspecSerializer(),
    ):
        kept: shale.Serializer = serializer
        users: shale.Cache[str, list[User]] = shale.Cache(None, serializer=kept)
        assert_type(users["a"], list[User])
        users["a"] = [User("a")]
        users["a"] = User("a")  # type: ignore[assignment]


@overload
def chosen(number: int) -> int: ...
@overload
def chosen(number: str) -> str: ...
def chosen(number: Union[int, str]) -> Union[int, str]:
    return number


def overloaded(cache: shale.Cache) -> None:
    """A ParamSpec has one signature: both checkers take the first of an overloaded function."""
    memoized = cache.memoize(chosen)
    assert_type(memoized(1), int)
