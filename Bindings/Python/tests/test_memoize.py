"""``memoize``: a function's results, by its arguments."""

from __future__ import annotations

import asyncio
import copy
import enum
import functools
import inspect
import pickle
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import SMALL, Clock, run_child
from test_threads import run_threads

import shale

leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.binary(),
    st.sampled_from(["None", "bool", "float", "tuple", "1.5"]),
)
arguments = st.recursive(leaves, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=6)


is_async = inspect.iscoroutinefunction
if sys.version_info < (3, 10):
    is_async = asyncio.iscoroutinefunction


def double(number: int, *, plus: int = 0) -> int:
    return 2 * number + plus


def test_a_call_is_made_once(cache: shale.Cache) -> None:
    calls: list[Any] = []

    @cache.memoize(max_age=300)
    def price(symbol: str, currency: str | None = None) -> str:
        """A price."""
        calls.append((symbol, currency))
        return f"{symbol} in {currency}"

    assert price("A") == price("A") == price(symbol="A") == price("A", None) == "A in None"
    assert price("A", "EUR") == price(currency="EUR", symbol="A") == "A in EUR"
    assert calls == [("A", None), ("A", "EUR")]
    assert price.__name__ == "price"
    assert price.__doc__ == "A price."
    assert price.__wrapped__("B") == "B in None"
    assert len(cache) == 2


def test_none_is_a_result(cache: shale.Cache) -> None:
    calls: list[None] = []

    @cache.memoize()
    def nothing() -> None:
        calls.append(None)

    nothing()
    nothing()
    assert len(calls) == 1


def test_an_exception_is_no_result(cache: shale.Cache) -> None:
    results = iter([ValueError("first"), "second"])

    @cache.memoize()
    def sometimes() -> Any:
        result = next(results)
        if isinstance(result, Exception):
            raise result
        return result

    with pytest.raises(ValueError, match="first"):
        sometimes()
    assert sometimes() == sometimes() == "second"


def test_threads_call_once(cache: shale.Cache) -> None:
    calls: list[int] = []
    all_here = threading.Barrier(6)

    @cache.memoize()
    def slow(number: int) -> int:
        calls.append(number)
        return number

    def work(_thread: int) -> None:
        for number in range(20):
            all_here.wait(30)
            assert slow(number) == number

    run_threads(6, work)
    assert calls == list(range(20))


def test_ages_tags_and_stale(aging: shale.Cache, clock: Clock) -> None:
    calls: list[None] = []

    @aging.memoize(max_age=10, stale=5, tag="numbers")
    def number() -> int:
        calls.append(None)
        return len(calls)

    assert number() == 1
    clock.advance(10)
    assert aging.get(number.cache_key(), stale=True) == 1
    assert number() == 2
    aging.invalidate("numbers")
    assert number() == 3


def test_cache_key_and_invalidate(cache: shale.Cache) -> None:
    doubled = cache.memoize(name="double")(double)
    assert doubled(4) == 8
    assert doubled.cache_key(4) == doubled.cache_key(number=4, plus=0)
    assert cache[doubled.cache_key(4)] == 8
    assert list(cache) == [doubled.cache_key(4)] == [("double", (4,), (("plus", 0),))]
    cache[doubled.cache_key(4)] = 9
    assert doubled(4) == 9
    assert doubled.invalidate(number=4)
    assert not doubled.invalidate(4)
    assert doubled(4) == 8


def test_the_name_is_the_functions(cache: shale.Cache) -> None:
    assert cache.memoize()(double).cache_key(1) == (f"{__name__}.double", (1,), (("plus", 0),))


def test_the_form_of_a_key_stays(cache: shale.Cache) -> None:
    @cache.memoize(name="f")
    def function(*args: Any, named: Any = None, **kwargs: Any) -> None:
        pass

    none = ("None",)
    assert function.cache_key("a", b"b", 1, None, True, 1.5, ("a", None)) == (
        "f",
        ("a", b"b", 1, none, ("bool", 1), ("float", "1.5"), ("tuple", "a", none)),
        (("named", none),),
    )
    assert function.cache_key(b=1, a=2) == function.cache_key(a=2, b=1, named=None)
    assert function.cache_key(b=1, a=2) == ("f", (), (("a", 2), ("b", 1), ("named", none)))
    # As many arguments as there are parameters.
    assert function.cache_key(1, 2, 3) == function.cache_key(1, 2, 3, named=None)


def test_functions_of_one_name_share(cache: shale.Cache) -> None:
    first = cache.memoize(name="shared")(lambda: 1)
    second = cache.memoize(name="shared")(lambda: 2)
    third = cache.memoize(name="own")(lambda: 3)
    assert (first(), second(), third()) == (1, 1, 3)


def test_a_function_without_a_name_needs_one(cache: shale.Cache) -> None:
    with pytest.raises(TypeError, match="name="):
        cache.memoize()(lambda: 1)


@given(arguments, arguments)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_calls_that_differ_have_keys_that_differ(cache: shale.Cache, one: Any, other: Any) -> None:
    @cache.memoize()
    def function(*args: Any, **kwargs: Any) -> None:
        pass

    def key(*args: Any, **kwargs: Any) -> shale.Key:
        found = function.cache_key(*args, **kwargs)
        cache[found] = b""
        assert next(iter(cache)) == found
        cache.remove(found)
        return found

    # Python's own repr tells them apart: 1, 1.0, True, "1", b"1", (1,), -0.0.
    assert (key(one) == key(other)) == (repr(one) == repr(other))
    assert (key(a=one) == key(a=other)) == (repr(one) == repr(other))
    assert len({key(one), key(one, one), key((one, one)), key(one=one), key(("one", one))}) == 5


@pytest.mark.parametrize("argument", [[1], {"a": 1}, {1}, object(), bytearray(b"x"), 1j])
def test_arguments_that_have_no_key(cache: shale.Cache, argument: Any) -> None:
    @cache.memoize()
    def function(value: Any) -> str:
        return "called"

    with pytest.raises(TypeError, match="key="):
        function(argument)
    with pytest.raises(TypeError, match="key="):
        function((1, argument))


def test_a_key_of_ones_own(cache: shale.Cache) -> None:
    class User:
        def __init__(self, number: int) -> None:
            self.number = number

        @cache.memoize(key=lambda self, what: (self.number, what), name="ask")
        def ask(self, what: str) -> str:
            return f"{what} of {self.number}"

    assert User.ask(User(1), "age") == "age of 1"
    assert User.ask.cache_key(User(1), "age") == ("ask", (1, "age"))
    assert list(cache) == [("ask", (1, "age"))]


class User:
    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, User) and self.number == other.number

    def __hash__(self) -> int:
        return self.number


def test_methods(cache: shale.Cache) -> None:
    calls: list[tuple[int, str]] = []

    class Asking(User):
        @cache.memoize(key=lambda self, what: (self.number, what), name="ask")
        def ask(self, what: str) -> str:
            """Asks."""
            calls.append((self.number, what))
            return f"{what} of {self.number}"

        @cache.memoize(key=lambda self, what: (self.number, what), name="later")
        async def later(self, what: str) -> str:
            calls.append((self.number, what))
            return f"{what} of {self.number}, later"

    one, two = Asking(1), Asking(2)
    answer: str = one.ask("age")
    assert answer == one.ask(what="age") == Asking.ask(one, "age") == "age of 1"
    assert two.ask("age") == "age of 2"
    assert calls == [(1, "age"), (2, "age")]
    assert one.ask.cache_key("age") == Asking.ask.cache_key(one, "age") == ("ask", (1, "age"))
    assert one.ask.invalidate("age")
    assert not one.ask.invalidate("age")
    assert two.ask.invalidate(what="age")
    assert one.ask.__wrapped__("age") == "age of 1"
    assert (one.ask.__name__, one.ask.__doc__) == ("ask", "Asks.")
    assert list(inspect.signature(one.ask).parameters) == ["what"]
    assert list(inspect.signature(Asking.ask).parameters) == ["self", "what"]
    assert one.ask == one.ask != two.ask
    assert len({one.ask, one.ask, two.ask}) == 2
    assert is_async(Asking.later)
    assert is_async(one.later)
    assert not is_async(one.ask)
    assert asyncio.run(one.later("age")) == asyncio.run(one.later("age")) == "age of 1, later"
    assert one.later.invalidate("age")


def test_a_bound_method_needs_a_name(cache: shale.Cache) -> None:
    """By its own name, what one object answers would be what all do."""
    bound: Any = User(1).__eq__
    with pytest.raises(TypeError, match="name="):
        cache.memoize()(bound)
    assert cache.memoize(name="eq 1", key=hash)(bound)(User(1))

    class Scope:
        @classmethod
        def double(cls, number: int) -> int:
            return 2 * number

    assert cache.memoize(Scope.double)(4) == 8


def test_a_builtin_function(cache: shale.Cache) -> None:
    class Made:
        length = cache.memoize(len)
        # Its signature is not to be had.
        largest = cache.memoize(max, key=lambda *each: each[1:])

    assert cache.memoize(len)("abc") == 3
    made: Any = Made()
    with pytest.raises(TypeError, match="key="):
        made.length()
    assert cache.memoize(max, key=lambda *each: each)(1, 2) == 2
    assert made.largest.cache_key(1, 2) == ("builtins.max", (1, 2))
    assert made.largest.__wrapped__.__self__ is made


def test_without_parentheses(cache: shale.Cache) -> None:
    calls: list[int] = []

    @cache.memoize
    def square(number: int) -> int:
        calls.append(number)
        return number**2

    squared: int = square(3)
    assert squared == square(3) == 9
    assert calls == [3]
    assert square.invalidate(3)
    assert cache.memoize(double, name="d", max_age=5)(2) == 4
    assert asyncio.run(shale.AsyncCache(cache).memoize(later)(1)) == 1
    plain: Any = double
    wrong: Any
    for wrong in ("name", 5, classmethod(plain)):
        with pytest.raises(TypeError, match="decorates a function"):
            cache.memoize(wrong)


async def later(number: int) -> int:
    return number


def test_the_signature_is_the_functions_own(cache: shale.Cache) -> None:
    def with_connection(function: Any) -> Any:
        @functools.wraps(function)
        def inner(*args: Any) -> Any:
            return function("connection", *args)

        return inner

    @cache.memoize
    @with_connection
    def query(connection: str, table: str) -> str:
        return f"{table} by {connection}"

    assert query("users") == query("users") == "users by connection"
    assert query.cache_key("users")[1] == ("users",)


class Color(enum.IntEnum):
    RED = 1


class Size(enum.IntEnum):
    SMALL = 1


class Kind(str, enum.Enum):
    SMALL = "1"


class Plain(enum.Enum):
    RED = object()


class Bits(enum.Flag):
    ONE = 1
    TWO = 2


def test_members_of_enums_are_themselves(cache: shale.Cache) -> None:
    @cache.memoize(name="f")
    def function(what: object) -> str:
        return repr(what)

    different = [
        1, True, "1", Color.RED, Size.SMALL, Kind.SMALL, Plain.RED, Bits.ONE, Bits.ONE | Bits.TWO,
        Bits(0), (Color.RED,), (Size.SMALL,),
    ]  # fmt: skip
    for _ in range(2):
        assert [function(each) for each in different] == list(map(repr, different))
    assert function.cache_key(Color.RED) == ("f", (("enum", f"{__name__}.Color", "RED"),))


def test_what_is_memoized_is_pickled_by_name(cache: shale.Cache) -> None:
    doubled = cache.memoize(double)
    with pytest.raises(pickle.PicklingError, match=r"double"):
        # It is not what the module has under that name.
        pickle.dumps(doubled)
    assert copy.deepcopy(doubled) is doubled
    script = """
        import pickle, sys
        import shale

        cache = shale.Cache(sys.argv[1], capacity="8MiB")

        class User:
            @cache.memoize(key=lambda self: 1)
            def age(self):
                return 30

        @cache.memoize
        def f(x):
            return x

        assert pickle.loads(pickle.dumps(f)) is f
        assert pickle.loads(pickle.dumps(User().age))() == 30
    """
    run_child(script, str(cache.directory) + "2")


def test_wrong_calls_are_the_functions_errors(cache: shale.Cache) -> None:
    doubled: Any = cache.memoize()(double)
    with pytest.raises(TypeError, match="argument"):
        doubled()
    with pytest.raises(TypeError, match="argument"):
        doubled(1, 2)
    assert len(cache) == 0


def test_generators_are_refused(cache: shale.Cache) -> None:
    def generator() -> Iterator[int]:
        yield 1

    async def async_generator() -> AsyncIterator[int]:
        yield 1

    for function in (generator, async_generator):
        with pytest.raises(TypeError, match="generator"):
            cache.memoize()(function)


def test_processes_share(directory: Path) -> None:
    script = """
        import sys, shale
        with shale.Cache(sys.argv[1], capacity="8MiB") as cache:
            @cache.memoize(name="f")
            def f(a, b=1.5, *, c=None):
                print("called")
                return (a, b, c)
            print(f(("x", True)))
    """
    assert run_child(script, directory).split("\n")[0] == "called"
    assert run_child(script, directory) == "(('x', True), 1.5, None)\n"


def test_async_functions_stay_async(cache: shale.Cache) -> None:
    calls: list[str] = []

    @cache.memoize()
    async def page(url: str) -> str:
        calls.append(url)
        await asyncio.sleep(0.01)
        return url.upper()

    assert is_async(page)

    async def main() -> list[str]:
        return await asyncio.gather(*(page(url) for url in "abab"))

    assert asyncio.run(main()) == ["A", "B", "A", "B"]
    assert asyncio.run(main()) == ["A", "B", "A", "B"]
    assert sorted(calls) == ["a", "b"]
    assert cache[page.cache_key("a")] == "A"
    assert page.invalidate("a")


def test_plain_and_async_functions_share(directory: Path) -> None:
    with shale.Cache(directory, capacity=SMALL) as cache:

        @cache.memoize(name="shared")
        def plain() -> str:
            return "plain"

        @cache.memoize(name="shared")
        async def coroutine() -> str:
            return "coroutine"

        assert plain() == "plain"
        assert asyncio.run(coroutine()) == "plain"
