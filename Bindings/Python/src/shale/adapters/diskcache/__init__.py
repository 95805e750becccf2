"""The interface of diskcache 5, on Shale.

    from shale.adapters.diskcache import Cache

    with Cache("/var/cache/app") as cache:
        cache.set("key", "value", expire=60, tag="news")

Programs change their import, and ``python -m shale convert`` brings their data. What differs is in
``Documentation/migrating/diskcache.md``. Above all, nothing is pickled, or unpickled, unless a
program says ``disk=PickleDisk``. It needs no further package; ``DjangoCache`` needs Django.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._cache import DEFAULT_SETTINGS, EVICTION_POLICY, Cache, Timeout
from ._disk import ENOVAL, UNKNOWN, Disk, JSONDisk, PickleDisk
from ._fanout import FanoutCache
from ._memoize import args_to_key, full_name
from ._persistent import Deque, Index
from ._recipes import (
    Averager,
    BoundedSemaphore,
    Lock,
    RLock,
    barrier,
    memoize_stampede,
    throttle,
)

if TYPE_CHECKING:
    from ._django import DjangoCache

__all__ = [
    "DEFAULT_SETTINGS",
    "ENOVAL",
    "EVICTION_POLICY",
    "UNKNOWN",
    "Averager",
    "BoundedSemaphore",
    "Cache",
    "Deque",
    "Disk",
    "DjangoCache",
    "EmptyDirWarning",
    "FanoutCache",
    "Index",
    "JSONDisk",
    "Lock",
    "PickleDisk",
    "RLock",
    "Timeout",
    "UnknownFileWarning",
    "args_to_key",
    "barrier",
    "full_name",
    "memoize_stampede",
    "throttle",
]


class UnknownFileWarning(UserWarning):
    """Never issued: values are not files."""


class EmptyDirWarning(UserWarning):
    """Never issued, likewise."""


# Pickles and tracebacks name the public module.
for _name in __all__:
    _public = globals().get(_name)
    if isinstance(_public, type):
        _public.__module__ = __name__


def __getattr__(name: str) -> object:
    # Imports Django only for programs that use it.
    if name == "DjangoCache":
        from ._django import DjangoCache

        return DjangoCache
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
