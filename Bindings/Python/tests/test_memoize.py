"""``memoize``: a function's results, by its arguments."""

from __future__ import annotations

import asyncio
import copy
import enum
import functools
import gc
import inspect
import itertools
import math
import pickle
import sys
import threading
import time
import weakref
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from loaders import PATIENCE
from support import SMALL, Clock, run_child
from test_threads import run_threads

import shale
from shale._loading.policy import Policy

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

    @cache.memoize(name="price", max_age=300)
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

    @cache.memoize(name="nothing")
    def nothing() -> None:
        calls.append(None)

    nothing()
    nothing()
    assert len(calls) == 1


def test_an_exception_is_no_result(cache: shale.Cache) -> None:
    results = iter([ValueError("first"), "second"])

    @cache.memoize(name="sometimes")
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

    @cache.memoize(name="slow")
    def slow(number: int) -> int:
        calls.append(number)
        return number

    def work(_thread: int) -> None:
        for number in range(20):
            all_here.wait(PATIENCE)
            assert slow(number) == number

    run_threads(6, work)
    assert calls == list(range(20))


def test_ages_tags_and_stale(aging: shale.Cache, clock: Clock) -> None:
    calls: list[None] = []

    @aging.memoize(name="number", max_age=10, stale=5, tag="numbers")
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

    # Their reprs differ: 1, 1.0, True, "1", b"1", (1,), -0.0.
    assert (key(one) == key(other)) == (repr(one) == repr(other))
    assert (key(a=one) == key(a=other)) == (repr(one) == repr(other))
    assert len({key(one), key(one, one), key((one, one)), key(one=one), key(("one", one))}) == 5


@pytest.mark.parametrize("argument", [object(), memoryview(b"x"), 1j, len, iter(())])
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


def test_a_builtin_function(cache: shale.Cache) -> None:
    class Made:
        length = cache.memoize(len)
        # It has no signature.
        largest = cache.memoize(max, key=lambda *each: each[1:])

    assert cache.memoize(len)("abc") == 3
    made: Any = Made()
    with pytest.raises(TypeError, match="has no len"):
        made.length()
    assert cache.memoize(max, key=lambda *each: each)(1, 2) == 2
    assert made.largest.cache_key(1, 2) == ("builtins.max", (1, 2))
    assert made.largest.__wrapped__.__self__ is made


def test_without_parentheses(cache: shale.Cache) -> None:
    @cache.memoize
    def square(number: int) -> int:
        return number**2

    squared: int = square(3)
    assert squared == square(3) == 9
    assert square.cache_info().misses == 1
    assert square.invalidate(3)
    assert cache.memoize(double, name="d", max_age=5)(2) == 4
    assert asyncio.run(shale.AsyncCache(cache).memoize(later)(1)) == 1
    plain: Any = double
    wrong: Any
    for wrong in ("name", 5, property(plain)):
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

    @cache.memoize(name="query")
    @with_connection
    def query(connection: str, table: str) -> str:
        return f"{table} by {connection}"

    assert query("users") == query("users") == "users by connection"
    assert query.cache_key("users") == ("query", ("users",))


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
        # The module has another object under that name.
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

    @cache.memoize(name="page")
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


def test_cache_info_counts(cache: shale.Cache) -> None:
    @cache.memoize
    def checked(number: int) -> int:
        if number < 0:
            raise ValueError(number)
        return number

    assert checked.cache_info() == shale.CacheInfo(0, 0, None, None)
    assert [checked(number) for number in (1, 1, 2, 1)] == [1, 1, 2, 1]
    for _ in range(2):
        with pytest.raises(ValueError, match="-1"):
            checked(-1)
    info = checked.cache_info()
    assert (info.hits, info.misses, info.maxsize, info.currsize) == (2, 4, None, None)
    assert checked.cache_info() == info == (2, 4, None, None)
    # Another one of the same name counts its own calls.
    assert cache.memoize(checked.__wrapped__).cache_info() == (0, 0, None, None)
    stop = cache.on("hit", lambda _event: None)
    assert checked(1) == 1
    stop()
    with pytest.raises(TypeError):
        checked(object())  # type: ignore[arg-type]
    assert checked.cache_info()[:2] == (3, 4)


def test_cache_info_counts_every_thread(cache: shale.Cache) -> None:
    @cache.memoize
    def number(value: int) -> int:
        return value

    def work(_thread: int) -> None:
        for value in range(2000):
            number(value % 10)
            number.cache_info()

    run_threads(4, work)
    assert number.cache_info()[:2] == (8000 - 10, 10)


def test_cache_info_of_coroutines(cache: shale.Cache) -> None:
    @cache.memoize
    async def number(value: int) -> int:
        await asyncio.sleep(0)
        return value

    async def main() -> None:
        assert await asyncio.gather(*(number(value % 3) for value in range(30)))

    asyncio.run(main())
    assert number.cache_info()[:2] == (27, 3)
    number.cache_clear()
    assert number.cache_info()[:2] == (0, 0)
    assert len(cache) == 0


def test_cache_clear(cache: shale.Cache) -> None:
    users = cache.namespace("users")

    def age(name: str) -> int:
        return len(name)

    ages, in_users = cache.memoize(age), users.memoize(age)
    other, same = cache.memoize(age, name="other"), cache.memoize(age)
    cache["k"] = users["k"] = 1
    for function in (ages, in_users, other, same):
        assert function("Ada") == 3
    ages.cache_clear()
    assert ages.cache_info()[:2] == (0, 0)
    assert set(cache) == {
        "k", ("users", "k"), ("users", in_users.cache_key("Ada")), other.cache_key("Ada")
    }  # fmt: skip
    # Two of one name have the same results.
    assert same.cache_info()[:2] == (1, 0)
    assert same("Ada") == 3
    assert same.cache_info()[:2] == (1, 1)
    in_users.cache_clear()
    assert list(users) == ["k"]


def test_cache_clear_in_all_processes(directory: Path) -> None:
    script = """
        import sys, shale
        with shale.Cache(sys.argv[1], capacity="8MiB") as cache:
            @cache.memoize(name="f")
            def f(number):
                return number
            if sys.argv[2] == "clear":
                f.cache_clear()
            else:
                f(1)
            print(f.cache_info()[:2])
    """
    printed = [run_child(script, directory, what) for what in ("call", "call", "clear", "call")]
    assert printed == ["(0, 1)\n", "(1, 0)\n", "(0, 0)\n", "(0, 1)\n"]


def test_a_result_from_before_cache_clear_is_not_stored(cache: shale.Cache) -> None:
    clears = [True, False]

    @cache.memoize(name="f")
    def function() -> int:
        if clears.pop(0):
            function.cache_clear()
        return 1

    assert function() == 1
    assert len(cache) == 0
    assert function() == 1
    assert len(cache) == 1


def test_memoize_needs_a_tag(cache: shale.Cache) -> None:
    def function() -> int:
        return 1

    tags = [f"tag {number}" for number in range(7)]
    assert cache.memoize(function, tags=tags)() == 1
    assert cache.namespace("n").memoize(function, tags=tags[1:])() == 1
    with pytest.raises(shale.InvalidError, match=r"more than 8 tags: memoize\s+adds one"):
        cache.memoize(function, tags=tags, tag="eighth")
    with pytest.raises(shale.InvalidError, match="namespace"):
        cache.namespace("n").memoize(function, tags=tags)


def test_a_cache_ends_with_its_last_memoized_function(directory: Path) -> None:
    """At once: nothing of the function is in a cycle."""
    cache = shale.Cache(directory, capacity=SMALL)
    functions = [
        cache.memoize(double),
        cache.memoize(later),
        cache.memoize(functools.partial(double, 1)),
        cache.memoize(double, key=lambda number: number),
    ]
    gone = weakref.ref(cache)
    gc.disable()
    try:
        del cache
        assert gone() is not None
        functions.clear()
        assert gone() is None
    finally:
        gc.enable()


def test_refresh_ahead(aging: shale.Cache, clock: Clock) -> None:
    calls: list[int] = []

    def count() -> int:
        calls.append(1)
        return len(calls)

    early = aging.memoize(count, name="early", max_age=100, refresh_ahead=1e9)
    late = aging.memoize(count, name="late", max_age=1000, refresh_ahead=0.001)
    ever = aging.memoize(count, name="ever", max_age=shale.NEVER, refresh_ahead=1e9)
    assert [early() for _ in range(3)] == [1, 2, 3]
    assert {late() for _ in range(100)} == {4}
    assert {ever() for _ in range(100)} == {5}
    clock.advance(999.999)
    assert late() in (4, 6)
    clock.advance(1)
    assert late() > 5
    with aging.namespace("n") as users:
        early = users.memoize(count, name="early", max_age=100, refresh_ahead=1e9)
        calls.clear()
        assert [early() for _ in range(3)] == [1, 2, 3]


def test_times_ahead_are_drawn_as_by_the_library(aging: shale.Cache, clock: Clock) -> None:
    """As many calls reload as an exponential distribution has beyond the rest of the age."""
    aged = Policy(refresh_ahead=2)
    asked = aging._pool.clock
    for left in (0.5, 2, 6):
        expires = (clock() + left) * 1000
        due = sum(aged.least_expiry_ms(asked) > expires for _ in range(20_000)) / 20_000
        assert due == pytest.approx(math.exp(-left / 2), abs=0.02)


def test_only_one_draw_decides(aging: shale.Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not another one, of the library, after it."""
    monkeypatch.setattr("shale._loading.policy._draw", lambda: 1 - 2**-53)
    numbers = itertools.count()
    number = aging.memoize(lambda: next(numbers), name="f", max_age=100, refresh_ahead=5)
    if aging._calls is not None:
        assert [number() for _ in range(3)] == [0, 1, 2]


def test_children_of_fork_draw_other_times() -> None:
    script = """
        import os
        from shale._loading.policy import Policy, _draw

        _draw()
        for _ in range(2):
            if os.fork() == 0:
                print(_draw(), flush=True)
                os._exit(0)
            os.wait()
    """
    one, other = run_child(script).split()
    assert one != other


def test_callers_that_waited_do_not_reload(cache: shale.Cache) -> None:
    """What another has just loaded is not loaded ahead, unless the library's draw says so."""
    started = threading.Barrier(4)

    @cache.memoize(name="f", max_age=1000, refresh_ahead=0.001)
    def slow(number: int) -> int:
        time.sleep(0.01)
        return number

    def work(_thread: int) -> None:
        for number in range(10):
            started.wait(PATIENCE)
            assert slow(number) == number

    run_threads(4, work)
    assert slow.cache_info()[:2] == (30, 10)
