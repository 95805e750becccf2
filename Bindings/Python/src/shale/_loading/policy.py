"""The options of all calls that load."""

from __future__ import annotations

import copy
import os
import random
import time
from collections.abc import Iterable
from datetime import timedelta
from math import log
from typing import TYPE_CHECKING, TypedDict

from .._data.options import Tag, tag_list
from .._native import abi
from .._native.errors import InvalidError
from .._native.units import LEASE, NEVER, Seconds, age_ms, duration_ms, lease_ms, seconds

if TYPE_CHECKING:
    from .._data.values import Codec
    from .._native.clock import Clock

# Not Python's own generator, whose numbers a program may want to repeat.
_generator = random.Random()
_draw = _generator.random
os.register_at_fork(after_in_child=_generator.seed)


class LoadOptions(TypedDict, total=False):
    """The options of ``get_or_load``, ``entry_or_load`` and ``memoize``. Times are seconds, or
    timedeltas.

    ``Cache.get_or_load`` describes each.
    """

    max_age: Seconds | None
    stale: Seconds | None
    tag: Tag | None
    tags: Iterable[Tag] | None
    pinned: bool
    missing_age: Seconds | None
    jitter: Seconds
    wait: Seconds
    lease: Seconds
    refresh_ahead: Seconds
    soft_timeout: Seconds
    timeout: Seconds
    stale_if_error: bool
    retry_after: Seconds


class Policy:
    """The options, checked before the load."""

    __slots__ = (
        "codec",
        "flags",
        "jitter",
        "lease",
        "lease_ms",
        "logs_keys",
        "max_age",
        "missing_age",
        "plain_hits",
        "read_flags",
        "refresh_ahead_ms",
        "retry_after",
        "soft_timeout",
        "stale",
        "stale_if_error",
        "tags",
        "timeout",
        "wait",
    )

    def __init__(
        self,
        *,
        max_age: Seconds | None = None,
        stale: Seconds | None = None,
        tag: Tag | None = None,
        tags: Iterable[Tag] | None = None,
        pinned: bool = False,
        missing_age: Seconds | None = None,
        jitter: Seconds = 0,
        wait: Seconds = NEVER,
        lease: Seconds = LEASE,
        refresh_ahead: Seconds = 0,
        soft_timeout: Seconds = NEVER,
        timeout: Seconds = NEVER,
        stale_if_error: bool = False,
        retry_after: Seconds = 0,
    ) -> None:
        age_ms(max_age), age_ms(stale), age_ms(missing_age)
        self.max_age = max_age
        self.stale = stale
        self.missing_age = max_age if missing_age is None else missing_age
        self.jitter = _duration("jitter", jitter)
        if jitter and max_age is None:
            raise InvalidError("jitter needs max_age: the cache's default age is not known here")
        self.tags = tag_list(tag, tags)
        self.flags = abi.SET_PINNED if pinned else 0
        self.read_flags = 0 if stale == 0 else abi.GET_STALE
        self.wait = _duration("wait", wait)
        self.lease_ms = lease_ms(lease)
        self.lease = seconds(self.lease_ms)
        self.refresh_ahead_ms = duration_ms("refresh_ahead", refresh_ahead)
        self.plain_hits = not self.refresh_ahead_ms
        """Whether a fresh value is always the result."""
        self.soft_timeout = _duration("soft_timeout", soft_timeout)
        self.timeout = _duration("timeout", timeout)
        if not self.timeout:
            raise InvalidError("timeout is above 0 seconds: 0 leaves no time to load")
        self.stale_if_error = stale_if_error
        self.retry_after = _duration("retry_after", retry_after)
        self.codec: Codec | None = None
        """Of the values, instead of the cache's."""
        self.logs_keys = True
        """Whether log lines of its loads name the key."""

    def with_tag(self, tag: bytes) -> Policy:
        """The same with a further tag."""
        other = copy.copy(self)
        other.tags = [*self.tags, tag]
        return other

    def with_codec(self, codec: Codec) -> Policy:
        """The same for values of another codec than the cache's."""
        other = copy.copy(self)
        other.codec = codec
        return other

    def when_due(self) -> Policy:
        """The same for a fresh value that this call has to reload: the library's draw decides so,
        too."""
        other = copy.copy(self)
        other.refresh_ahead_ms = abi.NEVER_MS
        return other

    def least_expiry_ms(self, clock: Clock | None) -> float:
        """A time of the cache's clock. A call reloads a value that expires before it: each call
        draws one, as the library does for ``refresh_ahead``."""
        now = time.time() * 1000 if clock is None else clock.ask()
        return now - self.refresh_ahead_ms * log(1 - _draw())

    def age(self, max_age: Seconds | None) -> float | None:
        """An age in seconds, less the jitter."""
        if isinstance(max_age, timedelta):
            max_age = max_age.total_seconds()
        if not self.jitter or not max_age:
            return max_age
        return max_age - random.uniform(0, min(self.jitter, max_age / 2))


def _duration(name: str, value: Seconds) -> float:
    """Seconds, limited to the range of the library."""
    return seconds(duration_ms(name, value))


_default = Policy()


def policy(options: LoadOptions) -> Policy:
    """The given options, checked."""
    return Policy(**options) if options else _default
