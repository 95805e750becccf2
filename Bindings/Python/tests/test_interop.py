"""Entries that other programs store and read, through the C interface."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

import shale
from shale._data.options import set_options
from shale._native import library

Raw = tuple[bytes, bytes]


def c_set(cache: shale.Cache, key: bytes, value: bytes, meta: bytes = b"") -> None:
    """As a C program would."""
    options = ctypes.byref(set_options(meta)) if meta else None
    context = cache._pool.make()
    assert context.set(key, value, options) == 0
    cache._pool.idle.append(context)


def c_get(cache: shale.Cache, key: bytes) -> Raw | None:
    context = cache._pool.make()
    try:
        return context.buffer.take() if context.get(key, 0) == 0 else None
    finally:
        cache._pool.idle.append(context)


def test_raw_bytes_go_both_ways(cache: shale.Cache) -> None:
    c_set(cache, "schlüssel".encode(), b"value")
    assert cache["schlüssel".encode()] == b"value"
    cache[b"key"] = b"\x00\xff"
    assert c_get(cache, b"key") == (b"\x00\xff", b"")
    assert sorted(cache) == [b"key", "schlüssel".encode()]


def test_a_foreign_meta_is_not_a_type(cache: shale.Cache) -> None:
    c_set(cache, b"page", b"<html>", meta=b'W/"etag"')
    assert cache[b"page"] == b"<html>"
    assert dict(cache.items()) == {b"page": b"<html>"}
    entry = cache.entry(b"page")
    assert entry is not None
    assert entry.meta == b'W/"etag"'
    assert cache.get_many([b"page"]) == {b"page": b"<html>"}
    assert cache.pop(b"page") == b"<html>"


def test_a_long_meta(cache: shale.Cache) -> None:
    meta = b"m" * 65_535
    c_set(cache, b"k", b"", meta=meta)
    entry = cache.entry(b"k")
    assert entry is not None
    assert (entry.value, entry.meta) == (b"", meta)


@pytest.mark.parametrize(
    ("meta", "data"), [(b"\xffP1?", b"new"), (b"\xffP1i", b"short"), (b"\xffP1j", b"{"),
                       (b"\xffP1x", b"l\x05"), (b"\xffP1zpickle", b"."), (b"\xffP1s", b"\xff")]
)  # fmt: skip
def test_what_cannot_be_read_is_a_miss(cache: shale.Cache, meta: bytes, data: bytes) -> None:
    c_set(cache, b"k", data, meta=meta)
    cache["good"] = 1
    assert cache.get(b"k", "default") == "default"
    assert cache.get_many([b"k", "good"]) == {"good": 1}
    assert cache.entry(b"k") is None
    with pytest.raises(KeyError):
        cache[b"k"]
    assert dict(cache.items()) == {"good": 1}
    assert set(cache) == {b"k", "good"}
    # It stays for caches that can read it, and can be replaced and removed.
    assert c_get(cache, b"k") == (data, meta)
    cache[b"k"] = "new"
    assert cache[b"k"] == "new"
    c_set(cache, b"k", data, meta=meta)
    assert cache.pop(b"k", 5) == 5
    assert c_get(cache, b"k") is None


def test_unknown_types_are_not_contained(cache: shale.Cache) -> None:
    c_set(cache, b"k", b"x", meta=b"\xffP1?")
    assert b"k" not in cache
    assert cache.remove(b"k")


def test_foreign_keys_come_back_as_bytes(cache: shale.Cache) -> None:
    stored = [b"\xff", b"\xffP1", b"\xffP1?x", b"\xffP1i", b"\xffP1i\x00\x00", b"\xffP1ts\x09a"]
    for key in stored:
        c_set(cache, key, b"v")
    assert sorted(cache) == sorted(stored)
    for key in stored:
        assert cache[key] == b"v"


def test_an_increment_by_another_program(cache: shale.Cache) -> None:
    cache["n"] = 41
    key = b"\xffP1sn"
    context = cache._pool.make()
    result = ctypes.c_int64()
    library.increment(context.pointer, key, len(key), 1, 0, ctypes.byref(result))
    cache._pool.idle.append(context)
    assert result.value == 42
    assert cache["n"] == 42


def test_pickles_need_the_serializer(tmp_path: Any) -> None:
    with shale.Cache(tmp_path / "c", capacity="8MiB", serializer=shale.PickleSerializer()) as one:
        one["complex"] = 1j
        one["list"] = [1, 2]
        assert one["complex"] == 1j
        with shale.Cache(tmp_path / "c") as other:
            assert other.get("complex") is None
            assert "complex" not in other
            assert other["list"] == [1, 2]


def test_a_serializer_of_ones_own(tmp_path: Any) -> None:
    class Complex:
        name = "complex/1"

        def dumps(self, value: complex) -> bytes:
            return repr(value).encode()

        def loads(self, data: bytes) -> complex:
            return complex(data.decode())

    with shale.Cache(tmp_path / "c", capacity="8MiB", serializer=Complex()) as cache:
        cache["z"] = 1 + 2j
        assert cache["z"] == 1 + 2j
        cache.set_many({"a": 1j, "b": 2j})
        assert cache.get_many(["a", "b"]) == {"a": 1j, "b": 2j}
