"""The options of ``shale_open`` and ``shale_set``, built from Python's arguments."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, TypedDict, Union

from .._native import abi, waits
from .._native.errors import InvalidError
from .._native.units import Seconds, age_ms, capacity_bytes, duration_ms, unsigned
from .values import FIXED_METAS

if TYPE_CHECKING:
    from typing import Callable, Literal

    from typing_extensions import TypeAlias

    from .serializers import Serializer

    Eviction: TypeAlias = Literal["lru", "clock"]

Tag = Union[str, bytes]
"""A name for a group of entries. A str is the same tag as its UTF-8 bytes."""

if TYPE_CHECKING:
    # The arguments of `Store._store` after the flags.
    Rest: TypeAlias = tuple[Seconds | None, Seconds | None, Tag | None, Iterable[Tag] | None, bytes]


class EntryOptions(TypedDict, total=False):
    """Ages and tags of an entry. ``Cache.set`` describes each."""

    max_age: Seconds | None
    stale: Seconds | None
    tag: Tag | None
    tags: Iterable[Tag] | None


class StoreOptions(EntryOptions, total=False):
    """Options of all calls that store. ``Cache.set`` describes each."""

    pinned: bool
    meta: bytes
    compress: bool


class SetOptions(StoreOptions, total=False):
    """The options of ``Cache.set``, which describes each."""

    if_present: bool
    if_version: int | None


class ReadOptions(TypedDict, total=False):
    """Options of all calls that read. ``Cache.get`` describes each."""

    stale: bool
    peek: bool


class LockOptions(TypedDict, total=False):
    """The options of ``Cache.lock``, which describes each."""

    timeout: Seconds | None
    lease: Seconds


class LeaseOptions(TypedDict, total=False):
    """The options of ``Cache.lease``, which describes each."""

    stale: bool
    lease: Seconds
    refresh_ahead: Seconds


class OpenOptions(TypedDict, total=False):
    """The options of ``Cache``, which describes each."""

    capacity: int | str | None
    max_entries: int | None
    accept_capacity: bool
    max_age: Seconds | None
    stale: Seconds | None
    read_only: bool
    must_exist: bool
    sync_on_close: bool
    serializer: Serializer | None
    serialize_all: bool
    compression: str
    now: Callable[[], float] | None
    shards: int | None
    segment_size: int | str | None
    mode: int | None
    eviction: Eviction | None
    lock_timeout: Seconds | None
    reserve_capacity: int | str | None


def keeping(
    *,
    max_age: Seconds | None = None,
    stale: Seconds | None = None,
    tag: Tag | None = None,
    tags: Iterable[Tag] | None = None,
) -> tuple[Seconds | None, Seconds | None, list[bytes]]:
    """Ages and tags."""
    return max_age, stale, tag_list(tag, tags)


def storing(
    *,
    max_age: Seconds | None = None,
    stale: Seconds | None = None,
    tag: Tag | None = None,
    tags: Iterable[Tag] | None = None,
    pinned: bool = False,
    meta: bytes = b"",
    compress: bool = True,
) -> tuple[int, Rest]:
    """The flags of ``shale_set``, and the other arguments of `Store._store`."""
    return store_flags(pinned, compress), (max_age, stale, tag, tags, meta)


def store_flags(pinned: bool, compress: bool) -> int:
    return (abi.SET_PINNED if pinned else 0) | (0 if compress else abi.SET_UNCOMPRESSED)


def read_flags(stale: bool, peek: bool) -> int:
    return (abi.GET_STALE if stale else 0) | (abi.GET_PEEK if peek else 0)


COMPRESSIONS: Final = {
    "dictionary": abi.COMPRESSION_DICTIONARY,
    "lz4": abi.COMPRESSION_LZ4,
    "none": abi.COMPRESSION_NONE,
    "dense": abi.COMPRESSION_DENSE,
}

EVICTIONS: Final[dict[Eviction, int]] = {
    "lru": abi.EVICTION_LRU,
    "clock": abi.EVICTION_CLOCK,
}


def open_options(
    *,
    capacity: int | str | None,
    max_entries: int | None,
    max_age: Seconds | None,
    stale: Seconds | None,
    read_only: bool,
    must_exist: bool,
    sync_on_close: bool,
    compression: str,
    shards: int | None,
    segment_size: int | str | None,
    mode: int | None,
    eviction: Eviction | None,
    lock_timeout: Seconds | None,
    reserve_capacity: int | str | None,
) -> abi.Options:
    if compression not in COMPRESSIONS:
        raise InvalidError(f"compression is one of {', '.join(COMPRESSIONS)}, not {compression!r}")
    if eviction is not None and eviction not in EVICTIONS:
        raise InvalidError(f"eviction is one of {', '.join(EVICTIONS)}, not {eviction!r}")
    flags = 0
    if read_only:
        flags |= abi.OPEN_READ_ONLY
    if must_exist:
        flags |= abi.OPEN_MUST_EXIST
    if not sync_on_close:
        flags |= abi.OPEN_NO_SYNC
    segment = capacity_bytes(segment_size)
    return abi.Options(
        struct_size=abi.OPTIONS_SIZE,
        flags=flags,
        capacity=capacity_bytes(capacity),
        max_entries=_count("max_entries", max_entries, 64),
        max_age_ms=age_ms(max_age),
        stale_ms=age_ms(stale),
        shards=_count("shards", shards, 32),
        segment_size=unsigned("segment_size", segment, 32),
        mode=_count("mode", mode, 32),
        compression=COMPRESSIONS[compression],
        eviction=EVICTIONS[eviction or "lru"],
        # In C, 0 is no limit.
        lock_timeout_ms=0
        if lock_timeout is None
        else max(1, duration_ms("lock_timeout", lock_timeout)),
        on_wait=waits.LISTENER,
        wait_context=waits.CONTEXT,
        reserve_capacity=capacity_bytes(reserve_capacity),
    )


def _count(name: str, number: int | None, bits: int) -> int:
    # In C, 0 is the default; in Python the default is None, and 0 is an error.
    return 0 if number is None else unsigned(name, number, bits, least=1)


def plain_set_options(*metas: bytes) -> dict[bytes, Any]:
    """By meta, a pointer to the options of a set with defaults only."""
    return {b"": None, **set_options_by_meta(*FIXED_METAS, *metas)}


def set_options_by_meta(
    *metas: bytes,
    max_age: Seconds | None = None,
    stale: Seconds | None = None,
    tags: Iterable[bytes] = (),
) -> dict[bytes, Any]:
    return {meta: ctypes.byref(set_options(meta, 0, max_age, stale, tags)) for meta in metas}


def set_options(
    meta: bytes,
    flags: int = 0,
    max_age: Seconds | None = None,
    stale: Seconds | None = None,
    tags: Iterable[bytes] = (),
    version: int = 0,
) -> abi.SetOptions:
    # By position, which is twice as fast as by name: size, flags, ages, version, meta.
    options = abi.SetOptions(
        abi.SET_OPTIONS_SIZE,
        flags,
        age_ms(max_age),
        age_ms(stale),
        version,
        meta or None,
        len(meta),
    )
    named = [abi.Bytes(tag, len(tag)) for tag in tags]
    if named:
        options.tags = (abi.Bytes * len(named))(*named)
        options.tag_count = len(named)
    return options


def tag_bytes(tag: Tag) -> bytes:
    if isinstance(tag, str):
        return tag.encode("utf-8", "surrogatepass")
    if isinstance(tag, bytes):
        return tag
    raise TypeError(f"a tag is str or bytes, not {type(tag).__name__}")


def tag_list(tag: Tag | None, tags: Iterable[Tag] | None) -> list[bytes]:
    """``tag=`` and ``tags=`` together."""
    if isinstance(tags, (str, bytes)):
        raise TypeError("tags is a list of tags; for a single one use tag=")
    found = [] if tag is None else [tag_bytes(tag)]
    if tags is not None:
        found += map(tag_bytes, tags)
    return found
