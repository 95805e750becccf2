"""The constants and structs of ``shale.h``, for ctypes.

``tests/test_abi.py`` compiles the header and compares every offset, size and constant with these.
"""

from __future__ import annotations

import ctypes
from ctypes import (
    POINTER,
    c_char_p,
    c_int32,
    c_int64,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
)
from typing import Final

OK: Final = 0
MISS: Final = 1
STALE: Final = 2
CONFLICT: Final = 3
END: Final = 4

E_INVALID: Final = -1
E_TOO_LARGE: Final = -2
E_FULL: Final = -3
E_MEMORY: Final = -4
E_IO: Final = -5
E_FORMAT: Final = -6
E_VERSION: Final = -7
E_BUSY: Final = -8
E_FILESYSTEM: Final = -9
E_PERMISSION: Final = -10

# Ages, milliseconds. 0 is the cache's default.
NEVER_MS: Final = 2**63 - 1
NONE_MS: Final = -1

OPEN_READ_ONLY: Final = 0x1
OPEN_MUST_EXIST: Final = 0x2
OPEN_NO_SYNC: Final = 0x4

COMPRESSION_DICTIONARY: Final = 0
COMPRESSION_LZ4: Final = 1
COMPRESSION_NONE: Final = 2
COMPRESSION_DENSE: Final = 3

EVICTION_LRU: Final = 0
EVICTION_CLOCK: Final = 1

SET_IF_ABSENT: Final = 0x1
SET_IF_PRESENT: Final = 0x2
SET_IF_VERSION: Final = 0x4
SET_PINNED: Final = 0x8
SET_UNCOMPRESSED: Final = 0x10
SET_IF_UNCHANGED: Final = 0x20

GET_STALE: Final = 0x1
GET_PEEK: Final = 0x2
GET_INFO: Final = 0x4
GET_TOKEN: Final = 0x8
LEASE_RECORDED: Final = 0x100

INVALIDATE_EXPIRE: Final = 0x1

MAX_TAGS: Final = 8

VALUE_STALE: Final = 0x1
VALUE_PINNED: Final = 0x2
VALUE_EXPIRED: Final = 0x4
VALUE_INVALIDATED: Final = 0x8
VALUE_DAMAGED: Final = 0x10
VALUE_UNRECORDED: Final = 0x20

INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1

Clock = ctypes.CFUNCTYPE(c_int64, c_void_p)
Listener = ctypes.CFUNCTYPE(None, ctypes.py_object, c_char_p)
"""``shale_options.on_wait``, with a Python object as its context."""


class Bytes(ctypes.Structure):
    """``shale_bytes``."""

    _fields_ = [("data", c_char_p), ("size", c_size_t)]


class Options(ctypes.Structure):
    """``shale_options``."""

    _fields_ = [
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("capacity", c_uint64),
        ("max_entries", c_uint64),
        ("max_age_ms", c_int64),
        ("stale_ms", c_int64),
        ("shards", c_uint32),
        ("segment_size", c_uint32),
        ("mode", c_uint32),
        ("compression", c_int32),
        ("now_ms", Clock),
        ("now_context", c_void_p),
        ("eviction", c_int32),
        ("reserved", c_uint32),
        ("lock_timeout_ms", c_int64),
        ("on_wait", Listener),
        ("wait_context", c_void_p),
        ("reserve_capacity", c_uint64),
    ]

    capacity: int
    max_entries: int


class SetOptions(ctypes.Structure):
    """``shale_set_options``. An instance keeps the objects of its pointers alive."""

    _fields_ = [
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("max_age_ms", c_int64),
        ("stale_ms", c_int64),
        ("version", c_uint64),
        ("meta", c_char_p),
        ("meta_size", c_size_t),
        ("tags", POINTER(Bytes)),
        ("tag_count", c_size_t),
        ("new_version", POINTER(c_uint64)),
    ]


class Value(ctypes.Structure):
    """``shale_value``."""

    _fields_ = [
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("data", c_void_p),
        ("size", c_size_t),
        ("meta", c_void_p),
        ("meta_size", c_size_t),
        ("capacity", c_size_t),
        ("created_ms", c_int64),
        ("expires_ms", c_int64),
        ("version", c_uint64),
        ("stored_size", c_uint64),
    ]

    flags: int
    size: int
    meta_size: int
    capacity: int
    created_ms: int
    expires_ms: int
    version: int
    stored_size: int


class Stats(ctypes.Structure):
    """``shale_stats``."""

    _fields_ = [
        ("struct_size", c_uint32),
        ("shards", c_uint32),
        ("entries", c_uint64),
        ("capacity", c_uint64),
        ("max_entries", c_uint64),
        ("data_bytes", c_uint64),
        ("index_bytes", c_uint64),
        ("live_bytes", c_uint64),
        ("raw_bytes", c_uint64),
        ("stored_bytes", c_uint64),
        ("hits", c_uint64),
        ("misses", c_uint64),
        ("stale_hits", c_uint64),
        ("sets", c_uint64),
        ("removes", c_uint64),
        ("evictions", c_uint64),
        ("expirations", c_uint64),
        ("invalidations", c_uint64),
        ("cleaned_bytes", c_uint64),
        ("corrupt_records", c_uint64),
        ("rebuilds", c_uint64),
        ("dictionaries", c_uint64),
        ("misses_absent", c_uint64),
        ("misses_expired", c_uint64),
        ("misses_invalidated", c_uint64),
        ("misses_damaged", c_uint64),
        ("leases", c_uint64),
        ("conflicts", c_uint64),
        ("evicted_timed", c_uint64),
        ("evicted_age_ms", c_uint64),
        ("evicted_idle_ms", c_uint64),
        ("eviction", c_int32),
        ("reserved", c_uint32),
        ("leases_unrecorded", c_uint64),
        ("conflicts_key", c_uint64),
        ("conflicts_tag", c_uint64),
        ("conflicts_overflow", c_uint64),
        ("conflicts_reset", c_uint64),
        ("renewals", c_uint64),
    ]

    entries: int
    data_bytes: int
    index_bytes: int
    eviction: int


class LeaseOptions(ctypes.Structure):
    """``shale_lease_options``."""

    _fields_ = [
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("lease_ms", c_int64),
        ("wait_ms", c_int64),
        ("refresh_ahead_ms", c_int64),
    ]


class Report(ctypes.Structure):
    """``shale_report``."""

    _fields_ = [
        ("struct_size", c_uint32),
        ("reserved", c_uint32),
        ("records", c_uint64),
        ("bytes", c_uint64),
        ("corrupt_records", c_uint64),
    ]

    records: int
    bytes: int
    corrupt_records: int


OPTIONS_SIZE: Final = ctypes.sizeof(Options)
SET_OPTIONS_SIZE: Final = ctypes.sizeof(SetOptions)
VALUE_SIZE: Final = ctypes.sizeof(Value)
STATS_SIZE: Final = ctypes.sizeof(Stats)
LEASE_OPTIONS_SIZE: Final = ctypes.sizeof(LeaseOptions)
REPORT_SIZE: Final = ctypes.sizeof(Report)
