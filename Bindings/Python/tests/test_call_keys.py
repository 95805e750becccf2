"""The key of a call of a memoized function: arguments, objects, and captured variables."""

from __future__ import annotations

import asyncio
import collections
import enum
import functools
import inspect
import logging
import math
import os
import re
import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PurePosixPath
from typing import Any, Generic, NamedTuple, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies import values
from support import child_environment, run_child

import shale
from shale._data.keys import encode_key
from shale._loading.arguments import part

in_a_cache = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def shape(value: Any) -> Any:
    """What a part distinguishes: types and values, but no order of a dict or a set."""
    if isinstance(value, (list, tuple)):
        return type(value), [shape(item) for item in value]
    if type(value) is OrderedDict:
        return OrderedDict, [(shape(key), shape(item)) for key, item in value.items()]
    if isinstance(value, dict):
        return dict, sorted(repr((shape(key), shape(item))) for key, item in value.items())
    if isinstance(value, (set, frozenset)):
        return type(value), sorted(repr(shape(item)) for item in value)
    if isinstance(value, float):
        return float, "nan" if math.isnan(value) else value.hex()
    return type(value), repr(value)


@given(values, values)
def test_arguments_that_differ_have_parts_that_differ(one: Any, other: Any) -> None:
    assert (encode_key(part(one)) == encode_key(part(other))) == (shape(one) == shape(other))


@in_a_cache
@given(values)
def test_the_stored_result_is_found(cache: shale.Cache, value: Any) -> None:
    """The lookup, in C, and the methods of the cache, in Python, have one key."""

    @cache.memoize(name="f")
    def function(_value: Any) -> str:
        return "called"

    @cache.namespace("n").memoize(name="f")
    def in_namespace(_value: Any) -> str:
        return "called"

    cache[function.cache_key(value)] = "stored"
    cache["n", in_namespace.cache_key(value)] = "stored"
    assert function(value) == in_namespace(value) == "stored"
    assert function.invalidate(_value=value)
    assert in_namespace.invalidate(value)
    cache.clear()


class Color(enum.Enum):
    RED = "red"


class Point(NamedTuple):
    x: int
    y: int


@dataclass
class Money:
    amount: Decimal
    currency: str = "EUR"


BERLIN = ZoneInfo("Europe/Berlin")
NONE = ("None",)

FORMS: list[tuple[Any, Any]] = [
    ([1, "a"], ("list", 1, "a")),
    ((), ("tuple",)),
    ({"b": 1, "a": None}, ("dict", "a", NONE, "b", 1)),
    ({1: "int", "1": "str", (1,): "tuple"}, ("dict", 1, "int", "1", "str", ("tuple", 1), "tuple")),
    ({3, -1, 20}, ("set", 3, 20, -1)),
    (frozenset("ba"), ("frozenset", "a", "b")),
    (-0.0, ("float", "-0.0")),
    (math.nan, ("float", "nan")),
    (Decimal("1.00"), ("Decimal", "1.00")),
    (UUID(int=1), ("UUID", "00000000-0000-0000-0000-000000000001")),
    (date(2026, 1, 31), ("date", "2026-01-31")),
    (timedelta(-1), ("timedelta", -1, 0, 0)),
    (time(12, fold=1), ("time", "12:00:00", 1, NONE)),
    (datetime(2026, 1, 31), ("datetime", "2026-01-31T00:00:00", 0, NONE)),
    (
        datetime(2026, 1, 31, tzinfo=timezone.utc),
        ("datetime", "2026-01-31T00:00:00+00:00", 0, ("timezone", 0, "UTC")),
    ),
    (
        datetime(2026, 1, 31, tzinfo=BERLIN),
        ("datetime", "2026-01-31T00:00:00+01:00", 0, ("ZoneInfo", "Europe/Berlin")),
    ),
    (Path("a/b"), ("PosixPath", "a/b")),
    (PurePosixPath("a/b"), ("PurePosixPath", "a/b")),
    (Color.RED, ("enum", f"{__name__}.Color", "RED")),
    (Color, ("class", f"{__name__}.Color")),
    (shale, ("module", "shale")),
    (Point(1, 2), ("object", f"{__name__}.Point", ("tuple", 1, 2))),
    (
        Money(Decimal(1)),
        ("object", f"{__name__}.Money", "amount", ("Decimal", "1"), "currency", "EUR"),
    ),
    (Fraction(1, 2), ("object", "fractions.Fraction", "_denominator", 2, "_numerator", 1)),
    (collections.Counter("a"), ("object", "collections.Counter", ("dict", "a", 1))),
]


@pytest.mark.parametrize(("argument", "form"), FORMS, ids=lambda each: repr(each)[:30])
def test_the_form_of_an_argument_stays(argument: Any, form: Any) -> None:
    assert part(argument) == form


def test_processes_agree(tmp_path: Path) -> None:
    """Whatever their hash seeds, with the extension and without."""
    script = """
        import sys, test_call_keys, shale
        from shale._data.keys import encode_key

        cache = shale.Cache(sys.argv[1], capacity="8MiB")
        @cache.memoize(name="f")
        def f(argument):
            return "called"
        for argument, _ in test_call_keys.FORMS:
            f(argument)
            f({str(n) for n in range(50)} | {0})
            print(encode_key(f.cache_key(argument)).hex())
        print(f.cache_info().misses)
    """
    printed = [
        run_child(
            script,
            tmp_path / "cache",
            environment=child_environment(PYTHONHASHSEED=seed, SHALE_SPEED=fast),
        ).split()
        for seed, fast in (("1", "1"), ("2", "1"), ("3", "0"))
    ]
    assert printed[0][:-1] == printed[1][:-1] == printed[2][:-1]
    assert len(set(printed[0][:-1])) == len(FORMS)
    assert [each[-1] for each in printed] == [str(len(FORMS) + 1), "0", "0"]


def test_one_moment_in_two_zones_is_two_arguments() -> None:
    noon = datetime(2026, 7, 1, 12, tzinfo=timezone.utc)
    equal = [noon, noon.astimezone(BERLIN), noon.astimezone(ZoneInfo("UTC"))]
    assert len(set(equal)) == 1
    assert len({part(each) for each in equal}) == 3
    repeated = datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN)
    assert part(repeated) != part(repeated.replace(fold=1))
    assert part(timezone(timedelta(0), "GMT")) != part(timezone.utc)


# Objects


class Plain:
    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


class Slotted:
    __slots__ = ("__private", "public")

    def __init__(self, private: Any) -> None:
        self.__private = private


class Both(Slotted):
    def __init__(self, private: Any, own: Any) -> None:
        super().__init__(private)
        self.own = own


T = TypeVar("T")


class Of(Generic[T]):
    pass


class Name(str):
    pass


class Listed(list[Any]):
    extra = 0

    def __iter__(self) -> Iterator[Any]:
        return iter(())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Plain(a=1), Plain(a=2)),
        (Plain(a=1), Plain(a="1")),
        (Plain(a=1), Plain(b=1)),
        (Plain(a=1), Plain(a=1, b=None)),
        (Plain(a=Plain(b=[1])), Plain(a=Plain(b=[2]))),
        (Plain(), Of()),
        (Slotted(1), Slotted(2)),
        (Both(1, 2), Both(1, 3)),
        (Both(1, 2), Both(3, 2)),
        (Slotted(1), Both(1, None)),
        (Name("a"), "a"),
        (Point(1, 2), (1, 2)),
        (Listed([1]), Listed([2])),
        (Listed([1]), [1]),
        (list, dict),
    ],
    ids=repr,
)
def test_objects_that_differ_have_parts_that_differ(one: Any, other: Any) -> None:
    assert encode_key(part(one)) != encode_key(part(other))


def test_objects_of_one_state_have_one_part() -> None:
    assert part(Plain(a=1, b=2)) == part(Plain(b=2, a=1))
    assert part(Both(1, [2])) == part(Both(1, [2]))
    changed = Plain(a=[])
    before = part(changed)
    changed.a.append(1)  # type: ignore[attr-defined]
    assert part(changed) != before


def nested() -> list[Any]:
    inside: list[Any] = []
    inside.append(inside)
    return inside


REFUSED: list[Any] = [
    object(), len, nested, lambda: 1, iter([]), memoryview(b"a"), range(3),
    list[int], re.compile("a"), ValueError("a"), threading.local(), collections.deque([1]),
    collections.defaultdict(int), functools.partial(len, "a"),
    os.stat("."), type("Local", (threading.local,), {})(), type("Mine", (Exception,), {})(),
]  # fmt: skip


@pytest.mark.parametrize("refused", REFUSED, ids=lambda each: type(each).__name__)
def test_an_object_with_hidden_state_has_no_key(cache: shale.Cache, refused: Any) -> None:
    @cache.memoize(name="f")
    def function(argument: Any, *more: Any, named: Any = None) -> str:
        return "called"

    with pytest.raises(TypeError, match=r"argument \(of the type .*\) of .*function: give key="):
        function(refused)
    with pytest.raises(TypeError, match=r"more\[1\]\.held\[0\]\['k'\] \(of the type"):
        function(1, 2, Plain(held=[{"k": refused}]))
    with pytest.raises(TypeError, match=r"named \(of the type"):
        function(1, named=refused)
    with pytest.raises(TypeError, match="key="):
        function({1: refused})
    assert not cache


def test_what_is_in_itself_has_no_key(cache: shale.Cache) -> None:
    function = cache.memoize(lambda argument: 1, name="f")
    parent = Plain()
    parent.child = Plain(parent=parent)  # type: ignore[attr-defined]
    for circle in (nested(), parent):
        with pytest.raises(TypeError, match="nested too deep"):
            function(circle)
    deep: Any = None
    for _ in range(27):
        deep = [deep]

    @cache.namespace("n").memoize
    def named(*, argument: Any = None) -> bool:
        return argument is None and deep is None

    assert not named(argument=deep)
    with pytest.raises(TypeError, match="nested too deep"):
        named(argument=[deep])
    with pytest.raises(TypeError, match="nested too deep"):
        named(argument=[deep[0][0], Listed([deep])])
    # Each takes two levels.
    endless = Listed()
    endless.append(endless)
    many: Any = None
    for _ in range(20):
        many = Listed([many])
    for each in (endless, [endless], many):
        with pytest.raises(TypeError, match="nested too deep"):
            named(argument=each)


def test_other_libraries_objects() -> None:
    numpy = pytest.importorskip("numpy")
    pydantic = pytest.importorskip("pydantic")
    for refused in (numpy.array([1]), numpy.int64(1)):
        with pytest.raises(TypeError):
            part(refused)
    assert part(numpy.float64(1.5)) != part(numpy.float64(2.5))

    class Model(pydantic.BaseModel):  # type: ignore[name-defined, misc]
        number: int

    assert part(Model(number=1)) == part(Model(number=1)) != part(Model(number=2))


# Methods


class Shop:
    rate = 2

    def __init__(self, name: str) -> None:
        self.name = name


def test_methods_without_a_key(cache: shale.Cache) -> None:
    calls: list[Any] = []

    class Selling(Shop):
        @cache.memoize(name="price")
        def price(self, article: str, count: int = 1) -> str:
            calls.append((self.name, article, count))
            return f"{count} {article} of {self.name}"

        @property
        @cache.memoize(name="total")
        def total(self) -> str:
            calls.append(self.name)
            return f"all of {self.name}"

    one, other = Selling("one"), Selling("other")
    assert one.price("a") == one.price("a", 1) == Selling("one").price(article="a") == "1 a of one"
    assert other.price("a") == "1 a of other"
    assert one.total == one.total == "all of one"
    assert other.total == "all of other"
    assert calls == [("one", "a", 1), ("other", "a", 1), "one", "other"]
    one.name = "renamed"
    assert one.price("a") == "1 a of renamed"
    assert one.price.invalidate("a")
    assert not Selling.price.invalidate(one, "a")
    assert one.price.cache_info().misses == 3
    one.lock = threading.Lock()  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match=r"self\.lock \(of the type _thread.lock\).*key="):
        one.price("a")


def test_class_and_static_methods_in_both_orders(cache: shale.Cache) -> None:
    class Base:
        word = "base"

        @classmethod
        @cache.memoize
        def above(cls, number: int) -> str:
            return f"{cls.word} {number}"

        @cache.memoize
        @classmethod
        def below(cls, number: int) -> str:
            return f"{cls.word} {number}"

        @staticmethod
        @cache.memoize
        def static_above(number: int) -> int:
            return number

        @cache.memoize
        @staticmethod
        def static_below(number: int) -> int:
            return number

        @cache.memoize
        @classmethod
        async def later(cls, number: int) -> str:
            return f"{cls.word} {number}"

    class Derived(Base):
        word = "derived"

    for method in ("above", "below"):
        for _ in range(2):
            assert getattr(Base, method)(1) == getattr(Base(), method)(1) == "base 1"
            assert (
                getattr(Derived, method)(1) == getattr(Derived(), method)(number=1) == "derived 1"
            )
        assert getattr(Base, method).cache_info()[:2] == (6, 2)
    below: Any = Base.below
    assert below.cache_key(1) == (f"{__name__}.{below.__qualname__}", (part(Base), 1))
    assert below.invalidate(1)
    for method in ("static_above", "static_below"):
        assert getattr(Base, method)(1) == getattr(Base(), method)(1) == 1
        assert getattr(Base, method).cache_info()[:2] == (1, 1)
        assert getattr(Base(), method).invalidate(1)


def test_bound_methods_and_partials(cache: shale.Cache) -> None:
    """A call of them is one of the function, with the same arguments."""
    one, other = cache.memoize(Money("1").__eq__), cache.memoize(Money("2").__eq__)  # type: ignore[arg-type]
    assert (one(Money("1")), other(Money("1"))) == (True, False)  # type: ignore[arg-type]

    def add(one: int, other: int, *, more: int = 0) -> int:
        return one + other + more

    whole, two = cache.memoize(add), cache.memoize(functools.partial(add, 2, more=1))
    assert (two(3), two(other=4), two(3, more=2), whole(2, 3, more=1)) == (6, 7, 7, 6)
    assert two.cache_key(3) == whole.cache_key(2, 3, more=1)
    assert (two.cache_info().misses, whole.cache_info().misses) == (3, 0)
    with pytest.raises(TypeError, match=r"one \(of the type builtins.object"):
        cache.memoize(functools.partial(add, object()))(1)  # type: ignore[arg-type]

    async def later(one: int, other: int) -> int:
        return one + other

    assert asyncio.run(cache.memoize(functools.partial(later, 1))(2)) == 3
    assert asyncio.run(cache.memoize(later, key=lambda one, other: one)(1, 2)) == 3
    # The name of a builtin's method does not include the object.
    with pytest.raises(TypeError, match="name="):
        cache.memoize("text".upper)
    # What key= returns does not include it, either.
    with pytest.raises(TypeError, match="name="):
        cache.memoize(Shop("a").__eq__, key=lambda other: 1)


# Captured variables


def converter(cache: shale.Cache, rate: Any) -> Any:
    @cache.memoize
    def convert(amount: int) -> str:
        return repr(amount * rate)

    return convert


def test_captured_variables_are_in_the_key(cache: shale.Cache) -> None:
    for rate in (2, 3, Decimal("1.10"), Decimal("1.1"), True, [1], Fraction(1, 3)):
        convert = converter(cache, rate)
        assert convert(2) == convert(2) == repr(2 * rate)
    assert converter(cache, 2).cache_key(5) == (
        f"{__name__}.converter.<locals>.convert",
        (5,),
        (),
        (("rate", 2),),
    )
    assert converter(cache, 2)(2) == "4"


def test_a_captured_variable_that_changes(cache: shale.Cache) -> None:
    rate = 2
    rates = {"EUR": 1}

    @cache.memoize
    def convert(amount: int) -> int:
        return amount * rate * rates["EUR"] + late

    late = 1
    assert convert(10) == 21
    rate = 3
    assert convert(10) == 31
    rates["EUR"] = 2
    assert convert(10) == convert(10) == 61
    late = 0
    assert convert(10) == 60
    assert convert.cache_info()[:2] == (1, 4)


@pytest.mark.parametrize("refused", [object(), len, lambda: 1, Plain(a=[threading.Lock()])])
def test_what_has_no_key_is_not_captured(cache: shale.Cache, refused: Any) -> None:
    with pytest.raises(TypeError, match=r"rate.* \(of the type .*convert captures: .*name=.*key="):
        converter(cache, refused)

    @cache.memoize
    def late() -> object:
        return assigned

    assigned = refused
    with pytest.raises(TypeError, match=r"assigned.*late captures"):
        late()
    assert cache.memoize(lambda: bool(refused), name="late")()


def test_names_and_keys_say_that_captured_variables_do_not_matter(cache: shale.Cache) -> None:
    def make(rate: int, **options: Any) -> Any:
        @cache.memoize(**options)
        def convert(amount: int) -> int:
            return amount * rate

        return convert

    assert (make(2, name="two")(1), make(3, name="three")(1)) == (2, 3)
    assert make(4, name="two")(1) == 2
    assert (make(5, key=lambda amount: amount)(1), make(6, key=lambda amount: amount)(1)) == (5, 5)


def test_a_function_that_calls_itself(cache: shale.Cache) -> None:
    def logged(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(*args: Any) -> Any:
            return function(*args)

        return wrapper

    @cache.memoize
    def fibonacci(number: int) -> int:
        return number if number < 2 else fibonacci(number - 1) + fibonacci(number - 2)

    def factorial(number: int) -> int:
        return number * factorial(number - 1) if number else 1

    @logged
    @cache.memoize
    def wrapped(number: int) -> int:
        return number * wrapped(number - 1) if number else 1

    assert fibonacci(30) == 832040
    assert fibonacci.cache_info().misses == 31
    assert cache.memoize(factorial)(20) == math.factorial(20)
    # What wraps it may do anything.
    with pytest.raises(TypeError, match=r"wrapped \(of the type builtins.function\), which"):
        wrapped(20)


def test_super_in_a_method(cache: shale.Cache) -> None:
    class Named(Shop):
        @cache.memoize
        def text(self) -> str:
            return super().__repr__()[:1] + self.name

    assert Named("a").text() == Named("a").text() == "<a"
    assert Named.text.cache_info().misses == 1


def test_wrappers_are_refused(cache: shale.Cache) -> None:
    def doubled(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(*args: Any) -> Any:
            return 2 * function(*args)

        return wrapper

    def one() -> int:
        return 1

    for wrapper in (doubled(one), functools.lru_cache(one), cache.memoize(one)):
        with pytest.raises(TypeError, match=r"one is a wrapper .*that function itself.*name="):
            cache.memoize(wrapper)
    assert cache.memoize(doubled(one), name="doubled")() == 2
    assert cache.memoize(one)() == 1


def test_a_call_that_changes_its_key_is_warned_of(
    cache: shale.Cache, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[int] = []

    @cache.memoize
    def counted(number: int) -> int:
        calls.append(number)
        return number

    @cache.memoize(name="sort")
    def sort(numbers: list[int]) -> list[int]:
        numbers.sort()
        return numbers

    with caplog.at_level(logging.WARNING, "shale"):
        assert sort([1, 2]) == [1, 2]
        assert not caplog.records
        for _ in range(3):
            assert (counted(1), sort([2, 1])) == (1, [1, 2])
    assert calls == [1, 1, 1]
    (first, second) = caplog.records
    assert "counted" in first.getMessage()
    assert "name=" in first.getMessage()
    assert "sort" in second.getMessage()


# Binding, as in a call


PARAMETERS = [
    "a",
    "a, b=1",
    "a, /, b=1",
    "a=1, /, b=2, *, c=3",
    "*args",
    "a, *args, b, c=[], **kwargs",
    "*, a=None, **kwargs",
    "type, map=len, name=2, key=3, answer=4, self=5, cls=6, _=7, __=8",
    "**a",
    "",
]


@pytest.mark.parametrize("parameters", PARAMETERS)
@given(
    st.lists(st.integers(0, 2) | st.lists(st.none(), max_size=1), max_size=4),
    st.dictionaries(st.sampled_from(["a", "b", "c", "d", "self", "type"]), st.integers(0, 2)),
)
@settings(in_a_cache, max_examples=40)
def test_arguments_are_bound_as_in_a_call(
    cache: shale.Cache, parameters: str, args: Any, kwargs: Any
) -> None:
    scope: dict[str, Any] = {"len": 7}
    exec(f"def function({parameters}): return sorted(locals().items(), key=str)", scope)
    function = scope["function"]
    memoized = cache.memoize(function, name=f"f({parameters})")
    try:
        expected = function(*args, **kwargs)
    except TypeError as error:
        with pytest.raises(TypeError, match=re.escape(str(error))):
            memoized(*args, **kwargs)
        return
    assert memoized(*args, **kwargs) == expected
    bound = inspect.signature(function).bind(*args, **kwargs)
    bound.apply_defaults()
    assert memoized.cache_key(*args, **kwargs)[1] == tuple(map(part, bound.args))
    assert memoized(*bound.args, **bound.kwargs) == expected
    assert memoized.__wrapped__(*args, **kwargs) == expected


def test_a_default_is_read_at_the_call(cache: shale.Cache) -> None:
    mutable = [1]

    def function(values: list[int] = mutable) -> int:
        return sum(values)

    memoized = cache.memoize(function)
    assert memoized() == 1
    mutable.append(2)
    assert memoized() == 3
