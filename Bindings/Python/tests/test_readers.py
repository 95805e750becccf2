"""``reader`` and ``get_into``: large values without a copy for each step."""

from __future__ import annotations

import asyncio
import gc
import io
import os
import weakref
from array import array
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import SMALL, Clock

import shale
from shale._native.buffers import Buffer
from shale._store import readers

LARGE = os.urandom(1 << 20) + b"the end"


def opened(cache: shale.Cache, key: shale.Key) -> shale.Reader:
    reader = cache.reader(key)
    assert reader is not None
    return reader


def test_it_is_a_file(cache: shale.Cache) -> None:
    cache["k"] = b"one\ntwo\n" + LARGE
    with opened(cache, "k") as file:
        assert (file.readable(), file.seekable(), file.writable()) == (True, True, False)
        assert file.size == len(LARGE) + 8
        assert file.readline() == b"one\n"
        assert file.peek(2) == b"tw"
        assert file.tell() == 4
        assert file.read(4) == b"two\n"
        assert file.read() == LARGE
        assert file.read() == file.read(1) == b""
        assert file.seek(-3, io.SEEK_END) == file.size - 3
        assert file.read1() == b"end"
        assert file.seek(-7, io.SEEK_CUR) == file.size - 7
        part = bytearray(3)
        assert file.readinto(part) == 3
        assert part == b"the"
        assert file.readinto1(bytearray(100)) == 4
        assert file.seek(10**9) == 10**9
        assert (file.read(), file.readinto(part)) == (b"", 0)
        for wrong in [(-1, 0), (0, 3)]:
            with pytest.raises(shale.InvalidError):
                file.seek(*wrong)
        with pytest.raises(io.UnsupportedOperation):
            file.write(b"x")
    assert file.closed
    file.close()
    for call in (file.read, file.tell, file.getbuffer, lambda: file.size):
        with pytest.raises(shale.InvalidError, match="closed"):
            call()


def test_what_reads_files_reads_it(cache: shale.Cache) -> None:
    cache["k"] = "zwölf\r\nBoxkämpfer".encode()
    with opened(cache, "k") as file:
        assert list(io.TextIOWrapper(cast("Any", file), "utf-8")) == ["zwölf\n", "Boxkämpfer"]


@given(st.binary(max_size=300), st.lists(st.integers(-1, 100), max_size=10))
def test_it_reads_as_bytesio_does(data: bytes, sizes: list[int]) -> None:
    ours, theirs = shale.Reader(memoryview(data)), io.BytesIO(data)
    for size in sizes:
        assert ours.read(size) == theirs.read(size)
        assert ours.readline(size) == theirs.readline(size)
        assert ours.tell() == theirs.tell()
    ours.seek(0), theirs.seek(0)
    assert list(ours) == list(theirs)


def test_it_is_the_value_as_it_was(cache: shale.Cache) -> None:
    cache["k"] = LARGE
    with opened(cache, "k") as file:
        cache["k"] = b"another" * 100_000
        cache.clear()
        cache.close()
        assert file.read() == LARGE


def test_views_outlive_it_and_then_the_memory_is_free(cache: shale.Cache) -> None:
    buffers: list[weakref.ref[Any]] = []

    class Watched(Buffer):
        __slots__ = ("__weakref__",)

        def __init__(self) -> None:
            super().__init__()
            buffers.append(weakref.ref(self))

    cache["k"] = LARGE
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(readers, "Buffer", Watched)
        file = opened(cache, "k")
    view = file.getbuffer()
    assert view.readonly
    part = view[-3:]
    file.close()
    del file, view
    gc.collect()
    (buffer,) = buffers
    assert buffer() is not None
    assert bytes(part) == b"end"
    del part
    gc.collect()
    assert buffer() is None


def test_an_empty_value(cache: shale.Cache) -> None:
    cache["k"] = b""
    with opened(cache, "k") as file:
        assert (file.size, file.read(), bytes(file.getbuffer())) == (0, b"", b"")
    assert cache.get_into("k", bytearray()) == 0


def test_get_into(cache: shale.Cache) -> None:
    cache["k"] = LARGE
    buffer = bytearray(b"." * (len(LARGE) + 3))
    assert cache.get_into("k", buffer) == len(LARGE)
    assert buffer == LARGE + b"..."
    # A buffer that is too large is not kept.
    assert all(context.buffer.struct.capacity == 0 for context in cache._pool.idle)
    cache["numbers"] = array("d", [1, 2.5]).tobytes()
    numbers = array("d", [0, 0])
    assert cache.get_into("numbers", numbers) == 16
    assert list(numbers) == [1, 2.5]
    part = memoryview(buffer)[2:18]
    assert cache.get_into("numbers", part) == 16
    assert buffer[2:18] == numbers.tobytes()


def test_a_buffer_that_does_not_fit(cache: shale.Cache) -> None:
    cache["k"] = b"12345"
    small = bytearray(4)
    with pytest.raises(shale.InvalidError, match=r"'k' has 5 bytes, and the buffer only 4"):
        cache.get_into("k", small)
    assert small == bytes(4)
    with pytest.raises(shale.InvalidError, match="cannot write to bytes"):
        cache.get_into("k", bytes(5))
    with pytest.raises(TypeError):
        cache.get_into("k", "text")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="contiguous"):
        cache.get_into("k", memoryview(bytearray(10))[::2])


def test_what_is_not_there(aging: shale.Cache, clock: Clock) -> None:
    assert aging.reader("k") is None
    buffer = bytearray(3)
    assert aging.get_into("k", buffer) is None
    aging.set("k", b"old", max_age=10, stale=10)
    clock.advance(10)
    assert aging.reader("k") is None
    assert aging.get_into("k", buffer) is None
    assert buffer == bytes(3)
    found = aging.reader("k", stale=True)
    assert found is not None
    assert found.read() == b"old"
    assert aging.get_into("k", buffer, stale=True) == 3
    assert buffer == b"old"
    aging.get_or_load("none", shale.Missing)
    assert aging.reader("none") is None
    assert aging.get_into("none", buffer) is None


@pytest.mark.parametrize("value", ["text", 1, None, [b"bytes"]])
def test_what_is_not_bytes(cache: shale.Cache, value: Any) -> None:
    cache["k"] = value
    for call in (lambda: cache.reader("k"), lambda: cache.get_into("k", bytearray(100))):
        with pytest.raises(TypeError, match="'k' is not bytes"):
            call()


def test_a_meta_of_ones_own(cache: shale.Cache) -> None:
    cache.set("k", b"bytes", meta=b"etag")
    cache.set("other", b"bytes", meta=b"\xffP1s")
    assert opened(cache, "k").read() == opened(cache, "other").read() == b"bytes"


def test_what_the_serializer_alone_reads(directory: Path) -> None:
    pickle = shale.PickleSerializer()
    with shale.Cache(directory, capacity=SMALL, serializer=pickle, serialize_all=True) as cache:
        cache["k"] = b"bytes"
        with pytest.raises(TypeError, match="not bytes"):
            cache.reader("k")
    with shale.Cache(directory) as cache:
        assert cache.reader("k") is None
        cache["k"] = b"plain"
    with shale.Cache(directory, serializer=pickle, serialize_all=True) as cache:
        assert cache.reader("k") is None


def test_they_count_and_are_told(cache: shale.Cache) -> None:
    cache["k"] = b"bytes"
    told: list[Any] = []
    for name in ("hit", "miss"):
        cache.on(name, lambda event: told.append((event.name, event.key)))
    cache.reader("k", peek=True)
    cache.get_into("k", bytearray(5), peek=True)
    assert cache.stats().hits == 0
    assert told == []
    cache.reader("k")
    cache.get_into("k", bytearray(5))
    cache.reader("none")
    cache.get_into("none", bytearray(5))
    assert (cache.stats().hits, cache.stats().misses) == (2, 2)
    assert told == 2 * [("hit", "k")] + 2 * [("miss", "none")]


def test_in_a_namespace_and_for_coroutines(cache: shale.Cache) -> None:
    files = cache.namespace("files")
    files["a"] = b"bytes"
    assert opened(files, "a").read() == b"bytes"

    async def main() -> None:
        coroutines = shale.AsyncCache(files)
        found = await coroutines.reader("a")
        assert found is not None
        assert found.read() == b"bytes"
        assert await coroutines.get_into("a", bytearray(5)) == 5

    asyncio.run(main())
