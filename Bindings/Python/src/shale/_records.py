"""What the cache says about itself and about its entries."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final, Generic, NamedTuple

from . import _abi
from ._options import EVICTIONS
from ._typing import VT
from ._units import NEVER, seconds
from ._values import split_meta

if TYPE_CHECKING:
    from ._handle import Loan
    from ._options import Eviction


@dataclass(frozen=True)
class Entry(Generic[VT]):
    """A value and what is known of it."""

    value: VT
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
    """The bytes beside the value: what a caller, a loader or another program put there, or the type
    that Python did."""
    ttl: float = NEVER
    """Seconds for which it was still fresh when it was read: 0.0 if it is stale, ``shale.NEVER`` if
    it stays."""


class Details(NamedTuple):
    """What the library says of an entry."""

    created_ms: int
    expires_ms: int
    flags: int
    version: int
    stored_size: int
    read_ms: int
    """When this was said, by the cache's clock."""


@dataclass(frozen=True)
class LoadStats:
    """What one cache object has counted of its own loads since it was opened."""

    loads: int = 0
    """That were begun."""
    failed: int = 0
    """Of them: that raised, whether or not something stale was served instead."""
    conflicts: int = 0
    """Of them: whose value was not stored, as its key or a tag had been changed meanwhile."""
    unstored: int = 0
    """Of them: whose value was returned, but not stored, as there was no room for it or it was too
    large. The first is logged (logger "shale")."""
    waits: int = 0
    """Calls that waited for another's load."""
    waited: float = 0.0
    """For so long together, seconds."""
    undecodable: int = 0
    """Reads of values that could not be read (another serializer's, for example); each is a miss.
    The first is logged."""


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
    misses_absent: int
    """These four add up to ``misses``. What a sweep or an eviction has taken is absent."""
    misses_expired: int
    """Past its age, and stale data not asked for, or not kept."""
    misses_invalidated: int
    misses_damaged: int
    leases: int
    """Loads that began with a lease."""
    conflicts: int
    """Loads, and other fenced sets, that were not stored: for one of the next four reasons."""
    conflicts_key: int
    """The key had changed since the load began."""
    conflicts_tag: int
    """One of the tags had."""
    conflicts_line: int
    """So many others had changed that the cache does not know whether these had."""
    conflicts_floor: int
    """The cache was cleared, or its index made anew."""
    evicted_timed: int
    """Evictions that the next two are of."""
    evicted_age_ms: int
    """From set to eviction, the sum."""
    evicted_idle_ms: int
    """From the last use to eviction, the sum, to about a thirty-second of it; where ``eviction``
    is ``"adaptive"``, from the last set."""
    eviction: Eviction
    """Which entries leave first, as it was chosen when the cache was made."""
    leases_unrecorded: int
    """Of the leases, those that could not be recorded: others may have loaded the same key."""
    renewals: int
    """How often the cache began anew, empty, as its version numbers had come near their end."""
    own: LoadStats = LoadStats()
    """What this object alone has counted."""

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


def details_of(loan: Loan) -> Details:
    """To be called before the buffer's `take`, which may give it back."""
    struct = loan.buffer.struct
    return Details(
        struct.created_ms,
        struct.expires_ms,
        struct.flags,
        struct.version,
        struct.stored_size,
        loan.now_ms(),
    )


def _left(details: Details) -> float:
    if details.expires_ms == _abi.NEVER_MS:
        return NEVER
    return max(0, details.expires_ms - details.read_ms) / 1000


def entry_of(value: VT, meta: bytes, details: Details) -> Entry[VT]:
    return Entry(
        value=value,
        created=seconds(details.created_ms),
        expires=seconds(details.expires_ms),
        stale=bool(details.flags & _abi.VALUE_STALE),
        pinned=bool(details.flags & _abi.VALUE_PINNED),
        version=details.version,
        stored_size=details.stored_size,
        meta=split_meta(meta)[1],
        ttl=_left(details),
    )


_COUNTED: Final = [field.name for field in fields(Stats) if field.name not in ("eviction", "own")]
_EVICTION_NAMES: Final = {number: name for name, number in EVICTIONS.items()}


def stats_of(struct: _abi.Stats, own: LoadStats) -> Stats:
    counted = {name: getattr(struct, name) for name in _COUNTED}
    return Stats(**counted, eviction=_EVICTION_NAMES[struct.eviction], own=own)


def report_of(struct: _abi.Report) -> Report:
    return Report(struct.records, struct.bytes, struct.corrupt_records)
