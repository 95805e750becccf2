"""What the remote stores under a key, and what the near cache keeps of it: Documentation/tier.md
has every byte.

A value of the remote is the plain bytes that any program stores there, or one of three forms, which
begin with a marker. An entry of the near cache is when its reading began, and what was read.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Union

from .._values import Codec
from .._varint import read_size, size_bytes
from ._errors import RefusedError

MARKER: Final = b"\xffS1"
VALUE: Final = MARKER + b"v"
MISSING: Final = MARKER + b"-"
LOADING: Final = MARKER + b"L"

VERSION_SIZE: Final = 16
"""Bytes of a tag's version, drawn at random."""

MOST_TAGS: Final = 7
"""Tags of a value. An entry of the near cache has eight, and one is the epoch's."""

Tags = dict[bytes, bytes]
"""The tags of a value, and the version that each had when it was written."""


def new_version() -> bytes:
    return os.urandom(VERSION_SIZE)


def tags_of(tags: list[bytes], versions: Sequence[Union[bytes, None]]) -> Tags:
    """Tags with their versions, for a value. RefusedError where there is none."""
    found: Tags = {}
    for tag, version in zip(tags, versions):
        if version is None or len(version) != VERSION_SIZE:
            # Evicted at once, or another program's.
            raise RefusedError("the remote does not keep the version of a tag")
        found[tag] = version
    return found


def loading() -> bytes:
    """What stands for a value that is being loaded: no two are the same."""
    return LOADING + new_version()


def encode(codec: Codec, value: Any, tags: Tags) -> bytes:
    """A value as the remote has it. TypeError for what can't be stored without a serializer."""
    meta, data = codec.encode(value)
    if not meta and not tags and not data.startswith(MARKER):
        return data
    return VALUE + _tags(tags) + size_bytes(len(meta)) + meta + data


def encode_missing(tags: Tags) -> bytes:
    return MISSING + _tags(tags)


class Value(NamedTuple):
    """What the remote has under a key."""

    tags: Tags
    missing: bool
    """There is no such thing: a loader has found so."""
    meta: bytes
    data: bytes


def decode(raw: Union[bytes, None]) -> Union[Value, None]:
    """None where there is no value: nothing, what is being loaded, or a form that is not known."""
    if raw is None:
        return None
    if not raw.startswith(MARKER):
        return Value({}, False, b"", raw)
    form = raw[: len(VALUE)]
    if form not in (VALUE, MISSING):
        return None
    try:
        tags, at = _read_tags(raw, len(form))
        if form == MISSING:
            return Value(tags, True, b"", b"")
        size, at = read_size(raw, at)
    except ValueError:
        return None
    if at + size > len(raw):
        return None
    return Value(tags, False, raw[at : at + size], raw[at + size :])


def _tags(tags: Tags) -> bytes:
    parts = [size_bytes(len(tags))]
    for tag, version in tags.items():
        parts += (size_bytes(len(tag)), tag, version)
    return b"".join(parts)


def _read_tags(raw: bytes, at: int) -> tuple[Tags, int]:
    count, at = read_size(raw, at)
    if count > MOST_TAGS:
        raise ValueError("too many tags")
    tags: Tags = {}
    for _ in range(count):
        size, at = read_size(raw, at)
        end = at + size + VERSION_SIZE
        if end > len(raw):
            raise ValueError("a tag is cut off")
        tags[raw[at : at + size]] = raw[at + size : end]
        at = end
    return tags, at


# The near cache

READ: Final = ord("r")
ABSENT: Final = ord("a")
ALONE: Final = ord("l")

_HEAD: Final = struct.Struct("<BQ")


class Near(NamedTuple):
    """An entry of the near cache."""

    kind: int
    """READ: the rest is what the remote had; ABSENT: it had nothing; ALONE: the rest was loaded
    while the remote could not be reached, so no invalidation vouches for it."""
    began: int
    """When its reading began, nanoseconds of `_near.now`."""
    raw: bytes

    def encode(self) -> bytes:
        return _HEAD.pack(self.kind, self.began) + self.raw


def decode_near(stored: bytes) -> Near:
    kind, began = _HEAD.unpack_from(stored)
    return Near(kind, began, stored[_HEAD.size :])
