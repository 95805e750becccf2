#!/usr/bin/env python3
"""Reads entries of another program by the Python binding: any key, meta and value.

Values that Python cannot read are misses; keys that are none of Python's are
bytes; nothing else is ever raised. Takes libFuzzer's arguments (atheris), or
files and folders to replay: python_decoder.py --replay FILE...
"""

from __future__ import annotations

import ctypes
import math
import sys
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "Bindings" / "Python" / "src"))
REPLAY = sys.argv[1:2] == ["--replay"]

if REPLAY:
    import shale
    from shale._data import keys, values
    from shale._data.options import set_options
else:
    import atheris

    with atheris.instrument_imports(include=["shale", "json"]):
        import shale
        from shale._data import keys, values
        from shale._data.options import set_options

METAS = [
    *values.FIXED_METAS,
    b"",
    values.SERIALIZED + b"pickle",
    values.SERIALIZED + b"other",
    values.MARKER,
    values.MISSING,
    values.WITH_META,
    *(
        values.join_meta(meta, b"etag")
        for meta in (
            values.STR,
            values.INT,
            values.SERIALIZED + b"other",
            values.MISSING,
            values.join_meta(values.STR, b"etag"),
        )
    ),
    values.join_meta(b"", values.MARKER),
]
KEYS = [b"", *(keys.MARKER + letter for letter in (b"s", b"i", b"t", b"b", b"")), keys.MARKER + b"b" + keys.MARKER]


class Loads:
    """A serializer that accepts any input."""

    name = "other"

    def dumps(self, value: Any, /) -> bytes:
        return repr(value).encode()

    def loads(self, data: bytes, /) -> Any:
        if data[:1] == b"!":
            raise ValueError("no")
        return data.decode()


cache = shale.Cache(None, capacity="1MiB", serializer=Loads())
codec = values.Codec(Loads())


# Values that are equal although they differ, or differ from themselves.
EXACT = (set, frozenset, datetime, Decimal)


def same(a: Any, b: Any) -> bool:
    """Equal with their types; NaN equals itself."""
    stack = [(a, b)]
    while stack:
        x, y = stack.pop()
        if type(x) is not type(y):
            return False
        if isinstance(x, float):
            if x != y and not (math.isnan(x) and math.isnan(y)):
                return False
        elif isinstance(x, (list, tuple)):
            if len(x) != len(y):
                return False
            stack += zip(x, y, strict=False)
        elif isinstance(x, dict):
            if len(x) != len(y):
                return False
            stack += zip(x.keys(), y.keys(), strict=False)
            stack += zip(x.values(), y.values(), strict=False)
        elif type(x) in EXACT:
            if codec.encode(x) != codec.encode(y):
                return False
        elif x != y:
            return False
    return True


def one_input(data: bytes) -> None:
    head, body = data[:3].ljust(3, b"\0"), data[3:]
    key_size = head[2] % 32
    key = KEYS[head[1] % len(KEYS)] + body[:key_size] or b"k"
    body = body[key_size:]
    meta = METAS[head[0] % len(METAS)]
    if head[0] & 64:
        meta += body[: head[2] >> 5]
        body = body[head[2] >> 5 :]

    if meta == values.FAILED or key.startswith((keys.LOCK, keys.FAILURE)):
        return  # Not of a key in Python.
    name = keys.decode_key(key)
    assert keys.encode_key(name) == key, (key, name)

    # A loader found that there is no value. Its meta says so, whatever the bytes; no other meta does.
    negative = meta == values.MISSING
    absent = object()
    undecodable = codec.undecodable
    try:
        value = codec.decode(meta, body)
    except values.Unreadable:
        value = absent
        assert codec.undecodable == undecodable + (not negative)
    else:
        assert not negative
        assert codec.undecodable == undecodable
        try:
            again = codec.decode(*codec.encode(value))
        except shale.InvalidError:
            pass  # nested more deeply than Python may store
        else:
            assert same(value, again), (value, again)
    readable = value is not absent

    options = ctypes.byref(set_options(meta)) if meta else None

    def store() -> None:
        assert cache._pool.run(lambda lease: lease.set(key, body, options)) == 0

    store()
    assert same(cache.get(name, absent), value)
    assert (name in cache) == codec.knows(meta)
    assert not readable or codec.knows(meta)
    assert not negative or not codec.knows(meta)
    found = cache.get_many([name])
    assert (name in found) == readable
    assert dict(cache.items()).keys() == found.keys()
    assert list(cache) == ([] if negative else [name])
    entry = cache.entry(name)
    assert (entry is not None) == readable

    heard: list[shale.Event] = []
    stops = [cache.on(kind, heard.append) for kind in ("hit", "miss")]
    assert same(cache.get(name, absent), value)
    for stop in stops:
        stop()
    reason = None if readable else "missing" if negative else "undecodable"
    assert [(event.name, event.reason) for event in heard] == [("hit" if readable else "miss", reason)]

    assert same(cache.pop(name, absent), value)
    assert list(cache) == []

    store()
    assert cache.add(name, "added") != readable
    assert same(cache.get(name, absent), value if readable else "added")

    store()
    result = cache.entry_or_load(name, lambda _: "loaded")
    assert result.missing == negative
    assert result.source == ("cache" if negative or readable else "loaded")
    assert negative or same(result.value, value if readable else "loaded")
    assert same(cache.get(name, absent), absent if negative else result.value)

    store()
    counts = len(body) == 8 and meta in (b"", values.INT) and body != b"\xff" * 7 + b"\x7f"
    try:
        number = cache.incr(name, 1)
    except shale.Error:
        assert not counts and not negative
    else:
        assert counts or negative
        assert number == (0 if negative else int.from_bytes(body, "little", signed=True)) + 1
    cache.clear()


def main() -> None:
    if REPLAY:
        files = [
            file for path in map(Path, sys.argv[2:]) for file in (sorted(path.iterdir()) if path.is_dir() else [path])
        ]
        for file in files:
            print(file, file=sys.stderr)
            one_input(file.read_bytes())
        print(f"{len(files)} inputs replayed")
        return
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
