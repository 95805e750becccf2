"""A near cache for each machine, in front of Redis, Valkey or memcached.

    pip install shale-cache[redis]      or [valkey], or [memcached]

    from shale.tier import Tier

Documentation/tier.md says what is promised, and what is stored where.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._course import Result
from ._errors import RemoteError
from ._tier import Tier

if TYPE_CHECKING:
    from ._async import AsyncTier

__all__ = ["AsyncTier", "RemoteError", "Result", "Tier"]


def __getattr__(name: str) -> object:
    # It needs asyncio.
    if name == "AsyncTier":
        from ._async import AsyncTier

        return AsyncTier
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
