"""Values: a get returns the stored value with its types."""

from __future__ import annotations

import collections
import contextlib
import datetime
import decimal
import enum
import inspect
import math
import pickle
import signal
import sys
import uuid
import zoneinfo
from pathlib import Path
from typing import Any

import pages
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import value_shape, values
from support import SMALL, run_child

import shale
from shale._data import packed
from shale._data.serializers import Serializer as _Serializer
from shale._data.values import (
    BIG_INT,
    FLOAT,
    INT,
    JSON,
    LOADS_ERRORS,
    MARKER,
    PACKED,
    SERIALIZED,
    STR,
    Codec,
    Unreadable,
)

plain = Codec(None)
pickling = Codec(shale.PickleSerializer())


@given(values)
def test_round_trip(value: Any) -> None:
    meta, data = plain.encode(value)
    assert value_shape(plain.decode(meta, data)) == value_shape(value)


@given(values)
def test_packed_round_trip(value: Any) -> None:
    assert value_shape(packed.unpack(packed.pack(value))) == value_shape(value)


@given(values)
def test_equal_values_have_equal_bytes(value: Any) -> None:
    meta, data = plain.encode(value)
    assert plain.encode(plain.decode(meta, data)) == (meta, data)


@given(st.binary(max_size=6).map(lambda tail: MARKER + tail) | st.binary(), st.binary())
def test_decoding_never_fails_in_another_way(meta: bytes, data: bytes) -> None:
    for codec in (plain, Codec(None)):
        try:
            codec.decode(meta, data)
        except Unreadable:
            assert meta.startswith(MARKER)


@given(st.sampled_from([STR, INT, BIG_INT, FLOAT, JSON, PACKED]), st.binary())
def test_known_metas_over_any_bytes(meta: bytes, data: bytes) -> None:
    with contextlib.suppress(Unreadable):
        plain.decode(meta, data)


@given(st.binary())
def test_unpacking_any_bytes(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        packed.unpack(data)


# These forms are in caches on disk: a change loses their entries.
FIXED: list[tuple[Any, bytes, bytes]] = [
    (b"raw", b"", b"raw"),
    (b"", b"", b""),
    ("é", MARKER + b"s", b"\xc3\xa9"),
    (1, MARKER + b"i", b"\x01" + bytes(7)),
    (-1, MARKER + b"i", b"\xff" * 8),
    (2**63 - 1, MARKER + b"i", b"\xff" * 7 + b"\x7f"),
    (2**63, MARKER + b"I", bytes(7) + b"\x80\x00"),
    (1.5, MARKER + b"f", b"\x00\x00\x00\x00\x00\x00\xf8\x3f"),
    (None, MARKER + b"N", b""),
    (True, MARKER + b"T", b""),
    (False, MARKER + b"F", b""),
    ([1, "a", None, 1.5, True], MARKER + b"j", b'[1,"a",null,1.5,true]'),
    ({"é": []}, MARKER + b"j", b'{"\xc3\xa9":[]}'),
    ((), MARKER + b"x", b"t\x00"),
    ((1, b"b"), MARKER + b"x", b"t\x02i\x01\x01b\x01b"),
    ({1: "a"}, MARKER + b"x", b"d\x01i\x01\x01s\x01a"),
    ([b"", None, True, False, -1], MARKER + b"x", b"l\x05b\x00NTFi\x01\xff"),
    ([math.inf], MARKER + b"x", b"l\x01f\x00\x00\x00\x00\x00\x00\xf0\x7f"),
    (set(), MARKER + b"x", b"S\x00"),
    ({"b", "a", 1}, MARKER + b"x", b"S\x03i\x01\x01s\x01as\x01b"),
    (frozenset({(), b"x"}), MARKER + b"x", b"Z\x02b\x01xt\x00"),
    (datetime.date(2026, 11, 23), MARKER + b"x", b"D\xea\x07\x0b\x17"),
    (
        datetime.datetime(2026, 11, 23, 1, 2, 3, 4, fold=1),
        MARKER + b"x",
        b"w\xea\x07\x0b\x17\x01\x02\x03\x04\x00\x00\x00\x01n",
    ),
    (
        datetime.datetime(1, 1, 1, tzinfo=datetime.timezone.utc),
        MARKER + b"x",
        b"w\x01\x00\x01\x01" + bytes(8) + b"o" + bytes(8),
    ),
    (
        datetime.datetime(1, 1, 1, tzinfo=zoneinfo.ZoneInfo("UTC")),
        MARKER + b"x",
        b"w\x01\x00\x01\x01" + bytes(8) + b"z\x03UTC",
    ),
    (
        datetime.timedelta(microseconds=-1),
        MARKER + b"x",
        b"v\xff\xff\xff\xff\x7f\x51\x01\x00\x3f\x42\x0f\x00",
    ),
    (decimal.Decimal("-0.10"), MARKER + b"x", b"m\x05-0.10"),
    (decimal.Decimal("1E+3"), MARKER + b"x", b"m\x041E+3"),
    (uuid.UUID(int=1), MARKER + b"x", b"u" + bytes(15) + b"\x01"),
    (bytearray(b"ab"), MARKER + b"x", b"B\x02ab"),
    ([{"b", "a"}, bytearray()], MARKER + b"x", b"l\x02S\x02s\x01as\x01bB\x00"),
    (
        collections.OrderedDict([("b", 1), ("a", 2)]),
        MARKER + b"x",
        b"O\x02s\x01bi\x01\x01s\x01ai\x01\x02",
    ),
    (datetime.time(1, 2, 3, 4), MARKER + b"x", b"c\x01\x02\x03\x04\x00\x00\x00\x00n"),
    (
        datetime.time(1, tzinfo=datetime.timezone.utc, fold=1),
        MARKER + b"x",
        b"c\x01\x00\x00\x00\x00\x00\x00\x01o" + bytes(8),
    ),
]


@pytest.mark.parametrize(("value", "meta", "data"), FIXED)
def test_the_form_never_changes(value: Any, meta: bytes, data: bytes) -> None:
    assert plain.encode(value) == (meta, data)
    assert value_shape(plain.decode(meta, data)) == value_shape(value)


def test_very_long_ints_survive_any_limit_on_digits() -> None:
    long = 10**5000
    for value in (long, [long], {"n": [long]}, [10**639], [-(10**700)]):
        meta, data = plain.encode(value)
        if hasattr(sys, "set_int_max_str_digits"):
            before = sys.get_int_max_str_digits()
            sys.set_int_max_str_digits(640)
            try:
                assert plain.decode(meta, data) == value
            finally:
                sys.set_int_max_str_digits(before)
        else:
            assert plain.decode(meta, data) == value


class Level(enum.IntEnum):
    LOW = 1


class Color(str, enum.Enum):
    RED = "red"


class Shade(enum.Enum):
    DARK = "dark"


class SafeText(str):
    def __str__(self) -> str:
        return "another"


class OwnInt(int):
    def __int__(self) -> int:
        return 7


class OwnFloat(float):
    pass


class OwnBytes(bytes):
    pass


class OwnList(list[Any]):
    pass


class OwnDatetime(datetime.datetime):
    pass


Point = collections.namedtuple("Point", "x y")

# Without a serializer: the value, and the equal value of a base class that comes back.
FLATTENED: list[tuple[Any, Any]] = [
    (Point(1, 2), (1, 2)),
    (Point(Point(1, "a"), [Level.LOW]), ((1, "a"), [1])),
    (Level.LOW, 1),
    (Color.RED, "red"),
    (SafeText("<b>"), "<b>"),
    (SafeText("\ud800"), "\ud800"),
    (OwnInt(2**70), 2**70),
    (OwnFloat(0.5), 0.5),
    (OwnBytes(b"ab"), b"ab"),
    ({Color.RED: {"n": Level.LOW}}, {"red": {"n": 1}}),
    ({"a": [SafeText("b"), {Level.LOW}]}, {"a": ["b", {1}]}),
    (collections.OrderedDict([(Level.LOW, Point(1, 2))]), collections.OrderedDict([(1, (1, 2))])),
    ({Point(1, 2): frozenset([Level.LOW])}, {(1, 2): frozenset([1])}),
]


@pytest.mark.parametrize(("value", "base"), FLATTENED)
def test_subclasses_come_back_as_their_base(cache: shale.Cache, value: Any, base: Any) -> None:
    assert value == base
    assert plain.encode(value) == plain.encode(base)
    for nested in (lambda each: each, lambda each: [each], lambda each: {"k": (each,)}):
        cache["k"] = nested(value)
        assert value_shape(cache["k"]) == value_shape(nested(base))
        assert cache.get("k") == nested(value)


@pytest.mark.parametrize("value", [value for value, _ in FLATTENED])
def test_a_serializer_preserves_subclasses(value: Any) -> None:
    meta, data = pickling.encode(value)
    assert meta == SERIALIZED + b"pickle"
    back = pickling.decode(meta, data)
    assert (type(back), back) == (type(value), value)


def test_two_keys_never_become_one() -> None:
    class Own(str):
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            return self is other

    with pytest.raises(TypeError, match="dict"):
        plain.encode({Own("a"): 1, Own("a"): 2})


# The types of the page's table, and a value of each.
TABLE: dict[str, Any] = {
    "bytes": b"a", "str": "a", "int": 2**70, "float": 0.5, "bool": True, "None": None,
    "bytearray": bytearray(b"a"), "Decimal": decimal.Decimal("0.10"), "UUID": uuid.UUID(int=5),
    "date": datetime.date(2026, 1, 1), "time": datetime.time(1, 2, 3, 4, fold=1),
    "timedelta": datetime.timedelta(1, 2, 3), "list": [1], "tuple": (1,), "set": {1},
    "datetime": datetime.datetime(2026, 1, 1, fold=1, tzinfo=zoneinfo.ZoneInfo("UTC")),
    "frozenset": frozenset([1]), "dict": {1: 2, 0: 1},
    "OrderedDict": collections.OrderedDict([(2, 1), (1, 2)]),
    "named tuple": Point(1, 2), "IntEnum": Level.LOW, "StrEnum": Color.RED,
    "subclass of str": SafeText("a"), "subclass of int": OwnInt(1),
    "subclass of float": OwnFloat(1), "subclass of bytes": OwnBytes(b"a"),
    "numpy.float64": OwnFloat(1),
    "defaultdict": collections.defaultdict(int), "Counter": collections.Counter("a"),
    "other Enum": Shade.DARK, "subclass of list": OwnList(), "complex": 1j,
    "subclass of datetime": OwnDatetime(2026, 1, 1), "memoryview": memoryview(b"a"),
}  # fmt: skip


def test_the_table_of_the_page(cache: shale.Cache) -> None:
    """values.md, "What comes back"."""
    page = pages.PAGES / "values.md"
    if not page.is_file():
        pytest.skip("not a checkout")
    _, _, table = page.read_text().partition("## What comes back\n")
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in table.partition("\n## ")[0].splitlines()
        if line.startswith("|")
    ][2:]
    named = []
    for stored, back in rows:
        for name in stored.replace("`", "").split(", "):
            value = TABLE[name]
            named.append(name)
            if "TypeError" in back:
                with pytest.raises(TypeError, match="PickleSerializer"):
                    cache["k"] = value
                continue
            cache["k"] = value
            found = cache["k"]
            assert found == value
            same = type(value).__name__ if back == "the same type" else back.strip("`")
            assert type(found).__name__ == same
    assert sorted(named) == sorted(TABLE)


REFUSED: list[Any] = [
    object(),
    {1, 2j},
    datetime.time(1, tzinfo=datetime.timezone(datetime.timedelta(hours=1), "X")),
    datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=1), "X")),
    OwnDatetime(2026, 1, 1),
    collections.Counter("a"),
    OwnList([1]),
    Shade.DARK,
    [{"deep": (1, Shade.DARK)}],
    {Point(1, 1j): 1},
    1j,
]


@pytest.mark.parametrize("value", REFUSED)
def test_other_types_are_refused_with_a_hint(value: Any) -> None:
    with pytest.raises(TypeError, match="PickleSerializer"):
        plain.encode(value)


def test_the_refusal_names_the_type_that_is_at_fault() -> None:
    with pytest.raises(TypeError, match=r"found test_values\.Shade\b"):
        plain.encode({"a": [1, (2, {Level.LOW, Shade.DARK})]})


@pytest.mark.parametrize("value", [each for each in REFUSED if type(each) is not object])
def test_a_serializer_takes_the_rest(value: Any) -> None:
    meta, data = pickling.encode(value)
    assert meta == SERIALIZED + b"pickle"
    back = pickling.decode(meta, data)
    assert type(back) is type(value)
    assert back == value


@pytest.mark.parametrize("capitals", [0, 1])
def test_the_context_of_decimals_changes_no_form(capitals: int) -> None:
    number = decimal.Decimal("1E+3")
    for value in (number, [number]):
        stored = plain.encode(value)
        with decimal.localcontext() as context:
            context.capitals = capitals
            context.prec = 1
            assert plain.encode(value) == stored
            assert plain.decode(*stored) == value
            assert packed.unpack(packed.pack(value)) == value


def test_a_serializer_leaves_alone_what_has_a_form() -> None:
    for value in (b"x", "x", 1, [1], {"a": (1, 2)}, None):
        assert pickling.encode(value) == plain.encode(value)


def test_pickles_are_not_read_without_the_serializer() -> None:
    meta, data = pickling.encode(1j)
    assert not plain.knows(meta)
    with pytest.raises(Unreadable):
        plain.decode(meta, data)


def test_a_pickle_that_no_longer_loads_is_unreadable() -> None:
    with pytest.raises(Unreadable):
        pickling.decode(SERIALIZED + b"pickle", b"cno_such_module\nname\n.")


def test_foreign_metas_are_bytes() -> None:
    for meta in (b'"etag"', b"text/html", b"\xff", b"\xffP", b"s", b"\x00"):
        assert plain.knows(meta)
        assert plain.decode(meta, b"data") == b"data"


def test_unknown_letters_are_unreadable() -> None:
    for meta in (MARKER, MARKER + b"?", MARKER + b"ss", SERIALIZED, SERIALIZED + b"other"):
        assert not plain.knows(meta)
        with pytest.raises(Unreadable):
            plain.decode(meta, b"data")


def nested(depth: int, kind: type) -> Any:
    value: Any = kind()
    for _ in range(depth - 1):
        value = {"k": value} if kind is dict else kind([value])
    return value


@pytest.mark.parametrize("kind", [list, tuple, dict])
def test_nesting_has_an_end(kind: type) -> None:
    deepest = nested(packed.MAX_DEPTH, kind)
    assert plain.decode(*plain.encode(deepest)) == deepest
    with pytest.raises(shale.InvalidError):
        plain.encode(nested(packed.MAX_DEPTH + 1, kind))


def test_a_value_that_contains_itself_is_refused() -> None:
    ring: list[Any] = []
    ring.append(ring)
    table: dict[Any, Any] = {}
    table[1] = table
    for value in (ring, table):
        with pytest.raises(shale.InvalidError):
            plain.encode(value)


@pytest.mark.parametrize(
    "data",
    [b"", b"?", b"i", b"i\x05\x00", b"l\x02N", b"l" * 5000, b"l\x01" * 5000, b"NN",
     b"d\x01l\x00N", b"s\x02\xff\xff", b"S\x01l\x00", b"Z\x01N!", b"D\x00\x00\x01\x01", b"D",
     b"w\x01\x00\x01\x01" + bytes(7) + b"\x02n", b"w\x01\x00\x01\x01" + bytes(8) + b"?",
     b"w\x01\x00\x01\x01" + bytes(8), b"w\x01\x00\x01\x01" + bytes(8) + b"o" + b"\x7f" * 8,
     b"w\x01\x00\x01\x01" + bytes(8) + b"z\x06no/way",
     b"w\x01\x00\x01\x01" + bytes(8) + b"z\x02..", b"w\x01\x00\x01\x01" + bytes(8) + b"z\x00",
     b"v" + b"\xff" * 12, b"v\xff\xff\xff\x7f" + bytes(8),
     b"m\x031_0", b"m\x03abc", b"m\x00", b"m\x02+1", b"m\x05\x01", b"u" + bytes(15),
     b"f\x00", b"i" + b"\x80" * 20, b"b\xff\xff\xff\xff\x0f"],
)  # fmt: skip
def test_damaged_packs_are_errors(data: bytes) -> None:
    with pytest.raises(ValueError):
        packed.unpack(data)
    with pytest.raises(Unreadable):
        plain.decode(PACKED, data)


def test_depth_and_cycles_are_the_serializers_affair() -> None:
    ring: list[Any] = []
    ring.append(ring)
    for value in (nested(packed.MAX_DEPTH + 1, list), nested(packed.MAX_DEPTH + 1, dict), ring):
        meta, data = pickling.encode(value)
        assert meta == SERIALIZED + b"pickle"
        back = pickling.decode(meta, data)
        assert back[0] is back if value is ring else back == value


class Gives:
    """A serializer whose ``dumps`` returns this."""

    name = "gives"

    def __init__(self, result: Any) -> None:
        self.result = result

    def dumps(self, _value: Any, /) -> Any:
        return self.result

    def loads(self, data: bytes, /) -> Any:
        return data


@pytest.mark.parametrize(
    "result", [b"ab", OwnBytes(b"ab"), bytearray(b"ab"), memoryview(b"axbx")[::2]]
)
def test_what_a_serializer_may_give(result: Any) -> None:
    _, data = Codec(Gives(result)).encode(object())
    assert (type(data), data) == (bytes, b"ab")


@pytest.mark.parametrize("result", ["wide \u2603", None, 5, [1]])
def test_what_a_serializer_may_not_give(cache: shale.Cache, directory: Path, result: Any) -> None:
    cache["k"] = "old"
    with (
        shale.Cache(directory, serializer=Gives(result)) as odd,
        pytest.raises(TypeError, match=f"returns bytes, not {type(result).__name__}"),
    ):
        odd["k"] = object()
    assert cache["k"] == "old"


class Scrambling:
    """A serializer like those that encrypt: the file does not show the value."""

    name = "scrambling"

    def dumps(self, value: Any, /) -> bytes:
        return bytes(255 - byte for byte in pickle.dumps(value))

    def loads(self, data: bytes, /) -> Any:
        return pickle.loads(bytes(255 - byte for byte in data))


PLAIN_VALUES: list[Any] = [
    b"secret-0", "secret-1", ["secret-2"], ("secret-3",), {"secret-4": 1}, 5, 2**70, 0.5, True,
    None,
]  # fmt: skip


def test_a_serializer_can_be_given_everything(directory: Path) -> None:
    def opened() -> shale.Cache:
        return shale.Cache(
            directory,
            capacity=SMALL,
            compression="none",
            serializer=Scrambling(),
            serialize_all=True,
        )

    stored = dict(enumerate(PLAIN_VALUES))
    loads = [lambda: "secret-5", lambda: shale.Loaded(b"secret-6", meta=b"etag")]
    with opened() as cache:
        for key, value in stored.items():
            cache[key] = value
        cache.set_many({("many", key): value for key, value in stored.items()})
        cache.add("added", b"secret-7")
        for number, load in enumerate(loads):
            cache.get_or_load(("loaded", number), load)
        with pytest.raises(shale.InvalidError, match="serialize_all"):
            cache.incr("n")
    assert b"secret" not in (directory / "shale.data").read_bytes()
    with opened() as cache:
        for key, value in stored.items():
            assert value_shape(cache[key]) == value_shape(value)
            assert value_shape(cache[("many", key)]) == value_shape(value)
            assert key in cache
        assert cache.get_many(stored) == stored
        assert cache["added"] == b"secret-7"
        entry = cache.entry(("loaded", 1))
        assert entry is not None
        assert (entry.value, entry.meta) == (b"secret-6", b"etag")
        copy = pickle.loads(pickle.dumps(cache))
        with copy:
            copy["copied"] = b"secret-8"
    assert b"secret" not in (directory / "shale.data").read_bytes()


def test_what_it_did_not_write_is_a_miss(directory: Path) -> None:
    with shale.Cache(directory, capacity=SMALL) as cache:
        cache.set_many(dict(enumerate(PLAIN_VALUES)))
        cache.get_or_load("with meta", lambda: shale.Loaded(b"raw", meta=b"etag"))
        cache.get_or_load("str with meta", lambda: shale.Loaded("text", meta=b"etag"))
        keys = list(cache)
    with shale.Cache(directory, serializer=Scrambling(), serialize_all=True) as cache:
        assert cache.get_many(keys) == {}
        assert list(cache.items()) == []
        for key in keys:
            assert cache.get(key) is None
            assert cache.entry(key) is None
            assert key not in cache
            assert cache.get_or_load(key, lambda: "loaded") == "loaded"
        assert cache.stats().own.undecodable >= 4 * len(keys)


def test_giving_everything_needs_a_serializer(directory: Path) -> None:
    with pytest.raises(shale.InvalidError, match="serializer"):
        shale.Cache(directory, serialize_all=True)
    assert not directory.exists()


@pytest.mark.parametrize("value", [[(), 1, 2], {(): 1, 2: 3}, ([(), 1], 2), {(), 1}])
def test_what_another_thread_changes_meanwhile(value: Any) -> None:
    """At each line of the packing, the packed value grows. The result can be read."""

    def change(frame: Any, _event: str, _argument: object) -> Any:
        if frame.f_code is not packed._pack.__code__:
            return None
        inner = value[0] if isinstance(value, tuple) else value
        if len(inner) < 100:
            if isinstance(inner, list):
                inner.append(b"new")
            elif isinstance(inner, set):
                inner.add(len(inner) + 5)
            else:
                inner[len(inner) + 5] = b"new"
        return change

    before = sys.gettrace()
    sys.settrace(change)
    try:
        data = packed.pack(value)
    finally:
        sys.settrace(before)
    assert type(packed.unpack(data)) is type(value)


def test_what_cannot_be_read_is_logged_once(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with shale.Cache(directory, capacity=SMALL, serializer=shale.PickleSerializer()) as cache:
        cache.set_many({"a": 1j, "b": 2j, "c": 1})
    with shale.Cache(directory) as cache:
        cache.get_or_load("none", shale.Missing)
        assert cache.get("none") is None
        assert not caplog.records
        for _ in range(2):
            assert cache.get_many(["a", "b", "c"]) == {"c": 1}
        assert cache.stats().own.undecodable == 4
        (record,) = caplog.records
        assert (record.name, record.levelname) == ("shale", "WARNING")
        assert "pickle" in record.getMessage()
    caplog.clear()
    with shale.Cache(directory, serializer=Broken()) as cache:
        assert cache.get("a") is None
        (record,) = caplog.records
        assert record.exc_info is not None
        assert record.exc_info[0] is ZeroDivisionError


class Limit(Exception):
    """As task queues raise it from a signal handler, at any line."""


@pytest.mark.parametrize("limit", [Limit, TimeoutError, KeyboardInterrupt])
def test_a_time_limit_is_no_damage(
    directory: Path, caplog: pytest.LogCaptureFixture, limit: type[BaseException]
) -> None:
    """Raised at each line that reading runs, one after another."""
    zone = zoneinfo.ZoneInfo("UTC")
    stored: dict[str, Any] = {
        "zone": [datetime.datetime(2026, 1, 1, tzinfo=zone), datetime.time(1, tzinfo=zone)],
        "other": [uuid.UUID(int=1), {uuid.UUID(int=2): decimal.Decimal(1)}, {2**70, (1,)}],
        "object": [1j, Point(1, Shade.DARK)],
    }

    class Slow(shale.PickleSerializer):
        def loads(self, data: bytes, /) -> Any:
            found = super().loads(data)
            return found

    def read(key: str, line: int) -> bool:
        """Whether reading the key ran as many lines."""
        left = line

        def count(_frame: Any, event: str, _argument: object) -> Any:
            nonlocal left
            left -= event == "line"
            if left == 0:
                raise limit
            return count

        before = sys.gettrace()
        sys.settrace(count)
        try:
            assert cache.get(key) == stored[key] or left == 0
        except limit:
            assert left == 0
        finally:
            sys.settrace(before)
        return left <= 0

    with shale.Cache(directory, capacity=SMALL, serializer=Slow()) as cache:
        cache.set_many(stored)
        for key in stored:
            lines = 1
            while read(key, lines):
                lines += 1
            assert lines > 2
        assert cache.stats().own.undecodable == 0
        assert not caplog.records
        assert cache.get_many(stored) == stored


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers here")
def test_thousands_of_time_limits(directory: Path) -> None:
    script = """
        import logging, signal, sys
        import datetime, decimal, uuid, zoneinfo
        import shale

        class Limit(Exception):
            pass

        raised = caught = 0
        armed = False

        def expire(number, frame):
            global raised, armed
            if armed:
                armed = False
                raised += 1
                raise Limit

        def read():
            global armed
            armed = True
            while True:
                for key in stored:
                    assert cache.get(key) == stored[key]
                assert cache.get_many(list(stored)) == stored

        zone = zoneinfo.ZoneInfo("UTC")
        value = [datetime.datetime(2026, 1, 1, tzinfo=zone), {uuid.UUID(int=1), decimal.Decimal(2)}]
        stored = {"own": value, "json": [1, {"a": None}], "object": value + [1j]}
        logged = []
        handler = logging.Handler()
        handler.emit = logged.append
        logging.getLogger("shale").addHandler(handler)
        cache = shale.Cache(sys.argv[1], capacity="8MiB", serializer=shale.PickleSerializer())
        cache.set_many(stored)
        signal.signal(signal.SIGALRM, expire)
        signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.0002)
        while caught < 3000:
            try:
                read()
            except Limit:
                caught += 1
        armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(raised - caught, len(logged), cache.stats().own.undecodable)
    """
    assert run_child(script, directory) == "0 0 0\n"


def test_what_loads_may_raise(directory: Path) -> None:
    class Failing(shale.PickleSerializer):
        error: type[BaseException]

        def loads(self, data: bytes, /) -> Any:
            raise self.error

    failing = Failing()
    with shale.Cache(directory, capacity=SMALL, serializer=failing) as cache:
        cache["k"] = 1j
        for failing.error in LOADS_ERRORS:
            assert cache.get("k") is None
            assert cache.get_many(["k"]) == {}
        assert cache.stats().own.undecodable == 2 * len(LOADS_ERRORS)
        for failing.error in (Limit, TimeoutError, MemoryError, KeyboardInterrupt):
            for call in (lambda: cache.get("k"), lambda: cache.get_many(["k"])):
                with pytest.raises(failing.error):
                    call()
        documented = inspect.getdoc(_Serializer) or ""
        for error in LOADS_ERRORS:
            assert (
                f"``{error.__module__}.{error.__name__}``".replace("builtins.", "").replace(
                    "_pickle", "pickle"
                )
                in documented
            )


class Broken(shale.PickleSerializer):
    def loads(self, data: bytes, /) -> Any:
        return len(data) // 0
