"""A near cache for each machine, in front of Redis, Valkey or memcached.

    pip install shale-cache[redis]      or [valkey], or [memcached]

    from shale.tier import Tier

Documentation/guide/python/tier.md has the promises and limits. The docstrings of the modules have
the protocol: ``_format`` the bytes, ``_listener`` how changes are heard and why a near hit is never
too old, ``_redis`` and ``_memcached`` the commands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._errors import RemoteError
from ._steps import Result
from ._tier import Tier

if TYPE_CHECKING:
    from ._async import AsyncTier

__all__ = ["AsyncTier", "RemoteError", "Result", "Tier"]


# Pickles and tracebacks name the public module.
for _public in (RemoteError, Result, Tier):
    _public.__module__ = __name__


def __getattr__(name: str) -> object:
    # It needs asyncio.
    if name == "AsyncTier":
        from ._async import AsyncTier

        return AsyncTier
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
