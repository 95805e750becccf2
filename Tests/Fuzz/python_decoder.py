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

METAS = [*_values.FIXED_METAS, b"", _values.SERIALIZED + b"pickle", _values.SERIALIZED + b"other", _values.MARKER]
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

    missing = object()
    try:
        value = codec.decode(meta, body)
    except _values.Unreadable:
        value = missing
    else:
        try:
            again = codec.decode(*codec.encode(value))
        except shale.InvalidError:
            pass  # nested more deeply than Python may store
        else:
            assert same(value, again), (value, again)

    options = ctypes.byref(_options.set_options(meta)) if meta else None
    assert cache._pool.lend(lambda lease: lease.set(key, body, options)) == 0
    assert same(cache.get(name, missing), value)
    assert (name in cache) == codec.knows(meta)
    found = cache.get_many([name])
    assert (name in found) == (value is not missing)
    assert dict(cache.items()).keys() == found.keys()
    assert list(cache) == [name]
    entry = cache.entry(name)
    assert (entry is None) == (value is missing)
    try:
        number = cache.incr(name, 1)
    except shale.Error:
        assert len(body) != 8 or meta not in (b"", _values.INT) or body == b"\xff" * 7 + b"\x7f"
    else:
        assert number == int.from_bytes(body, "little", signed=True) + 1
    cache.pop(name)
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
