"""Reads of a near cache, for the tests of a tier."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from proxy import Proxy
from servers import until
from shale._data.keys import encode_key
from shale.tier import Tier
from shale.tier._journal import Journal, Names, Noted
from shale.tier._near import now

Machines = Callable[..., Any]
"""Makes the tier of a machine, by name; `proxy` is between it and the remote."""


@contextmanager
def machines(folder: Path, port: int, remote: Callable[[int], Any], listens: bool) -> Iterator[Machines]:
    """remote: connects to a port. listens: a new tier is ready once it hears of changes."""
    tiers: list[Any] = []
    proxies: dict[str, Proxy] = {}

    def make(
        name: str = "one",
        remote: Callable[[int], Any] = remote,
        waits: bool = listens,
        **options: Any,
    ) -> Any:
        if name not in proxies:
            proxies[name] = Proxy(port)
        options = {"bound": 0.5, "timeout": 5.0, "capacity": "8MiB", **options}
        tier: Any = Tier(folder / name, remote(proxies[name].port), **options)
        tiers.append(tier)
        tier.proxy = proxies[name]
        if waits:
            until(lambda: is_heard(tier))
        return tier

    yield make
    for each in proxies.values():
        each.go()
    for tier in tiers:
        tier.close()
    for each in proxies.values():
        each.close()


def is_heard(tier: Tier) -> bool:
    """Whether the remote has answered a PING of this epoch."""
    state = tier._near.state()
    return state is not None and state.heard > 0


def heard(tier: Tier) -> None:
    """Waits until the machine has received all earlier changes."""
    called = now()

    def is_past() -> bool:
        state = tier._near.state()
        return state is not None and state.heard > called

    until(is_past)


def near(tier: Tier, key: Any) -> Any:
    """Reads a key until the near cache has it, and returns its value."""
    heard(tier)
    return until(lambda: (found := tier.lookup(key)).source == "near" and (found,))[0].value


def remote_key(key: Any, prefix: bytes = b"shale:") -> bytes:
    return prefix + b"k:" + encode_key(key)


def names_in(journal: Journal) -> Names:
    """All names in a journal; an empty one stands for everything."""
    if journal.everything() is not None:
        return {b"": Noted(b"", 0, b"")}
    found: Names = {}
    for bucket in journal.buckets():
        found.update(journal.names(bucket))
    return found
