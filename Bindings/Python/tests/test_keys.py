"""Keys: a permanent one-to-one mapping to stored keys."""

from __future__ import annotations

import enum
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import key_shape, keys, markers

import shale
from shale._data.keys import MARKER, MAX_DEPTH, decode_key, encode_key


@given(keys)
def test_round_trip(key: Any) -> None:
    stored = encode_key(key)
    assert stored
    assert key_shape(decode_key(stored)) == key_shape(key)


@given(keys, keys)
def test_two_keys_never_meet(one: Any, other: Any) -> None:
    assert (encode_key(one) == encode_key(other)) == (key_shape(one) == key_shape(other))


@given(st.binary(min_size=1) | markers.filter(bool))
def test_every_stored_key_is_the_key_of_one_object(stored: bytes) -> None:
    assert encode_key(decode_key(stored)) == stored


# These forms are in caches on disk: a change loses their entries.
FIXED: list[tuple[Any, bytes]] = [
    (b"user:1", b"user:1"),
    ("user:1", b"\xffP1suser:1"),
    ("", b"\xffP1s"),
    ("é", b"\xffP1s\xc3\xa9"),
    ("\udcff", b"\xffP1s\xed\xb3\xbf"),
    (0, b"\xffP1i\x00"),
    (1, b"\xffP1i\x01"),
    (-1, b"\xffP1i\xff"),
    (127, b"\xffP1i\x7f"),
    (128, b"\xffP1i\x00\x80"),
    (-128, b"\xffP1i\x80"),
    (2**64, b"\xffP1i\x01" + bytes(8)),
    ((), b"\xffP1t"),
    (("a", b"b", 3), b"\xffP1ts\x01ab\x01bi\x01\x03"),
    ((("a",),), b"\xffP1tt\x03s\x01a"),
    (date(2026, 1, 31), b"\xffP1d\x07\xea\x01\x1f"),
    (UUID(int=1), b"\xffP1u" + bytes(15) + b"\x01"),
    ((date.min, UUID(int=0)), b"\xffP1td\x04\x00\x01\x01\x01u\x10" + bytes(16)),
    (b"\xffP1d\x07\xea\x02\x1f", b"\xffP1d\x07\xea\x02\x1f"),
    (b"\xffP1d\x07\xea\x01", b"\xffP1d\x07\xea\x01"),
    (b"\xffP1d\x07\xea\x01\x1f", b"\xffP1b\xffP1d\x07\xea\x01\x1f"),
    (b"\xffP1u" + bytes(15), b"\xffP1u" + bytes(15)),
    (b"\xffP1u" + bytes(16), b"\xffP1b\xffP1u" + bytes(16)),
    (("x" * 200,), b"\xffP1ts\xc8\x01" + b"x" * 200),
    (b"", b"\xffP1b"),
    (b"\xffP1", b"\xffP1"),
    (b"\xffP1sa", b"\xffP1b\xffP1sa"),
    (b"\xffP1b", b"\xffP1b\xffP1b"),
    (b"\xffP1bx", b"\xffP1bx"),
    (b"\xffP1i\x00\x01", b"\xffP1i\x00\x01"),
]


@pytest.mark.parametrize(("key", "stored"), FIXED)
def test_the_form_never_changes(key: Any, stored: bytes) -> None:
    assert encode_key(key) == stored
    assert key_shape(decode_key(stored)) == key_shape(key)


class Plain(enum.Enum):
    MEMBER = 1


def test_subclasses_are_the_keys_that_they_equal() -> None:
    class Color(str, enum.Enum):
        RED = "red"

    class Number(enum.IntEnum):
        ONE = 1

    class Name(str):
        pass

    class Blob(bytes):
        pass

    assert encode_key(Color.RED) == encode_key("red")
    assert encode_key(Number.ONE) == encode_key(1)
    assert encode_key((Name("a"), Blob(b"b"))) == encode_key(("a", b"b"))
    assert encode_key(Blob(b"b")) == b"b"


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        (True, "int(key)"),
        (1.5, "repr(key)"),
        (None, "NoneType"),
        (bytearray(b"x"), "bytes(key)"),
        (["x"], "tuple(key)"),
        ({"x"}, "sorted(key)"),
        (datetime(2026, 1, 31), "isoformat()"),
        (time(12), "isoformat()"),
        (Decimal(1), "str(key)"),
        (Plain.MEMBER, "key.name"),
        (("x", None), "NoneType"),
        (object(), "object"),
    ],
)
def test_other_types_are_refused_with_a_hint(key: Any, hint: str) -> None:
    with pytest.raises(TypeError) as raised:
        encode_key(key)
    assert hint in str(raised.value)


def nested(depth: int) -> Any:
    key: Any = "x"
    for _ in range(depth):
        key = (key,)
    return key


def test_nesting_has_an_end() -> None:
    assert decode_key(encode_key(nested(MAX_DEPTH))) == nested(MAX_DEPTH)
    with pytest.raises(shale.InvalidError):
        encode_key(nested(MAX_DEPTH + 1))


def test_deep_foreign_bytes_are_bytes() -> None:
    stored = MARKER + b"t" * 60000
    assert decode_key(stored) == stored
    escaped = (MARKER + b"b") * 16000
    assert encode_key(decode_key(escaped)) == escaped
