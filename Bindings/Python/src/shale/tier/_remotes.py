"""Chooses the remote for a client."""

from __future__ import annotations

from typing import Any

from .._native.errors import InvalidError
from .._native.units import Seconds, duration_ms


def remote_of(client: Any, prefix: bytes, timeout: Seconds, bound: Seconds) -> Any:
    timeout_ms = duration_ms("timeout", timeout)
    if not 0 < timeout_ms <= 3_600_000:
        raise InvalidError(f"timeout is above 0 seconds and at most an hour, not {timeout!r}")
    if not prefix:
        raise InvalidError("a tier's prefix is not empty: it distinguishes its keys from others")
    retry = duration_ms("bound", bound) / 2000
    if _is_pymemcache(client):
        from ._memcached import Memcached

        return Memcached(client, prefix, timeout_ms / 1000, retry)
    from ._redis import Redis

    return Redis(client, prefix, timeout_ms / 1000, retry)


def _is_pymemcache(client: Any) -> bool:
    """Whether it is a client of one server; others, such as those of several, are refused."""
    return any(
        kind.__module__ == "pymemcache.client.base" and kind.__name__ in ("Client", "PooledClient")
        for kind in type(client).__mro__
    )
