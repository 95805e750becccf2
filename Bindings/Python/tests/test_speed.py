"""The extension in C has the results of the modules in Python, and releases the GIL."""

from __future__ import annotations

import gc
import inspect
import pickle
import sys
import sysconfig
import threading
import weakref
from collections import OrderedDict
from contextlib import suppress
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from time import thread_time
from typing import Any, Callable
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from loaders import PATIENCE
from strategies import ZONES, keys, value_shape, values
from support import SMALL, child_environment, run_child
from test_threads import run_threads

import shale
from shale._data import packed
from shale._data import values as values_module
from shale._data.keys import encode_key
from shale._native.extension import speed
from shale._store import iteration

needs_it = pytest.mark.skipif(speed is None, reason="there is no extension here")


def python_form(value: Any) -> tuple[bytes, bytes]:
    """The result of `Codec.encode` without the extension."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(values_module, "speed", None)
        return values_module.Codec(None).encode(value)


containers = st.one_of(
    values,
    st.lists(values, max_size=5),
    st.dictionaries(st.text(max_size=5), values, max_size=5),
    st.lists(values, max_size=3).map(tuple),
)

JSON_EDGES = [
    [],
    {},
    [[]],
    [{}],
    {"": []},
    ['\x00\x1f\x7f"\\/\b\f\n\r\t\x0b'],
    ["é", "\U0001f600", "\u2028"],
    ["\ud800"],
    [0, -1, 2**63 - 1, -(2**63), 2**63, 10**17, 10**18, 10**640],
    [0.0, -0.0, 1e16, 1e-7, 5e-324, 1.7976931348623157e308, 0.1, float("inf")],
    ["1" * 640],
    ["1" * 639],
    [True, False, None],
    {"a": {"b": {"c": [1, 2.5, "x"]}}},
    [10**639],
    {"k": 1, "": 2},
    [float("nan")],
    ["x" * 2000, "ü" * 2000],
]

PACKED_EDGES = [
    (),
    ((),),
    (1, 127, 128, -128, -129, 255, 256, 2**63 - 1, -(2**63), 2**63, -(2**63) - 1, 0),
    (b"", b"x" * 200, "x" * 2000, "\ud800"),
    (1.5, float("inf"), -0.0),
    {1: 2, (3,): [4]},
    [b"bytes"],
    [({"a": (b"",)},)],
    ({1, 2}, frozenset([3])),
    {b"k": None},
    [(True, False, None)],
    {"day": date(2026, 1, 31), "at": datetime(2026, 1, 31, 1, 2, 3, 4)},
    [datetime(1, 1, 1, tzinfo=timezone.utc), datetime(9999, 12, 31, fold=1)],
    [datetime(1, 1, 1, tzinfo=each) for each in ZONES],
    [time(1, 2, 3, 4, fold=1), time(tzinfo=timezone.utc)],
    [timedelta(-1), timedelta.max, timedelta.min, timedelta(microseconds=1)],
    [Decimal("1E+5"), Decimal("-0.10"), Decimal("NaN"), Decimal("-Infinity"), Decimal("sNaN123")],
    [UUID(int=2**127), UUID(int=0)],
    [{str(n) for n in range(300)}, set(), {"b" * 200, "b", ""}, frozenset([(), (1,), b"b"])],
    {"deep": {frozenset([frozenset([frozenset()])])}},
    [OrderedDict([(2, 1), (1, {2})]), OrderedDict(), bytearray(), bytearray(b"ab" * 100)],
    date(1, 1, 1),
    {1, 2},
    Decimal(1),
    bytearray(b"a"),
]
MOVED: OrderedDict[str, int] = OrderedDict.fromkeys("abc", 1)
MOVED.move_to_end("a")
PACKED_EDGES += [MOVED, [MOVED]]


@needs_it
@pytest.mark.parametrize("value", [*JSON_EDGES, *PACKED_EDGES], ids=lambda value: repr(value)[:20])
def test_edges_have_the_same_form(value: Any) -> None:
    codec = values_module.Codec(None)
    meta, data = codec.encode(value)
    assert (meta, data) == python_form(value)
    assert value_shape(codec.decode(meta, data)) == value_shape(value)


@needs_it
@given(containers)
def test_values_have_the_same_form(value: Any) -> None:
    codec = values_module.Codec(None)
    meta, data = codec.encode(value)
    assert (meta, data) == python_form(value)
    assert value_shape(codec.decode(meta, data)) == value_shape(value)


SHARED: list[Any] = [
    each
    for n in range(3)
    for each in (
        Decimal(n), Decimal(-n), date(2026, 1, n + 1), timedelta(n), timedelta(0, n), UUID(int=n),
        datetime(2026, 1, 1, n), datetime(2026, 1, 1, n, tzinfo=timezone.utc),
        datetime(2026, 1, 1, n, tzinfo=ZONES[-1]), time(n), Decimal("1E+5"), date(2026, 1, 2),
    )
]  # fmt: skip
KEYS = [f"{'k' * (n % 5)}{n}{'é' * (n % 20)}" for n in range(300)]
REPEATED: list[Any] = [
    [SHARED, SHARED[::-1], [each for each in SHARED for _ in range(3)]],
    # The forms in a set are moved.
    [[*SHARED, set(SHARED), *SHARED, frozenset(SHARED[:3]), *SHARED[::-1]] * 2],
    [[{each, "z" * 50}, each] for each in SHARED],
    [dict.fromkeys(KEYS, 1), dict.fromkeys(KEYS[::-1], "é")] * 2,
    [dict.fromkeys(KEYS, b"1"), dict.fromkeys(KEYS[::-1], (2,))] * 2,
    [{"": 1, "a": {"a": "a"}, "\ud800": n, '"\\': n, "ab": n, "ba": n} for n in range(50)],
    [{"": b"", "a": {"a": "a"}, "\ud800": n, '"\\': n, "ab": n} for n in range(50)],
    # The beginning of a key that has the same place.
    [{"idcah": n, "id": n, "keycad": n, "key": n} for n in range(20)],
    [{"idcah": b"", "id": n, "keycad": n, "key": n} for n in range(20)],
]


@needs_it
@pytest.mark.parametrize("value", REPEATED)
def test_what_occurs_again_has_the_same_form(value: Any) -> None:
    codec = values_module.Codec(None)
    meta, data = codec.encode(value)
    assert (meta, data) == python_form(value)
    assert value_shape(codec.decode(meta, data)) == value_shape(value)


def nested(depth: int, last: Any) -> Any:
    for _ in range(depth):
        last = [last]
    return last


@needs_it
@pytest.mark.parametrize("last", [1, b"1"])
@pytest.mark.parametrize("depth", [199, 200, 201, 100_000])
def test_depth_is_the_same(depth: int, last: Any) -> None:
    value = nested(depth, last)
    if depth > 200:
        with pytest.raises(shale.InvalidError, match="200"):
            values_module.Codec(None).encode(value)
    else:
        assert values_module.Codec(None).encode(value) == python_form(value)
    while type(value) is list:
        (value,) = value  # its own end would be too deep


JSON_TEXTS = [
    b"",
    b" ",
    b"[",
    b"]",
    b"[1",
    b"[1,",
    b"[1,]",
    b"[1 ]",
    b" [1]",
    b"[01]",
    b"[-]",
    b"[-0]",
    b"[1.]",
    b"[.5]",
    b"[1e]",
    b"[1e5]",
    b"[1E+2]",
    b"[-1.5e-3]",
    b"[1-2]",
    b"[1+2]",
    b"[1.2.3]",
    b"[+1]",
    b"[NaN]",
    b"[Infinity]",
    b"[1e400]",
    b"[nul]",
    b"[tru]",
    b'["a\\u00e9\\n"]',
    b'["\\ud800"]',
    b'["\x01"]',
    b'["a]',
    b'{"a":1,"a":2}',
    b'{"a"}',
    b'{"a":}',
    b"{a:1}",
    b"{1:2}",
    b"{,}",
    b'["\xff"]',
    b'["\xed\xa0\x80"]',
    b"[123456789012345678]",
    b"[1234567890123456789]",
    b"[123456789012345678901234567890]",
    b"[1][2]",
    b"[" * 300 + b"]" * 300,
    b"[1" + b"0" * 70 + b"]",
    b"[0." + b"1" * 70 + b"]",
    b'"text"',
    b"null",
    b"7",
    b'[""]',
    b"[null,true,false]",
    b"[--1]",
    b"[1\x00]",
]


PACKED_FORMS = [
    b"",
    b"l",
    b"l\x01",
    b"l\xff\xff\xff\xff\xff\x7f",
    b"t\xff\xff\xff\xff\x7f",
    b"d\xff\xff\xff\x7f",
    b"s\x05abc",
    b"b\x05abc",
    b"i\x05abc",
    b"i\x00",
    b"i\x09" + bytes(9),
    b"s\x01\xff",
    b"f1234567",
    b"l\x80\x00",
    b"l" + b"\x80" * 9,
    b"q",
    b"\x00",
    b"NN",
    b"d\x01l\x00N",
    b"D\x01",
    b"S\x02NN",
    b"m\x05ab",
    b"m\x031_0",
    b"m\x041e+3",
    b"m\x02\xff\xff",
    b"m\x09NaN999999",
    b"m\x0e1E+99999999999",
    b"D\x00\x00\x01\x01",
    b"D\xff\xff\x01\x01",
    b"D\x01\x00\x0d\x01",
    b"D\x01\x00\x02\x1e",
    b"w\x01\x00\x01\x01\x18" + bytes(7) + b"n",
    b"w\x01\x00\x01\x01" + bytes(3) + b"\xff" * 4 + b"\0n",
    b"w\x01\x00\x01\x01" + bytes(8),
    b"w\x01\x00\x01\x01" + bytes(8) + b"o" + bytes(7),
    b"w\x01\x00\x01\x01" + bytes(7) + b"\x01o" + bytes(8),
    b"w\x01\x00\x01\x01" + bytes(7) + b"\x02n",
    b"w\x01\x00\x01\x01" + bytes(8) + b"o" + b"\x7f" * 8,
    b"w\x01\x00\x01\x01" + bytes(8) + b"z\x06no/way",
    b"c\x18" + bytes(7) + b"n",
    b"c" + bytes(8) + b"z\x03UTC",
    b"c" + bytes(8),
    b"v" + bytes(11),
    b"v" + b"\xff" * 12,
    b"v\xff\xff\xff\x7f" + bytes(8),
    b"v" + bytes(4) + b"\x80\x51\x01\x00" + bytes(4),
    b"u" + bytes(15),
    b"S\x02i\x01\x01i\x01\x01",
    b"S\x01l\x00",
    b"Z\x01S\x00",
    b"Z\x02TF",
    b"S\x01m\x04sNaN",
    b"S" * 300,
    b"O\x02s\x01aNs\x01aT",
    b"O\x01l\x00N",
    b"O\x01N",
    b"B\x05abc",
]


@needs_it
@pytest.mark.parametrize("data", PACKED_FORMS, ids=lambda data: repr(data)[:20])
def test_forms_of_others_are_read_the_same(data: bytes) -> None:
    assert outcome(speed.unpack, data) == outcome(packed.unpack, data)


@needs_it
@pytest.mark.parametrize("letter", ["t", "l"])
def test_a_count_that_is_not_true_takes_no_memory(letter: str) -> None:
    script = """
        import resource, sys
        import shale
        from shale._native.extension import speed
        from shale._data.varint import size_bytes

        resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
        head = sys.argv[1].encode() + size_bytes(2_000_000)
        try:
            speed.unpack(199 * head + bytes(2_100_000))
        except ValueError:
            print("ValueError")
    """
    assert run_child(script, letter) == "ValueError\n"


def outcome(function: Any, data: bytes) -> Any:
    try:
        return value_shape(function(data))
    except ValueError:
        return "ValueError"
    except RecursionError:
        return "RecursionError"


@needs_it
@pytest.mark.parametrize("data", JSON_TEXTS, ids=lambda data: repr(data)[:20])
def test_json_of_others_is_read_the_same(data: bytes) -> None:
    assert outcome(speed.loads, data) == outcome(values_module.decode_json, data)


@needs_it
@given(containers, st.data())
def test_damaged_forms_are_read_the_same(value: Any, draw: Any) -> None:
    form = bytearray(packed.pack(value))
    if draw.draw(st.booleans()):
        form[draw.draw(st.integers(0, len(form) - 1))] = draw.draw(st.integers(0, 255))
    data = bytes(form[: draw.draw(st.integers(0, len(form)))])
    assert outcome(speed.unpack, data) == outcome(packed.unpack, data)


@needs_it
@given(st.binary(max_size=40))
def test_any_bytes_are_read_the_same(data: bytes) -> None:
    assert outcome(speed.unpack, data) == outcome(packed.unpack, data)
    assert outcome(speed.loads, data) == outcome(values_module.decode_json, data)


KEY_EDGES = [
    "",
    "k",
    "é" * 300,
    "\ud800",
    b"\xff",
    b"\xffP1",
    b"\xffP1s",
    b"\xffP1sx",
    b"\xffP",
    b"x" * 600,
    0,
    -1,
    127,
    128,
    255,
    256,
    -128,
    -129,
    2**63 - 1,
    -(2**63),
    2**63,
    10**30,
    (),
    ((),),
    ("a", 1, b"b", ("c",)),
    ("x" * 200, "y" * 20000),
]


@needs_it
@given(keys)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_keys_are_the_same(cache: shale.Cache, key: Any) -> None:
    check_key(cache, key)


@needs_it
@pytest.mark.parametrize("key", KEY_EDGES, ids=lambda key: repr(key)[:20])
def test_edges_of_keys_are_the_same(cache: shale.Cache, key: Any) -> None:
    check_key(cache, key)


def check_key(cache: shale.Cache, key: Any) -> None:
    cache.clear()
    if key == b"":
        return
    cache.set(key, 1)
    stored = encode_key(key)
    (found,) = (each for each, _, _ in iteration._walk(cache._pool, 0))
    assert found == stored
    assert cache.get(key) == 1
    assert cache.get_many([key]) == {key: 1}
    assert cache._get_slowly(key) == 1  # type: ignore[attr-defined]


@needs_it
@pytest.mark.parametrize("bad", [True, 1.0, None, [], (1, None), ("a", (2.0,))])
def test_bad_keys_are_refused(cache: shale.Cache, bad: Any) -> None:
    for call in (
        lambda: cache.get(bad),
        lambda: cache.set(bad, 1),
        lambda: cache.get_many([bad]),
        lambda: cache.__setitem__(bad, 1),
    ):
        with pytest.raises(TypeError, match="a key is"):
            call()


@needs_it
@given(values)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_values_come_back(cache: shale.Cache, value: Any) -> None:
    cache.set("fast", value)
    cache._set_slowly("slow", value)  # type: ignore[attr-defined]
    fast, slow = cache.entry("fast"), cache.entry("slow")
    assert fast is not None
    assert slow is not None
    assert (fast.meta, value_shape(fast.value)) == (slow.meta, value_shape(slow.value))
    for name in ("fast", "slow"):
        assert value_shape(cache.get(name)) == value_shape(value)
        assert value_shape(cache.get_many([name])[name]) == value_shape(value)


@needs_it
def test_its_calls_are_made(cache: shale.Cache) -> None:
    """And not those of Python."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_get_slowly", "_set_slowly", "_store"):
            patch.setattr(shale.Cache, name, None)
        for value in (b"bytes", "text", 1, 2.5, None, True, [1, "a"], (1, b"2"), {"a": [None]}):
            assert cache.set("k", value)
            assert cache.get("k") == value
            cache["k"] = value
            assert cache["k"] == value
            assert cache.get("none", 7) == 7
    stats = cache.stats()
    assert (stats.hits, stats.misses, stats.sets) == (18, 9, 18)


@needs_it
def test_methods_say_what_they_do() -> None:
    assert str(inspect.signature(shale.Cache.get)) == (
        "(self, /, key, default=None, *, stale=False, peek=False)"
    )
    assert "if_version=None" in str(inspect.signature(shale.Cache.set))
    for name in ("get", "set"):
        ours, theirs = getattr(shale.Cache, name), getattr(shale.Cache, f"_{name}_slowly")
        assert inspect.getdoc(ours) == inspect.getdoc(theirs)


@needs_it
def test_a_batch_in_a_batch(directory: Path) -> None:
    """A serializer may use the cache while a batch is decoded."""

    class Reading(shale.PickleSerializer):
        def loads(self, data: bytes) -> Any:
            assert opened.get_many(["plain", "none"]) == {"plain": 1}
            return super().loads(data)

    with shale.Cache(directory, capacity=SMALL, serializer=Reading()) as opened:
        opened.set_many({"a": 1j, "b": 2j, "plain": 1})
        assert opened.get_many(["a", "b"]) == {"a": 1j, "b": 2j}


@needs_it
def test_a_serializer_that_closes_the_cache(directory: Path) -> None:
    class Closing(shale.PickleSerializer):
        def loads(self, data: bytes) -> Any:
            opened.close()
            return super().loads(data)

    opened = shale.Cache(directory, capacity=SMALL, serializer=Closing())
    opened["a"] = 1j
    assert opened["a"] == 1j
    for call in (
        lambda: opened.get("a"),
        lambda: opened.set("a", 1),
        lambda: opened.get_many(["a"]),
    ):
        with pytest.raises(shale.InvalidError, match="the cache is closed"):
            call()
    # The handle is closed: another capacity is refused while it is open.
    shale.Cache(directory, capacity="4MiB").close()


@needs_it
def test_what_a_serializer_raises(directory: Path) -> None:
    class Failing(shale.PickleSerializer):
        def dumps(self, value: Any) -> bytes:
            raise ZeroDivisionError

        def loads(self, data: bytes) -> Any:
            raise MemoryError

    with shale.Cache(directory, capacity=SMALL, serializer=shale.PickleSerializer()) as cache:
        cache["a"] = 1j
    with shale.Cache(directory, serializer=Failing()) as cache:
        with pytest.raises(ZeroDivisionError):
            cache.set("k", 1j)
        for call in (lambda: cache.get("a"), lambda: cache.get_many(["a"])):
            with pytest.raises(MemoryError):
                call()
        assert cache.get("k") is None


@needs_it
def test_errors_of_the_library(cache: shale.Cache) -> None:
    with pytest.raises(shale.TooLargeError, match="a quarter of its capacity"):
        cache.set("k", bytes(5_000_000))
    with pytest.raises(shale.TooLargeError, match="key"):
        cache.get(b"k" * 70_000)
    with pytest.raises(TypeError, match="a value is"):
        cache.set("k", object())
    with pytest.raises(TypeError, match="a value is"):
        cache["k"] = [object()]


@needs_it
def test_a_cache_that_nobody_holds_is_gone_at_once(directory: Path) -> None:
    cache = shale.Cache(directory, capacity=SMALL)
    cache["k"] = 1
    gone = weakref.ref(cache)
    gc.disable()
    try:
        del cache
        assert gone() is None
        shale.Cache(directory, capacity="4MiB").close()
    finally:
        gc.enable()


@needs_it
def test_a_cycle_through_the_serializer_is_collected(directory: Path) -> None:
    class Holding(shale.PickleSerializer):
        cache: Any = None

    serializer = Holding()
    serializer.cache = shale.Cache(directory, capacity=SMALL, serializer=serializer)
    gone = weakref.ref(serializer.cache)
    del serializer
    gc.collect()
    assert gone() is None


@needs_it
def test_nothing_is_leaked(cache: shale.Cache) -> None:
    """The references that each path through the extension takes."""
    key, value, default = "a key" * 3, "a value" * 3, object()
    batch = [key, "none"]

    def once() -> None:
        cache.set(key, value)
        cache[key] = value
        cache.get(key, default)
        cache.get("none", default)
        cache.get_many(batch)
        cache.get(key, default, peek=True)
        cache.set(key, value, max_age=5)
        cache.get_or_load(key, int)
        for bad in (1.5, [key]):
            with suppress(TypeError):
                cache.get(bad)  # type: ignore[call-overload]
        for form in ([key, value, 1, 2.5, None], (key, (value,)), {key: [value]}):
            cache.set("form", form)
            cache.get("form")

    for _ in range(10):
        once()
    gc.collect()
    held = key, value, default, batch, None, True, cache, cache._calls, type(cache)
    before = [sys.getrefcount(each) for each in held]
    blocks = sys.getallocatedblocks()
    for _ in range(1000):
        once()
    gc.collect()
    after = [sys.getrefcount(each) for each in held]
    assert all(later - earlier < 100 for earlier, later in zip(before, after))
    assert sys.getallocatedblocks() - blocks < 900


# A function that waits for another thread replaces the library's functions; the other thread checks
# that a call runs, for which it needs the GIL.
WAITING = """
    import ctypes, sys, threading, time
    from shale._native import library
    from shale._native.extension import speed

    libc = ctypes.CDLL(None)
    semaphore = ctypes.create_string_buffer(64)
    assert libc.sem_init(semaphore, 0, 0) == 0
    wait = ctypes.cast(libc.sem_wait, ctypes.c_void_p).value
    free = ctypes.cast(library.value_free, ctypes.c_void_p).value
    speed.setup(wait, wait, wait, free, *8 * [None])

    class Waiting(speed.Fast):
        pass

    waiting = Waiting()
    waiting._calls = speed.Calls(ctypes.addressof(semaphore), None, None, None, None, True)
    waiting._sets_plainly = True

    def let_go():
        while not waiting._calls.active:
            time.sleep(0.001)
        libc.sem_post(semaphore)

    for call in (
        lambda: waiting.get(b"k"),
        lambda: waiting.set(b"k", b"v"),
        lambda: waiting._put(b"k", b"v"),
        lambda: waiting._get_fresh(b"k", 0, None, 0),
        lambda: waiting._get_many([b"k"], 0),
    ):
        thread = threading.Thread(target=let_go)
        thread.start()
        call()
        thread.join()
    print("let go of")
"""


def one_after_another(*calls: Callable[[], Any]) -> list[float]:
    """The least processor times of calls, which take turns: others' load makes no time less."""
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(41):
        for call, taken in zip(calls, times):
            start = thread_time()
            for _ in range(20):
                call()
            taken.append(thread_time() - start)
    return [min(taken) for taken in times]


COLUMNS: dict[str, Callable[[int], Any]] = {
    "date": lambda n: date(2026, 1, 1 + n % 31),
    "datetime": lambda n: datetime(2026, 1, 5, 6, n % 60, 8, tzinfo=timezone.utc),
    "Decimal": lambda n: Decimal(n) / 100,
    "set": lambda n: {"a", "b", n},
    "one date": lambda n, shared=date(2026, 1, 1): shared,  # type: ignore[misc]
    "one datetime": lambda n, shared=datetime(2026, 1, 1): shared,  # type: ignore[misc]
    "one Decimal": lambda n, shared=Decimal(5): shared,  # type: ignore[misc]
}


@needs_it
@pytest.mark.parametrize("column", COLUMNS)
def test_rows_cost_no_more_than_a_pickle(column: str) -> None:
    """A pickle contains an object that rows share once."""
    codec = values_module.Codec(None)
    rows = [{"id": n, "name": f"name {n}", "column": COLUMNS[column](n)} for n in range(100)]
    ours, pickled = one_after_another(
        lambda: codec.decode(*codec.encode(rows)),
        lambda: pickle.loads(pickle.dumps(rows, pickle.HIGHEST_PROTOCOL)),
    )
    assert ours <= 1.5 * pickled


@needs_it
def test_a_set_costs_as_much_as_a_list() -> None:
    codec = values_module.Codec(None)
    plain = {"id": 7, "name": "a name", "flags": [1, 2, 3], "tags": ["a", "b", "c"]}
    with_set = {**plain, "tags": {"a", "b", "c"}}
    ours, without = one_after_another(
        lambda: codec.decode(*codec.encode(with_set)), lambda: codec.decode(*codec.encode(plain))
    )
    assert ours <= 2 * without


# From 3.12 on None and small ints have no counts.
counted = pytest.mark.skipif(
    speed is None or sys.version_info >= (3, 12), reason="no extension, or immortal objects"
)


@counted
def test_no_call_moves_a_count(cache: shale.Cache) -> None:
    """The counts are read around each call, and added up for each kind of call."""
    key, default = "a key", object()
    held = (None, True, False, 0, 1, key, default, timezone.utc, date, Decimal, speed, cache._calls)
    mixed = {"n": None, "s": {1, None}, "d": [Decimal(1), timedelta(1), UUID(int=1)]}
    cache.set_many({"none": None, "json": [None, True, 1], "mixed": mixed})

    def suppressed(call: Callable[[], Any]) -> Callable[[], None]:
        def quiet() -> None:
            with suppress(TypeError, ValueError):
                call()

        return quiet

    calls: dict[str, Callable[[], Any]] = {
        "a hit": lambda: cache.get("none"),
        "a miss": lambda: cache.get(key),
        "a miss with a default": lambda: cache.get(key, default),
        "slowly": lambda: cache.get(key, default, peek=True),
        "json": lambda: cache.get("json"),
        "packed": lambda: cache.get("mixed"),
        "many": lambda: cache.get_many([key, "none", "mixed"]),
        "set": lambda: cache.set("k", None),
        "set packed": lambda: cache.set("k", mixed),
        "set with an age": lambda: cache.set("k", None, max_age=5),
        "load": lambda: cache.get_or_load("none", int),
        "a bad key": suppressed(lambda: cache.get(1.5)),  # type: ignore[call-overload]
        "a bad value": suppressed(lambda: cache.set("k", [None, 1j])),
        "bad bytes": suppressed(lambda: speed.unpack(b"l\x03NTl\x02N")),
    }
    moved: dict[str, list[int]] = {}
    for name, call in calls.items():
        for _ in range(100):
            call()
        sums = [0] * len(held)
        for _ in range(1000):
            before = [sys.getrefcount(each) for each in held]
            call()
            after = [sys.getrefcount(each) for each in held]
            sums = [total + b - a for total, a, b in zip(sums, before, after)]
        moved[name] = sums
    # (Some calls replace an object that a cache of Python's or ours holds.)
    assert all(abs(total) < 10 for sums in moved.values() for total in sums), moved


@counted
def test_the_attribute_cache_of_python_is_left_alone(directory: Path) -> None:
    """Its empty entries hold None. An entry is found by the address of a name, so a new str for
    each call would take another entry each time."""
    script = """
        import sys
        import shale

        cache = shale.Cache(sys.argv[1], capacity="8MiB")
        for _ in range(100):
            cache.get("k", peek=True)
        kept = []
        before = sys.getrefcount(None)
        for number in range(2000):
            kept.append(str(number) * 3)  # moves the address of the next str
            cache.get("k", peek=True)
        print(abs(sys.getrefcount(None) - before) < 20)
    """
    assert run_child(script, directory) == "True\n"


@needs_it
def test_what_threads_change_while_it_is_packed() -> None:
    shared: dict[str, Any] = {
        "list": [{1}, UUID(int=1)] * 20,
        "dict": {n: (n,) for n in range(40)},
        "set": {(n,) for n in range(40)},
        "ordered": OrderedDict((n, {n}) for n in range(40)),
        "json": [1, {"a": [2]}] * 20,
    }
    codec = values_module.Codec(None)

    def work(thread: int) -> None:
        for number in range(300):
            if thread:
                for value in shared.values():
                    with suppress(RuntimeError, KeyError):
                        back = codec.decode(*codec.encode(value))
                        assert type(back) is type(value)
            else:
                for name in ("list", "json"):
                    shared[name].append(number)
                    del shared[name][: number % 3]
                shared["set"].add((number + 100,))
                shared["set"].discard((number + 50,))
                for name in ("dict", "ordered"):
                    shared[name][number + 100] = (number,)
                    shared[name].pop(number + 50, None)

    run_threads(4, work)


@needs_it
def test_the_interpreter_is_let_go_of_in_each_call() -> None:
    assert run_child(WAITING) == "let go of\n"


def test_many_threads_close_and_call(directory: Path) -> None:
    for _ in range(20):
        cache = shale.Cache(directory, capacity=SMALL)
        started = threading.Barrier(4)

        def work(thread: int, cache: shale.Cache = cache, started: Any = started) -> None:
            started.wait(PATIENCE)
            if thread == 0:
                cache.close()
                return
            with pytest.raises(shale.InvalidError, match="closed"):
                while True:
                    cache.set("k", "v" * 1000)
                    cache.get("k")
                    cache.get_many(["k", "l"])

        run_threads(4, work)
        # The handle is closed: another capacity is refused while it is open.
        shale.Cache(directory, capacity="4MiB").close()
        shale.Cache(directory, capacity=SMALL).close()


def test_a_child_of_fork_closes_what_its_parents_threads_were_using(directory: Path) -> None:
    script = """
        import os, sys, threading
        import shale

        cache = shale.Cache(sys.argv[1], capacity="8MiB")
        cache["k"] = "v"
        stop = threading.Event()

        def work():
            while not stop.is_set():
                cache.get("k")
                cache.set("l", "v" * 10_000)

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(20):
            child = os.fork()
            if child == 0:
                assert cache.get("k") == "v"
                cache.close()
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
        stop.set()
        for thread in threads:
            thread.join()
        cache.close()
        with shale.Cache(sys.argv[1], capacity="4MiB") as other:
            print(other["k"])
    """
    assert run_child(script, directory) == "v\n"


IN_THE_MIDDLE = """
    import ctypes, os, sys, threading, time
    import shale
    from shale._native import library
    from shale._native.extension import speed

    cache = shale.Cache(sys.argv[1], capacity="8MiB")
    libc = ctypes.CDLL(None)
    semaphore = ctypes.create_string_buffer(64)
    assert libc.sem_init(semaphore, 0, 0) == 0
    wait = ctypes.cast(libc.sem_wait, ctypes.c_void_p).value
    free = ctypes.cast(library.value_free, ctypes.c_void_p).value
    speed.setup(wait, wait, wait, free, *8 * [None])
    handle = cache._pool._handle
    address, handle.pointer.value = handle.pointer.value, ctypes.addressof(semaphore)
    cache._calls = cache._pool.calls_for(speed.Calls, None, None, True)
    handle.pointer.value = address

    thread = threading.Thread(target=lambda: cache.get(b"k"))
    thread.start()
    while not cache._calls.active:
        time.sleep(0.001)
    child = os.fork()
    if child == 0:
        cache.close()
        os._exit(0 if handle.pointer.value is None else 1)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    cache.close()
    print(handle.pointer.value is None)
    libc.sem_post(semaphore)
    thread.join()
    del cache
    print(handle.pointer.value is None)
"""


@needs_it
def test_who_is_in_the_middle_of_a_call_holds_the_handle(directory: Path) -> None:
    """But not in a child of fork, which has no other thread."""
    assert run_child(IN_THE_MIDDLE, directory) == "0\nFalse\nFalse\n"


@needs_it
def test_memory_is_given_back(directory: Path) -> None:
    script = """
        import os, sys, shale

        def pages():
            with open("/proc/self/statm") as file:
                return int(file.read().split()[1])

        cache = shale.Cache(sys.argv[1], capacity="64MiB", compression="none")
        large, some = [f"large {n}" for n in range(20)], [f"some {n}" for n in range(200)]
        for key in large:
            cache[key] = bytes(2_000_000)
        for key in some:
            cache[key] = bytes(20_000)

        def work(times):
            for _ in range(times):
                for key in large[:2] + some:
                    cache.get(key)
                    cache.get_many([key])
                cache.get_many(some)
                cache.set("k", "x" * 5_000)
                cache.set("k", ["x" * 5_000])

        work(2)
        before = pages()
        work(20)
        print((pages() - before) * os.sysconf("SC_PAGE_SIZE") < 30_000_000)
    """
    assert run_child(script, directory) == "True\n"


@needs_it
def test_what_is_stale_is_loaded(cache: shale.Cache) -> None:
    cache.set("k", "old", max_age=0, stale=600)
    assert cache.get_or_load("k", lambda: "new") == "new"
    assert cache.get_or_load("k", lambda: "newer") == "new"
    stats = cache.stats()
    assert (stats.hits, stats.stale_hits, stats.misses) == (1, 1, 0)


@needs_it
def test_a_namespace_sets_as_one(cache: shale.Cache) -> None:
    users = cache.namespace("users", max_age=100)
    assert users.set("k", 1)
    users["l"] = 2
    assert sorted(cache) == [("users", "k"), ("users", "l")]
    assert (users.get("k"), users["l"], users.get_many(["k", "l"])) == (1, 2, {"k": 1, "l": 2})
    for key in "kl":
        entry = users.entry(key)
        assert entry is not None
        assert entry.ttl <= 100
    assert users.get_or_load("m", lambda: 3) == users.get_or_load("m", lambda: 4) == 3
    users.clear()
    assert not cache


@needs_it
def test_listeners_hear_of_it(cache: shale.Cache) -> None:
    heard: list[Any] = []
    stops = [
        cache.on("set", lambda event: heard.append((event.name, event.key))),
        cache.on("hit", lambda event: heard.append((event.name, event.key))),
    ]
    cache.set("a", 1)
    cache["b"] = 2
    cache.get("a")
    cache.get_or_load("b", int)
    assert heard == [("set", "a"), ("set", "b"), ("hit", "a"), ("hit", "b")]
    for stop in stops:
        stop()
    cache.set("a", 1)
    assert cache._sets_plainly
    assert len(heard) == 4


@pytest.mark.skipif(
    not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this Python needs its GIL"
)
def test_python_goes_on_without_the_gil() -> None:
    """It would take the GIL again for an extension that needs one."""
    assert speed is not None
    script = """
        import sys, shale
        print(sys._is_gil_enabled())
    """
    assert run_child(script) == "False\n"


def test_it_can_be_left_out(directory: Path) -> None:
    script = """
        import sys, shale
        from shale._native import extension
        with shale.Cache(sys.argv[1], capacity="8MiB") as cache:
            cache["k"] = [1, (2, b"3")]
            print(extension.speed, cache["k"], cache.get_many(["k"]))
    """
    environment = child_environment(SHALE_SPEED="0")
    printed = "None [1, (2, b'3')] {'k': [1, (2, b'3')]}\n"
    assert run_child(script, directory, environment=environment) == printed
