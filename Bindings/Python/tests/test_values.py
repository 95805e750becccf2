"""Values: what comes back is what was stored, types included."""

from __future__ import annotations

import collections
import contextlib
import datetime
import enum
import math
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import value_shape, values

import shale
from shale import _packed
from shale._values import (
    BIG_INT,
    FLOAT,
    INT,
    JSON,
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
    assert value_shape(_packed.unpack(_packed.pack(value))) == value_shape(value)


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
        _packed.unpack(data)


# What is written here is in caches on disk: a change loses them.
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


Point = collections.namedtuple("Point", "x y")

REFUSED: list[Any] = [
    object(),
    {1, 2},
    datetime.date(2026, 1, 1),
    bytearray(b"x"),
    Level.LOW,
    Point(1, 2),
    collections.OrderedDict(a=1),
    [{"deep": (1, Level.LOW)}],
    {Point(1, 2): 1},
    1j,
]


@pytest.mark.parametrize("value", REFUSED)
def test_other_types_are_refused_with_a_hint(value: Any) -> None:
    with pytest.raises(TypeError, match="PickleSerializer"):
        plain.encode(value)


def test_the_refusal_names_the_type_that_is_at_fault() -> None:
    with pytest.raises(TypeError, match=r"datetime\.date\b"):
        plain.encode({"a": [1, (2, datetime.date(2026, 1, 1))]})


@pytest.mark.parametrize("value", [each for each in REFUSED if type(each) is not object])
def test_a_serializer_takes_the_rest(value: Any) -> None:
    meta, data = pickling.encode(value)
    assert meta == SERIALIZED + b"pickle"
    back = pickling.decode(meta, data)
    assert type(back) is type(value)
    assert back == value


def test_a_serializer_leaves_alone_what_has_a_form() -> None:
    for value in (b"x", "x", 1, [1], {"a": (1, 2)}, None):
        assert pickling.encode(value) == plain.encode(value)


def test_pickles_are_not_read_without_the_serializer() -> None:
    meta, data = pickling.encode({1, 2})
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
    deepest = nested(_packed.MAX_DEPTH, kind)
    assert plain.decode(*plain.encode(deepest)) == deepest
    with pytest.raises(shale.InvalidError):
        plain.encode(nested(_packed.MAX_DEPTH + 1, kind))


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
     b"d\x01l\x00N", b"s\x02\xff\xff", b"f\x00", b"i" + b"\x80" * 20, b"b\xff\xff\xff\xff\x0f"],
)  # fmt: skip
def test_damaged_packs_are_errors(data: bytes) -> None:
    with pytest.raises(ValueError):
        _packed.unpack(data)
    with pytest.raises(Unreadable):
        plain.decode(PACKED, data)
