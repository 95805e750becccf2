"""A persistent cache that lives inside the program that uses it.

    import shale

    with shale.Cache("/var/cache/app", capacity="1GiB", max_age=3600) as cache:
        cache["key"] = {"any": ["JSON-like", "value"]}
        cache.get("key")

One cache is one directory, for any number of threads and processes, of any mix of C, Python and
Swift. ``shale/_data/keys.py`` and ``shale/_data/values.py`` describe how keys and values are
stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._cache import Cache, Namespace
from ._data.options import Tag
from ._data.records import Entry, LoadStats, Report, Stats
from ._data.serializers import PickleSerializer, Serializer
from ._loading.manual import Lease
from ._loading.memoize import CacheInfo
from ._loading.results import Loaded, LoadResult, Missing, NotModified
from ._native.errors import (
    BusyError,
    DeadlockError,
    Error,
    FilesystemError,
    FormatError,
    FullError,
    InvalidError,
    LoadFailed,
    LoadTimeoutError,
    LockTimeoutError,
    NotDirectoryError,
    NotFoundError,
    OutOfMemoryError,
    PermissionDeniedError,
    SystemCallError,
    TooLargeError,
    VersionError,
)
from ._native.library import library_version
from ._native.units import NEVER
from ._store.events import Event
from ._store.locks import Lock
from ._store.readers import Reader
from ._typing import Key

if TYPE_CHECKING:
    from ._async import AsyncCache, AsyncLock

# The package and the library are released together.
__version__ = library_version()

__all__ = [
    "NEVER",
    "AsyncCache",
    "AsyncLock",
    "BusyError",
    "Cache",
    "CacheInfo",
    "DeadlockError",
    "Entry",
    "Error",
    "Event",
    "FilesystemError",
    "FormatError",
    "FullError",
    "InvalidError",
    "Key",
    "Lease",
    "LoadFailed",
    "LoadResult",
    "LoadStats",
    "LoadTimeoutError",
    "Loaded",
    "Lock",
    "LockTimeoutError",
    "Missing",
    "Namespace",
    "NotDirectoryError",
    "NotFoundError",
    "NotModified",
    "OutOfMemoryError",
    "PermissionDeniedError",
    "PickleSerializer",
    "Reader",
    "Report",
    "Serializer",
    "Stats",
    "SystemCallError",
    "Tag",
    "TooLargeError",
    "VersionError",
    "__version__",
    "library_version",
]


# Pickles and tracebacks name the public module.
for _name in __all__:
    _public = globals().get(_name)
    if isinstance(_public, type):
        _public.__module__ = __name__


def __getattr__(name: str) -> object:
    # They need asyncio, which takes longer to import than the rest.
    if name in ("AsyncCache", "AsyncLock"):
        from . import _async

        return getattr(_async, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
