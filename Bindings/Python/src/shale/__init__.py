"""A persistent cache that lives inside the program that uses it.

    import shale

    with shale.Cache("/var/cache/app", capacity="1GiB", max_age=3600) as cache:
        cache["key"] = {"any": ["JSON-like", "value"]}
        cache.get("key")

One cache is one directory, for any number of threads and processes of any mix
of C, Python and Swift. How keys and values are stored is written at the top of
``shale/_keys.py`` and ``shale/_values.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._cache import Cache
from ._errors import (
    BusyError,
    DeadlockError,
    Error,
    FilesystemError,
    FormatError,
    FullError,
    InvalidError,
    LoadTimeoutError,
    LockTimeoutError,
    NotFoundError,
    OutOfMemoryError,
    PermissionDeniedError,
    SystemCallError,
    TooLargeError,
    VersionError,
)
from ._events import Event
from ._keys import Key
from ._library import library_version
from ._loaded import Loaded, LoadResult, Missing, NotModified
from ._lock import Lock
from ._namespace import Namespace
from ._options import Tag
from ._raw_lease import Lease
from ._reader import Reader
from ._records import Entry, LoadStats, Report, Stats
from ._serializers import PickleSerializer, Serializer
from ._units import NEVER

if TYPE_CHECKING:
    from ._async import AsyncCache, AsyncLock

# The two are released as one.
__version__ = library_version()

__all__ = [
    "NEVER",
    "AsyncCache",
    "AsyncLock",
    "BusyError",
    "Cache",
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
    "LoadResult",
    "LoadStats",
    "LoadTimeoutError",
    "Loaded",
    "Lock",
    "LockTimeoutError",
    "Missing",
    "Namespace",
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


def __getattr__(name: str) -> object:
    # They need asyncio, which takes longer to import than all the rest.
    if name in ("AsyncCache", "AsyncLock"):
        from . import _async

        return getattr(_async, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
