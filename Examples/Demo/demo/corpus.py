"""The corpus: all inputs of the demonstration in one file.

All three programs map this file and compare the cache's results with it. Integers are little-endian.

    file:   "SHALEDM1", u64 count, then the entries
    entry:  u32 key size, u16 tag size, u16 role, u64 value size,
            key, tag, value, zeros up to the next multiple of 8
"""

from __future__ import annotations

import enum
import mmap
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

MAGIC = b"SHALEDM1"
_FILE = struct.Struct("<8sQ")
_ENTRY = struct.Struct("<IHHQ")


class Role(enum.IntEnum):
    """What happens to an entry after filling."""

    PLAIN = 0  # nothing
    REFRESHED = 1  # Python sets it again with a tag and an age of one hour; it stays
    INVALIDATED = 2  # Python does the same; Swift invalidates the tag
    SHORT_LIVED = 3  # Python sets it again with an age of one second; it expires


class Entry(NamedTuple):
    key: bytes
    tag: bytes
    role: int
    value: bytes


def write_corpus(path: Path, entries: Iterable[Entry]) -> None:
    count = 0
    with path.open("wb") as file:
        file.write(_FILE.pack(MAGIC, 0))
        for entry in entries:
            header = _ENTRY.pack(len(entry.key), len(entry.tag), entry.role, len(entry.value))
            file.write(header)
            file.write(entry.key)
            file.write(entry.tag)
            file.write(entry.value)
            file.write(bytes(-(len(entry.key) + len(entry.tag) + len(entry.value)) % 8))
            count += 1
        file.seek(0)
        file.write(_FILE.pack(MAGIC, count))


class Corpus:
    """The mapped file. Keys, tags and roles are lists; values are read on demand."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        magic, count = _FILE.unpack_from(self._map)
        if magic != MAGIC:
            raise ValueError(f"{path} is not a corpus")
        self.keys: list[bytes] = []
        self.tags: list[bytes] = []
        self.roles: list[int] = []
        self._values: list[slice] = []
        position = _FILE.size
        for _ in range(count):
            key_size, tag_size, role, value_size = _ENTRY.unpack_from(self._map, position)
            key = position + _ENTRY.size
            tag = key + key_size
            value = tag + tag_size
            self.keys.append(self._map[key:tag])
            self.tags.append(self._map[tag:value])
            self.roles.append(role)
            self._values.append(slice(value, value + value_size))
            position = (value + value_size + 7) & ~7

    def __len__(self) -> int:
        return len(self.keys)

    def value(self, index: int) -> bytes:
        return self._map[self._values[index]]
