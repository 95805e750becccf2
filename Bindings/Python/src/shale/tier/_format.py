"""The bytes that the programs of a fleet share, in whatever language they are written.

The remote has two kinds of keys. The prefix is not empty.

===========================  =============================================
remote key                   holds
===========================  =============================================
prefix ``k:`` stored key     a value; stored keys are those of ``shale.Cache``
prefix ``t:`` tag            the version of a tag: 16 random bytes
===========================  =============================================

memcached gets a key with other than printable ASCII characters in base64 (flag ``b``), and instead
of one that is then longer than 250 bytes prefix ``k#:`` or ``t#:`` and the SHA-256 of the stored
key or tag, in base64.

A value that does not begin with ``FF 'S' '1'`` is plain bytes, as any program stores them.
Otherwise the next byte says what follows; sizes are seven bits a byte, the lowest first:

=========  ====================================================================
byte       what follows
=========  ====================================================================
``v``      tags; the size of the meta, the meta; the data to the end
``w``      8 bytes: when a set stored it, by the server's clock, microseconds little-endian; then
           as after ``v``
``-``      tags: a loader has found that there is no such value
``L``      the value is being loaded: 16 bytes that name the machine, and 16 random ones
``0``      nothing: a set of a key that memcached does not have is about to store it
any other  a newer release: no value
=========  ====================================================================

Tags are their number (0 to 7), and for each its size, the tag, and the version that it had when
the value was written. A value counts only if each tag still has that version; truncated values, or
values with more tags, do not count. Meta and data are those of a value of ``shale.Cache``.

An entry of the near cache is under the stored key, without meta, with the tag of the epoch and the
value's own tags. Its bytes are the kind (``r``: read from the remote, ``a``: the remote has
nothing, ``l``: loaded while the remote was unreachable), 8 bytes little-endian for when its reading
began, and for ``r`` and ``l`` the value as in the remote.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Union

from .._data import keys
from .._data.values import Codec
from .._data.varint import read_size, size_bytes
from ._errors import RefusedError

MARKER: Final = b"\xffS1"
VALUE: Final = MARKER + b"v"
SET: Final = MARKER + b"w"
MISSING: Final = MARKER + b"-"
LOADING: Final = MARKER + b"L"
ABOUT_TO_SET: Final = MARKER + b"0"

_TIME: Final = struct.Struct("<Q")

OWN: Final = keys.MARKER + b"T"
"""Begins the keys and tags of the tier itself, in the near cache."""

LONGEST_NAME: Final = 65_535
"""Bytes of a stored key or a tag."""

VERSION_SIZE: Final = 16
"""Bytes of a tag's version, drawn at random."""

MACHINE_SIZE: Final = 16

MOST_TAGS: Final = 7
"""The most tags of a value. An entry of the near cache has eight, one of them the epoch's."""

Tags = dict[bytes, bytes]
"""The tags of a value, and the version that each had when it was written."""


def is_name(name: bytes) -> bool:
    """Whether a user's key or tag can have this name. The near cache refuses others."""
    return 0 < len(name) <= LONGEST_NAME and not name.startswith(OWN)


def new_version() -> bytes:
    return os.urandom(VERSION_SIZE)


def tags_of(tags: list[bytes], versions: Sequence[Union[bytes, None]]) -> Tags:
    """Tags with their versions, for a value. RefusedError if a version is missing."""
    found: Tags = {}
    for tag, version in zip(tags, versions):
        if version is None or len(version) != VERSION_SIZE:
            # Evicted at once, or of another program.
            raise RefusedError("the remote does not keep the version of a tag")
        found[tag] = version
    return found


def loading(machine: bytes) -> bytes:
    """A unique marker in place of a value that a machine is loading."""
    return LOADING + machine + new_version()


def is_loading_elsewhere(raw: bytes, machine: bytes) -> bool:
    """Whether another machine is loading the value."""
    return raw.startswith(LOADING) and not raw.startswith(LOADING + machine)


def encode(codec: Codec, value: Any, tags: Tags) -> bytes:
    """A value in the form of the remote. TypeError for a value that needs a serializer."""
    meta, data = codec.encode(value)
    if not meta and not tags and not data.startswith(MARKER):
        return data
    return VALUE + _tags(tags) + size_bytes(len(meta)) + meta + data


def encode_missing(tags: Tags) -> bytes:
    return MISSING + _tags(tags)


class Value(NamedTuple):
    """A value of the remote."""

    tags: Tags
    missing: bool
    """A loader found that there is no value."""
    meta: bytes
    data: bytes


def decode(raw: Union[bytes, None]) -> Union[Value, None]:
    """None if there is no value, a load is running, or the form is unknown."""
    if raw is None:
        return None
    if not raw.startswith(MARKER):
        return Value({}, False, b"", raw)
    form = raw[: len(VALUE)]
    if form not in (VALUE, SET, MISSING):
        return None
    try:
        tags, at = _read_tags(raw, len(form) + (_TIME.size if form == SET else 0))
        if form == MISSING:
            return Value(tags, True, b"", b"")
        size, at = read_size(raw, at)
    except ValueError:
        return None
    if at + size > len(raw):
        return None
    return Value(tags, False, raw[at : at + size], raw[at + size :])


def with_time(raw: bytes, at: Union[int, None]) -> bytes:
    """A value with the time of its set, microseconds, if it has a place for it."""
    if at is None or not raw.startswith(VALUE):
        return raw
    return SET + _TIME.pack(at) + raw[len(VALUE) :]


def set_at(raw: bytes) -> Union[int, None]:
    """When a set stored a value, by the server's clock, microseconds; None: it does not say."""
    if not raw.startswith(SET) or len(raw) < len(SET) + _TIME.size:
        return None
    at: int = _TIME.unpack_from(raw, len(SET))[0]
    return at


def body(raw: bytes) -> bytes:
    """What follows ``v``, or ``w`` and the time; other values whole."""
    if raw.startswith(VALUE):
        return raw[len(VALUE) :]
    return raw[len(SET) + _TIME.size :] if raw.startswith(SET) else raw


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
        tag = raw[at : at + size]
        if not is_name(tag):
            raise ValueError("no tier has written this tag")
        tags[tag] = raw[at + size : end]
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
    """READ: the bytes that the remote had; ABSENT: it had none; ALONE: bytes that were loaded while
    the remote could not be reached, so that no invalidation covers them."""
    began: int
    """When its read began, nanoseconds of `_near.now`."""
    raw: bytes

    def encode(self) -> bytes:
        return _HEAD.pack(self.kind, self.began) + self.raw


def decode_near(stored: bytes) -> Near:
    kind, began = _HEAD.unpack_from(stored)
    return Near(kind, began, stored[_HEAD.size :])
