"""Which remote a client is for."""

from __future__ import annotations

from typing import Any

from .._errors import InvalidError
from .._units import Seconds, duration_ms


def remote_of(client: Any, prefix: bytes, timeout: Seconds, bound: Seconds) -> Any:
    timeout_ms = duration_ms("timeout", timeout)
    if not 0 < timeout_ms <= 3_600_000:
        raise InvalidError(f"timeout is above 0 seconds and up to an hour, not {timeout!r}")
    if not prefix:
        raise InvalidError("a tier's prefix is not empty: it tells its keys from others'")
    retry = duration_ms("bound", bound) / 2000
    if type(client).__module__.partition(".")[0] == "pymemcache":
        from ._memcached import Memcached

        return Memcached(client, prefix, timeout_ms / 1000, retry)
    from ._redis import Redis

    return Redis(client, prefix, timeout_ms / 1000, retry)
