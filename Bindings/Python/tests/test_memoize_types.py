"""A memoized function's results are stored and read by its return type, if the cache's serializer
is one for pydantic or msgspec."""

# mypy: disable-error-code="name-defined,valid-type,type-arg,misc,call-arg"
# (The types are made when it runs.)

from __future__ import annotations

import asyncio
import functools
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Optional, Union

import pytest
from support import SMALL

import shale

pytest.importorskip("msgspec")
pytest.importorskip("pydantic")

from typed_models import MSGSPEC, PYDANTIC, Admin, Library, Order, Page, Plain, User

if TYPE_CHECKING:
    from collections import Counter as OnlyForTypeCheckers


@pytest.fixture(params=[PYDANTIC, MSGSPEC], ids=["pydantic", "msgspec"])
def of(request: pytest.FixtureRequest) -> Library:
    library: Library = request.param
    return library


@pytest.fixture
def typed(directory: Path) -> Iterator[shale.Cache]:
    """A cache of pydantic's models, of which it names none."""
    with shale.Cache(directory, capacity=SMALL, serializer=PYDANTIC.serializer()) as cache:
        yield cache


def function(kind: Any, answer: Callable[[], Any], name: str = "f") -> Any:
    """A function of this return type that counts its calls."""

    def counted() -> Any:
        counted.calls += 1  # type: ignore[attr-defined]
        return answer()

    counted.calls = 0  # type: ignore[attr-defined]
    counted.__annotations__["return"] = kind
    return counted


def test_results_of_a_type(directory: Path, of: Library) -> None:
    user, order = of.user(name="a"), of.order(name="b")
    for number, (kind, value) in enumerate((
        (of.user, user),
        (list[of.user], [user, user]),
        (list[of.user], []),
        (dict[str, of.user], {"a": user}),
        (Optional[of.user], None),
        (Optional[of.user], user),
        (Union[of.user, list[of.order]], [order]),
        (of.page[of.user], of.page[of.user](items=[user])),
        (list[Union[of.user, of.order]], [order, user]),
        (Union[shale.Loaded[list[of.user]], shale.Missing], shale.Loaded([user], meta=b"tag")),
        (Union[list[of.user], shale.Missing], shale.Missing()),
    )):  # fmt: skip
        expected = value.value if isinstance(value, shale.Loaded) else value
        expected = None if isinstance(value, shale.Missing) else expected
        for calls in (1, 0):
            # (As another process: with a serializer that knows none of the types.)
            with shale.Cache(directory, capacity=SMALL, serializer=of.serializer()) as cache:
                plain = function(kind, lambda value=value: value)
                memoized = cache.memoize(plain, name=f"f{number}")
                for _ in range(2):
                    assert memoized() == expected
                    assert type(memoized()) is type(expected)
                assert plain.calls == calls, kind
                assert cache.stats().own.unstored == 0


def test_coroutines_methods_and_partials(typed: shale.Cache) -> None:
    calls: list[str] = []

    class Service:
        def __init__(self) -> None:
            self.prefix = "a"

        @typed.memoize(name="method")
        def users(self, count: int, *, last: str = "b") -> list[User]:
            calls.append("method")
            return [User(name=self.prefix + last)] * count

        @classmethod
        @typed.memoize(name="class")
        def of_class(cls) -> dict[str, User]:
            calls.append("class")
            return {"a": User(name="a")}

        @typed.memoize(name="coroutine")
        async def page(self) -> Page[int]:
            calls.append("coroutine")
            return Page[int](items=[1])

    def plain(count: int, name: str) -> list[User]:
        calls.append("partial")
        return [User(name=name)] * count

    @typed.memoize(name="function of none")
    async def nothing(number: int) -> User | None:
        calls.append("nothing")
        return None

    partial = typed.memoize(functools.partial(plain, name="c"), name="partial")
    with_key = typed.memoize(plain, name="key", key=lambda *_: 1)
    service = Service()
    for _ in range(3):
        assert service.users(1, last="c") == [User(name="ac")]
        assert service.users(0) == []
        assert service.of_class() == Service.of_class() == {"a": User(name="a")}
        assert asyncio.run(service.page()) == Page[int](items=[1])
        assert partial(1) == [User(name="c")]
        assert with_key(1, "x") == [User(name="x")]
        if sys.version_info >= (3, 10):
            assert asyncio.run(nothing(1)) is None
    assert calls.count("method") == 2
    for name, count in {"class": 1, "coroutine": 1, "partial": 2}.items():
        assert calls.count(name) == count


def test_a_class_that_is_defined_later(typed: shale.Cache) -> None:
    calls: list[None] = []

    @typed.memoize(name="late")
    def late(argument: OnlyForTypeCheckers[str] | None = None) -> list[Later]:
        calls.append(None)
        return [globals()["Later"](name="a")]

    @typed.memoize(name="late coroutine")
    async def coroutine() -> list[Later]:
        calls.append(None)
        return [globals()["Later"](name="a")]

    globals()["Later"] = Order
    try:
        for _ in range(2):
            assert late() == [Order(name="a")]
            assert asyncio.run(coroutine()) == [Order(name="a")]
    finally:
        del globals()["Later"]
    assert len(calls) == 2


if TYPE_CHECKING:
    Later = Order


def test_annotations_that_say_nothing(directory: Path) -> None:
    """All is as without an annotation."""
    serializer = PYDANTIC.serializer(User)
    with shale.Cache(directory, capacity=SMALL, serializer=serializer) as cache:
        for number, kind in enumerate((
            "Unknown", "list[Unknown]", "1 +", int, list[int], Any, object, list, list[Any],
            Plain, Optional[Plain], list["Unknown"], "1 / 0", 3,  # noqa: F821
        )):  # fmt: skip
            for value in (User(name="a"), [1], "text", None):
                plain = function(kind, lambda value=value: value)
                memoized = cache.memoize(plain, name=f"f{number} {value}")
                assert memoized() == memoized() == value
                assert plain.calls == 1, kind
        unstorable = function("list[Unknown]", lambda: [User(name="a")])
        memoized = cache.memoize(unstorable, name="unstorable")
        assert memoized() == memoized() == [User(name="a")]
        assert unstorable.calls == 2
        assert cache.stats().own.unstored == 2


def test_other_serializers_ignore_the_type(directory: Path) -> None:
    with shale.Cache(directory, capacity=SMALL, serializer=shale.PickleSerializer()) as cache:
        plain = function(list[User], lambda: {Order(name="a").name: Plain("b")})
        memoized = cache.memoize(plain, name="f")
        assert memoized() == memoized() == {"a": Plain("b")}
        assert plain.calls == 1


@pytest.mark.parametrize("stored_as", ["its own form", "the serializer's"])
def test_a_result_that_does_not_fit(
    typed: shale.Cache, caplog: pytest.LogCaptureFixture, stored_as: str
) -> None:
    """It is returned, logged once, counted, and not stored."""
    value = {"a": 1} if stored_as == "its own form" else [Order(name="a")]
    plain = function(list[User], lambda: value)
    memoized = typed.memoize(plain, name="f")
    with caplog.at_level(logging.WARNING, "shale"):
        assert memoized() == memoized() == value
    assert plain.calls == 2
    assert list(typed) == []
    assert typed.stats().own.unstored == 2
    (record,) = caplog.records
    assert "is not stored" in record.getMessage()
    assert "list[typed_models.User]" in record.getMessage()


def test_a_type_that_has_changed(typed: shale.Cache) -> None:
    """What is stored for another type is a miss, whichever form it has."""
    answers: list[tuple[Any, Any]] = [
        (list[Order], [Order(name="a")]),
        (list[User], [User(name="a")]),
        (dict[str, User], {}),
        (list[User], []),
        (Optional[User], None),
        (User, User(name="b")),
        (dict[str, Optional[User]], {"a": None}),
        (list[User], [User(name="b")]),
    ]
    for kind, value in answers:
        plain = function(kind, lambda value=value: value)
        memoized = typed.memoize(plain, name="f")
        assert memoized() == memoized() == value
        assert plain.calls == 1, kind
        with shale.Cache(typed.directory, serializer=PYDANTIC.serializer()) as other:
            again = other.memoize(plain, name="f")
            assert again() == value
            assert plain.calls == 1


def test_it_is_the_same_for_coroutines(typed: shale.Cache) -> None:
    typed.set(("f", ()), 7)

    @typed.memoize(name="f", refresh_ahead=1, max_age=60)
    async def users() -> list[User]:
        return [User(name="a")]

    assert asyncio.run(users()) == asyncio.run(users()) == [User(name="a")]
    assert users.cache_info()[:2] == (1, 1)


def test_subclasses_that_the_serializer_names(directory: Path) -> None:
    serializer = PYDANTIC.serializer(Admin)
    with shale.Cache(directory, capacity=SMALL, serializer=serializer) as cache:
        plain = function(Optional[User], lambda: Admin(name="a", level=3))
        memoized = cache.memoize(plain, name="f")
        assert memoized() == memoized() == Admin(name="a", level=3)
        assert plain.calls == 1
        assert cache.get(memoized.cache_key()) == Admin(name="a", level=3)


def test_existing_results_stay(directory: Path, of: Library) -> None:
    """What was stored before results had types: by the class, or in Shale's own form."""
    user = of.user(name="a")
    with shale.Cache(directory, capacity=SMALL, serializer=of.serializer(of.user)) as cache:
        for value in (user, None):
            plain = function(Optional[of.user], lambda: pytest.fail("it is loaded"))
            memoized = cache.memoize(plain, name="f")
            cache[memoized.cache_key()] = value
            assert memoized() == value


def test_reading_constructs_only_the_type(typed: shale.Cache) -> None:
    """Bytes that name another type, which the serializer of a further cache knows."""
    plain = function(list[User], lambda: [User(name="mine")])
    memoized = typed.memoize(plain, name="f")
    with shale.Cache(typed.directory, serializer=PYDANTIC.serializer(list[Order])) as other:
        other[memoized.cache_key()] = [Order(name="theirs")]
    assert memoized() == [User(name="mine")]
    assert typed.stats().own.undecodable >= 1


def test_namespaces_and_all_values(directory: Path, of: Library) -> None:
    with shale.Cache(
        directory, capacity=SMALL, serializer=of.serializer(), serialize_all=True
    ) as cache:
        for value in ([of.user(name="a")], [], None):
            plain = function(Optional[list[of.user]], lambda value=value: value)
            memoized = cache.namespace("n").memoize(plain, name=f"f{value}")
            assert memoized() == memoized() == value
            assert plain.calls == 1
