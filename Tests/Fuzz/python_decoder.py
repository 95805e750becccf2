#!/usr/bin/env python3
"""What another program stored, read by the Python binding: any key, meta and value.

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
    from shale import _keys, _options, _values
else:
    import atheris

    with atheris.instrument_imports(include=["shale", "json"]):
        import shale
        from shale import _keys, _options, _values

METAS = [
    *_values.FIXED_METAS,
    b"",
    _values.SERIALIZED + b"pickle",
    _values.SERIALIZED + b"other",
    _values.MARKER,
    _values.MISSING,
    _values.WITH_META,
    *(
        _values.join_meta(meta, b"etag")
        for meta in (
            _values.STR,
            _values.INT,
            _values.SERIALIZED + b"other",
            _values.MISSING,
            _values.join_meta(_values.STR, b"etag"),
        )
    ),
    _values.join_meta(b"", _values.MARKER),
]
KEYS = [b"", *(_keys.MARKER + letter for letter in (b"s", b"i", b"t", b"b", b"")), _keys.MARKER + b"b" + _keys.MARKER]


class Loads:
    """A serializer whose input is anything."""

    name = "other"

    def dumps(self, value: Any, /) -> bytes:
        return repr(value).encode()

    def loads(self, data: bytes, /) -> Any:
        if data[:1] == b"!":
            raise RuntimeError("no")
        return data.decode()


cache = shale.Cache(None, capacity="1MiB", serializer=Loads())
codec = _values.Codec(Loads())


# What is equal although it differs, or differs from itself.
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

    name = _keys.decode_key(key)
    assert _keys.encode_key(name) == key, (key, name)

    # A loader found that there is no such thing. Its meta says so, whatever the bytes; no other meta does.
    negative = meta == _values.MISSING
    absent = object()
    undecodable = codec.undecodable
    try:
        value = codec.decode(meta, body)
    except _values.Unreadable:
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

    options = ctypes.byref(_options.set_options(meta)) if meta else None

    def store() -> None:
        assert cache._pool.lend(lambda lease: lease.set(key, body, options)) == 0

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
    assert list(cache) == ([] if negative or readable else [name])

    store()
    assert cache.add(name, "added") == negative
    assert same(cache.get(name, absent), "added" if negative else value)

    store()
    result = cache.entry_or_load(name, lambda _: "loaded")
    assert result.missing == negative
    assert result.source == ("cache" if negative or readable else "loaded")
    assert negative or same(result.value, value if readable else "loaded")
    assert same(cache.get(name, absent), absent if negative else result.value)

    store()
    counts = len(body) == 8 and meta in (b"", _values.INT) and body != b"\xff" * 7 + b"\x7f"
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
