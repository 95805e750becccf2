"""What the cache says about itself and about its entries."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from . import _abi
from ._units import seconds
from ._values import split_meta


@dataclass(frozen=True)
class Entry:
    """A value and what is known of it."""

    value: Any
    created: float
    """When it was set: seconds since 1970-01-01 UTC."""
    expires: float
    """When it ceases to be fresh, likewise; ``shale.NEVER`` if it does not."""
    stale: bool
    """Past its age, but kept."""
    pinned: bool
    version: int
    """Changes with every set."""
    stored_size: int
    """Bytes that the value takes after compression."""
    meta: bytes
    """The bytes beside the value: what a loader or another program put there, or the type that
    Python did."""


class Details(NamedTuple):
    """What the library says of an entry."""

    created_ms: int
    expires_ms: int
    flags: int
    version: int
    stored_size: int


@dataclass(frozen=True)
class Stats:
    """Counters since the index was made, of all processes together. Sizes are bytes."""

    shards: int
    entries: int
    """Indexed now; those that expired or were invalidated count until they are swept."""
    capacity: int
    max_entries: int
    """0: no limit."""
    data_bytes: int
    """On disk, the data file."""
    index_bytes: int
    """On disk, the index file."""
    live_bytes: int
    """Of the data file, records that are current, headers and keys included."""
    raw_bytes: int
    """Values that are current, before compression."""
    stored_bytes: int
    """And after it."""
    hits: int
    misses: int
    stale_hits: int
    sets: int
    removes: int
    evictions: int
    expirations: int
    invalidations: int
    """Calls of ``invalidate``."""
    cleaned_bytes: int
    """Copied by the cleaner."""
    corrupt_records: int
    rebuilds: int
    """Of shards."""
    dictionaries: int
    """Made so far."""

    @property
    def hit_ratio(self) -> float:
        """Hits for each lookup, stale hits included; 0.0 before the first."""
        hits = self.hits + self.stale_hits
        lookups = hits + self.misses
        return hits / lookups if lookups else 0.0

    @property
    def compression_ratio(self) -> float:
        """Bytes of value for each byte stored; 1.0 if there are none."""
        return self.raw_bytes / self.stored_bytes if self.stored_bytes else 1.0


@dataclass(frozen=True)
class Report:
    """What ``verify`` found."""

    records: int
    bytes: int
    corrupt_records: int
    """Found damaged by this call, and dropped."""


def details_of(struct: _abi.Value) -> Details:
    """To be called before the buffer's `take`, which may give it back."""
    return Details(
        struct.created_ms, struct.expires_ms, struct.flags, struct.version, struct.stored_size
    )


def entry_of(value: Any, meta: bytes, details: Details) -> Entry:
    return Entry(
        value=value,
        created=seconds(details.created_ms),
        expires=seconds(details.expires_ms),
        stale=bool(details.flags & _abi.VALUE_STALE),
        pinned=bool(details.flags & _abi.VALUE_PINNED),
        version=details.version,
        stored_size=details.stored_size,
        meta=split_meta(meta)[1],
    )


def stats_of(struct: _abi.Stats) -> Stats:
    return Stats(**{field.name: getattr(struct, field.name) for field in fields(Stats)})


def report_of(struct: _abi.Report) -> Report:
    return Report(struct.records, struct.bytes, struct.corrupt_records)
