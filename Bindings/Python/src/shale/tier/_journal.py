"""The journal of failed writes, whose keys and tags the listener invalidates in the remote when it
can reach that.

It is in the near cache, in pinned entries without end, under ``FF 'P' '1' 'T' 'j'``:

* and two bytes: a bucket, which exists while it has names. For each: its size; the name, which is
  ``k`` and a stored key or ``t`` and a tag; a mark, of 8 bytes: the first 4 of the boot and 4
  random ones, new ones if it fails again; when it failed, or the end of the time in which it may
  still be executed (8 bytes); and the digest of the value
  that was sent (16 bytes). A keyed hash of the name says which bucket.
* and nothing: a bit for each bucket that may have names, the lowest first; or ``*`` and 8 random
  bytes: everything with the prefix is to be removed, and the buckets mean nothing. This is so if a
  bucket has too many names, or the near cache no room for them.

So a failed write costs the same for any number of names, and the listener that finds no bit reads
no bucket.
"""

from __future__ import annotations

import hashlib
import os
import struct
from typing import TYPE_CHECKING, Any, Callable, Final, NamedTuple, Union

from .._data.varint import read_size, size_bytes
from .._native.errors import FullError, TooLargeError
from ._format import OWN, body

if TYPE_CHECKING:
    from .._cache import Cache

_ROOT: Final = OWN + b"j"
_TAG: Final = _ROOT

BUCKETS: Final = 4096
_ALL: Final = b"*"
_RECORD: Final = struct.Struct("<8sQ16s")
_BOOT_SIZE: Final = 4
_PINNED: Final[dict[str, Any]] = {"max_age": float("inf"), "pinned": True}


class Noted(NamedTuple):
    """A failed write."""

    mark: bytes
    when: int
    """A time of `_near.now` after which other writes are newer. In the future: the remote may
    still execute this one until then."""
    sent: bytes
    """The digest of the value that a set has sent."""


Names = dict[bytes, Noted]


class Journal:
    def __init__(self, cache: Cache[Any, Any], most: float, boot: bytes, machine: bytes) -> None:
        """most: names in a bucket."""
        self._cache = cache
        self._most = most
        self._boot = boot[:_BOOT_SIZE]
        self._machine = machine

    # Writers

    def note(self, name: bytes, when: int, sent: bytes = b"") -> None:
        """Adds a name. sent: the value that a set has sent to the remote."""
        bucket = self._bucket(name)
        mark = self._boot + os.urandom(4)
        full = False

        def add(names: Names) -> None:
            nonlocal full
            before = names.get(name)
            latest = when if before is None else max(when, when + self.pending(before, when))
            names[name] = Noted(mark, latest, digest(sent))
            full = len(names) > self._most
            if full:
                del names[name]

        try:
            self._change(bucket, add)
        except (FullError, TooLargeError):
            if self._most == float("inf"):
                raise
            full = True
        self._mark(bucket, full)

    def take(self, name: bytes, now: int) -> Union[Noted, None]:
        """Removes a name, before it is written again; unless the write that failed is pending."""
        bucket = self._bucket(name)
        taken: list[Noted] = []

        def remove(names: Names) -> None:
            noted = names.get(name)
            if noted is not None and not self.pending(noted, now):
                taken.append(names.pop(name))

        if name in self.names(bucket):
            self._change(bucket, remove)
        return taken[-1] if taken else None

    def pending_write(self, name: bytes, now: int) -> int:
        """`pending`, of a name."""
        noted = self.names(self._bucket(name)).get(name)
        return 0 if noted is None else self.pending(noted, now)

    def pending(self, noted: Noted, now: int) -> int:
        """The nanoseconds for which the remote may still execute the write."""
        age = self.age(noted, now)
        return 0 if age is None else max(0, -age)

    def put_back(self, name: bytes, taken: Union[Noted, None]) -> None:
        """Undoes `take`, if the name was not noted again since."""
        if taken is not None:
            bucket = self._bucket(name)
            self._change(bucket, lambda names: names.setdefault(name, taken))
            self._mark(bucket)

    def _mark(self, bucket: bytes, full: bool = False) -> None:
        """After a change of the bucket. full: everything is to be removed."""
        number = int.from_bytes(bucket[len(_ROOT) :], "big")
        at, bit = number // 8, 1 << number % 8

        def change(value: bytes) -> bytes:
            if full or value.startswith(_ALL):
                # Also if that has begun: it may have passed this key.
                return _ALL + os.urandom(8)
            bits = bytearray(value or bytes(BUCKETS // 8))
            bits[at] |= bit
            return bytes(bits)

        found = self._cache.get(_ROOT, peek=True)
        if full or found is None or found.startswith(_ALL) or not found[at] & bit:
            self._cache.update(_ROOT, change, b"", **_PINNED)

    # The listener

    def buckets(self, every: bool = False) -> list[bytes]:
        """The buckets that may have names. every: also if a process was killed that was about to
        say so, or whose bit has just been cleared."""
        found = self._cache.get(_ROOT, b"", peek=True)
        if found.startswith(_ALL):
            return []
        if every:
            keys = [_key(number) for number in range(BUCKETS)]
            return list(self._cache.get_many(keys, peek=True))
        return [
            _key(at * 8 + bit)
            for at, byte in enumerate(found)
            if byte
            for bit in range(8)
            if byte >> bit & 1
        ]

    def names(self, bucket: bytes) -> Names:
        return _names(self._cache.get(bucket, b"", peek=True))

    def is_noted(self, bucket: bytes, name: bytes, noted: Noted) -> bool:
        """Whether the name was neither taken nor noted again since."""
        return self.names(bucket).get(name) == noted

    def age(self, noted: Noted, now: int) -> Union[int, None]:
        """The nanoseconds since the write failed; None: before this boot."""
        return now - noted.when if noted.mark.startswith(self._boot) else None

    def end(self, bucket: bytes, names: Names) -> None:
        """Removes names that were not noted again since, and the bit of an empty bucket."""

        def remove(found: Names) -> None:
            for name, noted in names.items():
                if found.get(name) == noted:
                    del found[name]

        if names:
            self._change(bucket, remove)
        if not self.names(bucket):
            self._clear(bucket)
            if self.names(bucket):
                # Noted in between.
                self._mark(bucket)

    def _clear(self, bucket: bytes) -> None:
        number = int.from_bytes(bucket[len(_ROOT) :], "big")

        def change(value: bytes) -> bytes:
            if not value or value.startswith(_ALL):
                return value
            bits = bytearray(value)
            bits[number // 8] &= ~(1 << number % 8)
            return bytes(bits)

        self._cache.update(_ROOT, change, b"", **_PINNED)

    def everything(self) -> Union[bytes, None]:
        """Not None: everything is to be removed. `end_everything` takes the result."""
        found: bytes = self._cache.get(_ROOT, b"", peek=True)
        return found if found.startswith(_ALL) else None

    def remove_names(self) -> None:
        """Before everything is removed: a name that is noted meanwhile is noted after it."""
        self._cache.invalidate(_TAG)

    def end_everything(self, mark: bytes) -> None:
        """Everything was removed. If a name was noted meanwhile, it is done again."""
        entry = self._cache.entry(_ROOT, peek=True)
        if entry is not None and entry.value == mark:
            self._cache.remove(_ROOT, if_version=entry.version)

    # Buckets

    def _bucket(self, name: bytes) -> bytes:
        # With a key that no other machine knows: so no choice of names fills a bucket.
        hashed = hashlib.blake2b(name, digest_size=2, key=self._machine).digest()
        return _key(int.from_bytes(hashed, "big") % BUCKETS)

    def _change(self, bucket: bytes, function: Callable[[Names], object]) -> None:
        cache = self._cache
        while True:
            entry = cache.entry(bucket, peek=True)
            names = {} if entry is None else _names(entry.value)
            function(names)
            value = _join(names)
            if entry is None:
                done = not names or cache.add(bucket, value, tag=_TAG, **_PINNED)
            elif not names:
                done = cache.remove(bucket, if_version=entry.version)
            else:
                done = cache.set(bucket, value, tag=_TAG, if_version=entry.version, **_PINNED)
            if done:
                return


def digest(raw: bytes) -> bytes:
    """Of a value as in the remote, without what the server adds."""
    return hashlib.blake2b(body(raw), digest_size=16).digest()


def _key(number: int) -> bytes:
    return _ROOT + number.to_bytes(2, "big")


def _names(value: bytes) -> Names:
    names: Names = {}
    at = 0
    while at < len(value):
        size, at = read_size(value, at)
        end = at + size
        names[value[at:end]] = Noted(*_RECORD.unpack_from(value, end))
        at = end + _RECORD.size
    return names


def _join(names: Names) -> bytes:
    return b"".join(
        size_bytes(len(name)) + name + _RECORD.pack(*noted) for name, noted in names.items()
    )
