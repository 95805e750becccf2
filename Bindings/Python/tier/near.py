"""What the tests of a tier ask of its near cache."""

from __future__ import annotations

from typing import Any, Callable

from servers import until

from shale._keys import encode_key
from shale.tier import Tier
from shale.tier._near import now

Machines = Callable[..., Any]
"""Makes the tier of a machine, by its name; its `proxy` is between it and the remote."""


def is_heard(tier: Tier) -> bool:
    """Whether the remote has answered a PING of this epoch."""
    state = tier._near.state()
    return state is not None and state.heard > 0


def heard(tier: Tier) -> None:
    """Waits until the machine has heard of all that was done before."""
    called = now()

    def is_past() -> bool:
        state = tier._near.state()
        return state is not None and state.heard > called

    until(is_past)


def near(tier: Tier, key: Any) -> Any:
    """Reads a key until it is near, and gives its value."""
    heard(tier)
    return until(lambda: (found := tier.lookup(key)).source == "near" and (found,))[0].value


def remote_key(key: Any, prefix: bytes = b"shale:") -> bytes:
    return prefix + b"k:" + encode_key(key)
