"""How a value is loaded, stored and waited for: the options of everything that loads."""

from __future__ import annotations

import random
from collections.abc import Iterable
from datetime import timedelta
from typing import TypedDict

from . import _abi
from ._errors import InvalidError
from ._options import Tag, tag_list
from ._units import LEASE, NEVER, Seconds, age_ms, duration_ms, lease_ms, seconds


class LoadOptions(TypedDict, total=False):
    """The options of ``get_or_load``, ``entry_or_load`` and ``memoize``. Times are seconds, or
    timedeltas.

    ``Cache.get_or_load`` says what each does.
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
    """These options, checked before anything is loaded."""

    __slots__ = (
        "flags",
        "jitter",
        "lease",
        "lease_ms",
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
            raise InvalidError("jitter needs max_age: the cache's own is not known here")
        self.tags = tag_list(tag, tags)
        self.flags = _abi.SET_PINNED if pinned else 0
        self.read_flags = 0 if stale == 0 else _abi.GET_STALE
        self.wait = _duration("wait", wait)
        self.lease_ms = lease_ms(lease)
        self.lease = seconds(self.lease_ms)
        self.refresh_ahead_ms = duration_ms("refresh_ahead", refresh_ahead)
        self.plain_hits = not self.refresh_ahead_ms
        """Whether what is fresh is the answer, by all means."""
        self.soft_timeout = _duration("soft_timeout", soft_timeout)
        self.timeout = _duration("timeout", timeout)
        if not self.timeout:
            raise InvalidError("a timeout of 0 seconds leaves no time to load in")
        self.stale_if_error = stale_if_error
        self.retry_after = _duration("retry_after", retry_after)

    def age(self, max_age: Seconds | None) -> float | None:
        """An age in seconds, with the jitter taken off."""
        if isinstance(max_age, timedelta):
            max_age = max_age.total_seconds()
        if not self.jitter or not max_age:
            return max_age
        return max_age - random.uniform(0, min(self.jitter, max_age / 2))


def _duration(name: str, value: Seconds) -> float:
    """Seconds that the library could count too."""
    return seconds(duration_ms(name, value))


_default = Policy()


def policy(options: LoadOptions) -> Policy:
    """The options that were given, checked."""
    return Policy(**options) if options else _default
