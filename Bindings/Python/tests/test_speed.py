"""The extension in C says what the modules in Python say, and lets go of the interpreter."""

from __future__ import annotations

import gc
import inspect
import sys
import threading
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from loaders import PATIENCE
from strategies import keys, value_shape, values
from support import SMALL, child_environment, run_child
from test_threads import run_threads

import shale
from shale import _iterate, _keys, _packed, _values
from shale._extension import speed

needs_it = pytest.mark.skipif(speed is None, reason="there is no extension here")


def python_form(value: Any) -> tuple[bytes, bytes]:
    """What `Codec.encode` gives without the extension."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_values, "speed", None)
        return _values.Codec(None).encode(value)


containers = st.one_of(
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
]


@needs_it
@pytest.mark.parametrize("value", [*JSON_EDGES, *PACKED_EDGES], ids=lambda value: repr(value)[:20])
def test_edges_have_the_same_form(value: Any) -> None:
    codec = _values.Codec(None)
    meta, data = codec.encode(value)
    assert (meta, data) == python_form(value)
    assert value_shape(codec.decode(meta, data)) == value_shape(value)


@needs_it
@given(containers)
def test_values_have_the_same_form(value: Any) -> None:
    codec = _values.Codec(None)
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
            _values.Codec(None).encode(value)
    else:
        assert _values.Codec(None).encode(value) == python_form(value)
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
]


@needs_it
@pytest.mark.parametrize("data", PACKED_FORMS, ids=lambda data: repr(data)[:20])
def test_forms_of_others_are_read_the_same(data: bytes) -> None:
    assert outcome(speed.unpack, data) == outcome(_packed.unpack, data)


@needs_it
@pytest.mark.parametrize("letter", ["t", "l"])
def test_a_count_that_is_not_true_takes_no_memory(letter: str) -> None:
    script = """
        import resource, sys
        import shale
        from shale._extension import speed
        from shale._varint import size_bytes

        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
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
    assert outcome(speed.loads, data) == outcome(_values.decode_json, data)


@needs_it
@given(containers, st.data())
def test_damaged_forms_are_read_the_same(value: Any, draw: Any) -> None:
    form = bytearray(_packed.pack(value))
    if draw.draw(st.booleans()):
        form[draw.draw(st.integers(0, len(form) - 1))] = draw.draw(st.integers(0, 255))
    data = bytes(form[: draw.draw(st.integers(0, len(form)))])
    assert outcome(speed.unpack, data) == outcome(_packed.unpack, data)


@needs_it
@given(st.binary(max_size=40))
def test_any_bytes_are_read_the_same(data: bytes) -> None:
    assert outcome(speed.unpack, data) == outcome(_packed.unpack, data)
    assert outcome(speed.loads, data) == outcome(_values.decode_json, data)


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
    stored = _keys.encode_key(key)
    (found,) = (each for each, _, _ in _iterate._walk(cache._pool, 0))
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
    """And not those of Python in their place."""
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
    # The handle is really gone: another capacity needs to be alone.
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
    """Of what each way through the extension takes hold of."""
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


# In place of the library's functions stands one that waits until another thread lets it go on, and
# that one looks whether a call is under way, for which it needs the interpreter.
WAITING = """
    import ctypes, sys, threading, time
    from shale import _library
    from shale._extension import speed

    libc = ctypes.CDLL(None)
    semaphore = ctypes.create_string_buffer(64)
    assert libc.sem_init(semaphore, 0, 0) == 0
    wait = ctypes.cast(libc.sem_wait, ctypes.c_void_p).value
    free = ctypes.cast(_library.value_free, ctypes.c_void_p).value
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
        lambda: waiting._get_fresh(b"k", 0, None),
        lambda: waiting._get_many([b"k"], 0),
    ):
        thread = threading.Thread(target=let_go)
        thread.start()
        call()
        thread.join()
    print("let go of")
"""


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
        # The handle is really gone: another capacity needs to be alone.
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
    from shale import _library
    from shale._extension import speed

    cache = shale.Cache(sys.argv[1], capacity="8MiB")
    libc = ctypes.CDLL(None)
    semaphore = ctypes.create_string_buffer(64)
    assert libc.sem_init(semaphore, 0, 0) == 0
    wait = ctypes.cast(libc.sem_wait, ctypes.c_void_p).value
    free = ctypes.cast(_library.value_free, ctypes.c_void_p).value
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
    """But not in a child of fork, in which nobody is."""
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


def test_it_can_be_left_out(directory: Path) -> None:
    script = """
        import sys, shale
        from shale import _extension
        with shale.Cache(sys.argv[1], capacity="8MiB") as cache:
            cache["k"] = [1, (2, b"3")]
            print(_extension.speed, cache["k"], cache.get_many(["k"]))
    """
    environment = child_environment(SHALE_SPEED="0")
    printed = "None [1, (2, b'3')] {'k': [1, (2, b'3')]}\n"
    assert run_child(script, directory, environment=environment) == printed
