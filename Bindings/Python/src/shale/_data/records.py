"""Records: entries, counters and reports."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final, Generic, NamedTuple

from .._native import abi
from .._native.units import NEVER, seconds
from .._typing import VT
from .options import EVICTIONS
from .values import split_meta

if TYPE_CHECKING:
    from .._native.handles import CallContext
    from .options import Eviction


@dataclass(frozen=True)
class Entry(Generic[VT]):
    """A value and its properties."""

    value: VT
    created: float
    """When it was set: seconds since 1970-01-01 UTC."""
    expires: float
    """When it becomes stale, likewise; ``shale.NEVER`` if it does not."""
    stale: bool
    """Past its age, but kept for its stale period."""
    pinned: bool
    version: int
    """Changes with every set."""
    stored_size: int
    """The size of the value after compression, bytes."""
    meta: bytes
    """The bytes that a caller, a loader or another program stored with the value, or else the type
    that Python stored."""
    ttl: float = NEVER
    """Seconds of freshness that were left when it was read: 0.0 if it is stale, ``shale.NEVER`` if
    it never expires."""


class Details(NamedTuple):
    """The properties that the library returns with an entry."""

    created_ms: int
    expires_ms: int
    flags: int
    version: int
    stored_size: int
    read_ms: int
    """When they were read, by the cache's clock."""


@dataclass(frozen=True)
class LoadStats:
    """The counts of one cache object's loads since it was opened."""

    loads: int = 0
    """Loads that began."""
    failed: int = 0
    """Loads that raised, whether or not a stale value was served instead."""
    conflicts: int = 0
    """Loads whose value was not stored, as its key or a tag had changed meanwhile."""
    unstored: int = 0
    """Loads whose value was returned but not stored, because of its type or size or because there
    was no room. The first is logged (logger "shale")."""
    waits: int = 0
    """Calls that waited for another's load."""
    waited: float = 0.0
    """Their total time, seconds."""
    undecodable: int = 0
    """Reads of values that this cache cannot read (of another serializer, for example); each is a
    miss. The first is logged."""


@dataclass(frozen=True)
class Stats:
    """Counters since the index was made, of all processes together. Sizes are bytes."""

    shards: int
    entries: int
    """In the index; dead entries count until they are swept."""
    capacity: int
    max_entries: int
    """0: no limit."""
    data_bytes: int
    """The size of the data file on disk."""
    index_bytes: int
    """The size of the index file on disk."""
    live_bytes: int
    """The current records in the data file, with headers and keys."""
    raw_bytes: int
    """The current values before compression."""
    stored_bytes: int
    """The current values after compression."""
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
    """These four add up to ``misses``. Swept and evicted entries count as absent."""
    misses_expired: int
    """Past its age, and the stale value was not asked for or not kept."""
    misses_invalidated: int
    misses_damaged: int
    leases: int
    """Loads that began with a lease."""
    conflicts: int
    """Values of loads and other fenced sets that were not stored, for one of the next four
    reasons."""
    conflicts_key: int
    """The key changed after the load began."""
    conflicts_tag: int
    """One of the tags changed after the load began."""
    conflicts_overflow: int
    """So many other keys or tags changed that the cache cannot tell whether these did."""
    conflicts_reset: int
    """The cache was cleared, or its index rebuilt."""
    evicted_timed: int
    """Evictions that the next two sums cover."""
    evicted_age_ms: int
    """The sum of the times from set to eviction."""
    evicted_idle_ms: int
    """The sum of the times from last use to eviction, accurate to about 1/32; with the eviction
    policy ``"clock"``, from the last set."""
    eviction: Eviction
    """The eviction policy, as chosen when the cache was created."""
    leases_unrecorded: int
    """Leases that could not be recorded: other callers may have loaded the same key."""
    renewals: int
    """How often the cache was emptied because its version numbers were nearly used up."""
    own: LoadStats = LoadStats()
    """The counts of this object alone."""

    @property
    def hit_ratio(self) -> float:
        """Hits per lookup, stale hits included; 0.0 before the first lookup."""
        hits = self.hits + self.stale_hits
        lookups = hits + self.misses
        return hits / lookups if lookups else 0.0

    @property
    def compression_ratio(self) -> float:
        """Bytes of values per stored byte; 1.0 if there are none."""
        return self.raw_bytes / self.stored_bytes if self.stored_bytes else 1.0


@dataclass(frozen=True)
class Report:
    """The result of ``verify``."""

    records: int
    bytes: int
    corrupt_records: int
    """Damaged records that this call found and removed."""


def details_of(context: CallContext) -> Details:
    """To be called before the buffer's `take`, which may free the buffer."""
    struct = context.buffer.struct
    return Details(
        struct.created_ms,
        struct.expires_ms,
        struct.flags,
        struct.version,
        struct.stored_size,
        context.now_ms(),
    )


def _left(details: Details) -> float:
    if details.expires_ms == abi.NEVER_MS:
        return NEVER
    return max(0, details.expires_ms - details.read_ms) / 1000


def entry_of(value: VT, meta: bytes, details: Details) -> Entry[VT]:
    return Entry(
        value=value,
        created=seconds(details.created_ms),
        expires=seconds(details.expires_ms),
        stale=bool(details.flags & abi.VALUE_STALE),
        pinned=bool(details.flags & abi.VALUE_PINNED),
        version=details.version,
        stored_size=details.stored_size,
        meta=split_meta(meta)[1],
        ttl=_left(details),
    )


_COUNTED: Final = [field.name for field in fields(Stats) if field.name not in ("eviction", "own")]
_EVICTION_NAMES: Final = {number: name for name, number in EVICTIONS.items()}


def stats_of(struct: abi.Stats, own: LoadStats) -> Stats:
    counted = {name: getattr(struct, name) for name in _COUNTED}
    return Stats(**counted, eviction=_EVICTION_NAMES[struct.eviction], own=own)


def report_of(struct: abi.Report) -> Report:
    return Report(struct.records, struct.bytes, struct.corrupt_records)
