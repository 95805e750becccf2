"""Keys and values of every kind, and how to compare them with their types."""

from __future__ import annotations

import math
from collections import OrderedDict
from datetime import datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

from shale._data.keys import MARKER

surrogates = st.characters(categories=["Cs"])
text = st.text(st.characters() | surrogates)
markers = st.lists(
    st.sampled_from([MARKER, b"\xff", b"s", b"b", b"i", b"t", b"d", b"u", b"\x00", b"\x01", b"a"]),
    max_size=12,
).map(b"".join)
key_scalars = (
    text | st.binary() | markers | st.integers() | st.integers(-300, 300) | st.dates() | st.uuids()
)
keys: st.SearchStrategy[Any] = st.recursive(
    key_scalars, lambda inner: st.lists(inner, max_size=4).map(tuple), max_leaves=12
)


def key_shape(key: Any) -> Any:
    """A key with its types, which `==` does not compare."""
    return tuple(map(key_shape, key)) if isinstance(key, tuple) else (type(key), key)


ZONES: list[Any] = [
    None,
    timezone.utc,
    timezone(timedelta(hours=5, minutes=30)),
    timezone(timedelta(microseconds=-1)),
    ZoneInfo("UTC"),
]

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | text
    | st.binary()
    | st.dates()
    | st.datetimes(timezones=st.sampled_from(ZONES))
    | st.times(timezones=st.sampled_from(ZONES))
    | st.timedeltas()
    | st.decimals().filter(lambda number: not number.is_snan())
    | st.uuids()
)
hashable: st.SearchStrategy[Any] = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=4
)
values: st.SearchStrategy[Any] = st.recursive(
    scalars | st.binary().map(bytearray),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.lists(inner, max_size=5).map(tuple)
        | st.dictionaries(st.text(), inner, max_size=5)
        | st.dictionaries(hashable, inner, max_size=5)
        | st.dictionaries(st.text(), inner, max_size=5).map(OrderedDict)
        | st.sets(hashable, max_size=5)
        | st.frozensets(hashable, max_size=5)
    ),
    max_leaves=25,
)


def value_shape(value: Any) -> Any:
    """A value with its types and the order of its dicts; NaN equals itself, 0.0 not -0.0."""
    if isinstance(value, (list, tuple)):
        return type(value), [value_shape(item) for item in value]
    if isinstance(value, dict):
        return type(value), [(value_shape(key), value_shape(item)) for key, item in value.items()]
    if isinstance(value, float):
        return float, "nan" if math.isnan(value) else value.hex()
    if isinstance(value, (set, frozenset)):
        return type(value), sorted(repr(value_shape(item)) for item in value)
    if isinstance(value, (datetime, time, Decimal)):
        # With its zone, fold and digits; NaN equals itself.
        return type(value), repr(value)
    return type(value), value
