"""One load: what was there before, what becomes of its answer, and of its failure."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from . import _abi, _heartbeat, _log, _lookups
from ._chain import Link
from ._errors import (
    FullError,
    InvalidError,
    LoadTimeoutError,
    OutOfMemoryError,
    PermissionDeniedError,
    SystemCallError,
    TooLargeError,
    check,
)
from ._handle import Loan
from ._lease import Looked
from ._loaded import Loaded, LoadResult, Missing, NotModified
from ._options import Tag, set_options, tag_list
from ._records import entry_of
from ._throttle import throttle
from ._units import NEVER, Seconds, age_ms
from ._values import MISSING, join_meta

if TYPE_CHECKING:
    from ._cache import Cache
    from ._chain import Place
    from ._keys import Key
    from ._lease import HeldLease
    from ._policy import Policy
    from ._records import Entry

# Why a good value can't be stored. It is returned all the same.
_UNSTORED: Final = (
    FullError,
    OutOfMemoryError,
    PermissionDeniedError,
    SystemCallError,
    TooLargeError,
)


class Load:
    """A load that is for its caller to do, as ``with load:``. It ends once."""

    __slots__ = (
        "_began",
        "_cache",
        "_deadline",
        "_error",
        "_key",
        "_lease",
        "_link",
        "_old",
        "_place",
        "_policy",
        "_soft",
        "_token",
        "found",
        "left",
    )

    def __init__(
        self,
        cache: Cache[Any, Any],
        key: Key,
        place: Place,
        policy: Policy,
        deadline: float,
        lease: HeldLease | None,
        token: int,
        found: LoadResult | None,
        old: Looked | None,
    ) -> None:
        self._cache = cache
        self._key = key
        self._place = place
        self._policy = policy
        self._deadline = deadline
        self._lease = lease
        self._token = token
        self._link: Link | None = None
        self._began = 0.0
        self._error: BaseException | None = None
        self._soft = NEVER if found is None else time.monotonic() + policy.soft_timeout
        self.found = found
        """What can be served in place of what this loads: stale, or fresh where it loads ahead."""
        self._old = old
        self.left = False
        """Whether its caller has gone on without it."""

    @property
    def previous(self) -> Entry | None:
        """The old entry, for a loader that asks whether it was modified."""
        old, found = self._old, self.found
        if old is None or old.details is None or found is None or found.missing:
            return None
        return entry_of(found.value, old.meta, old.details)

    # Its course

    def __enter__(self) -> Load:
        self._link = Link(self._place, self._key).__enter__()
        if self._lease is not None:
            _heartbeat.begin(self._lease)
        self._cache._counts.add(loads=1)
        self._began = time.monotonic()
        return self

    def __exit__(
        self, _kind: object, error: BaseException | None = None, _trace: object = None
    ) -> None:
        seconds = time.monotonic() - self._began
        # Who waits for the link finds the lease given back.
        self.release()
        if self._link is not None:
            self._link.__exit__()
        error = self._error or error
        if error is not None:
            self._cache._counts.add(failed=1)
        self._cache._tell("loaded", self._key, seconds=seconds, error=error)

    def release(self) -> None:
        """Gives the lease back; again is allowed. Also where the load never began."""
        if self._lease is not None:
            _heartbeat.end(self._lease)
            self._lease.release()

    def begin(self) -> None:
        """Tells that its loader is about to be called."""
        self._cache._tell("load", self._key)

    # Its end

    def succeeded(self, answer: Any) -> LoadResult:
        """Stores what was loaded, if it can be, and says what it is."""
        throttle.end(self._place)
        if isinstance(answer, NotModified):
            return self._renewed(answer)
        if isinstance(answer, Missing):
            age = self._policy.missing_age if answer.max_age is None else answer.max_age
            self._set(MISSING, b"", age, answer.tags)
            return LoadResult(None, "loaded", missing=True)
        if not isinstance(answer, Loaded):
            answer = Loaded(answer)
        meta, data = self._cache._codec.encode(answer.value)
        age = self._policy.max_age if answer.max_age is None else answer.max_age
        self._set(join_meta(meta, answer.meta), data, age, answer.tags)
        return LoadResult(answer.value, "loaded")

    def failed(self, error: Exception) -> LoadResult:
        """What is served instead of what the loader did not give; raises where there is nothing."""
        self._error = error
        return self._instead(error)

    def _instead(self, error: Exception) -> LoadResult:
        policy = self._policy
        if policy.retry_after:
            throttle.note(self._place, error, policy.retry_after)
        found = self.found
        if found is None or (found.stale and not policy.stale_if_error):
            raise error
        return found._replace(error=error)

    def _renewed(self, answer: NotModified) -> LoadResult:
        old, found, policy = self._old, self.found, self._policy
        if old is None or found is None or found.missing:
            raise InvalidError(f"the loader of {self._key!r} had nothing that is not modified")
        age = policy.max_age if answer.max_age is None else answer.max_age
        with suppress(*_UNSTORED):
            # What has replaced it has an age of its own, and what was expired since may be wrong.
            # What has left stays away: the tags that it had, one of which may have been
            # invalidated, are not known any more.
            new_age, _, _ = self._cache._scoped(policy.age(age), None, [])
            age_in_ms = age_ms(new_age)
            self._cache._pool.lend(_lookups.renew, self._place[1], self._token, age_in_ms)
        return found._replace(source="renewed", stale=False)

    def _set(self, meta: bytes, data: bytes, max_age: Seconds | None, tags: Iterable[Tag]) -> None:
        """The one place where what was loaded is stored, if nothing has happened to it since."""
        policy = self._policy
        named = policy.tags + tag_list(None, tags)
        flags = policy.flags | _abi.SET_IF_UNTOUCHED
        scoped = self._cache._scoped(policy.age(max_age), policy.stale, named)
        options = set_options(meta, flags, *scoped, version=self._token)
        try:
            status = check(
                self._cache._pool.lend(Loan.set, self._place[1], data, ctypes.byref(options))
            )
        except _UNSTORED as error:
            status = error.code
            # A read-only cache is known to store nothing.
            if status != _abi.E_PERMISSION and self._cache._counts.first("unstored"):
                _log.warn(
                    "what was loaded for %r is not stored: %s (further ones are only counted, in "
                    "stats().own.unstored)",
                    self._key,
                    error,
                )
        if status != _abi.OK and self._link is not None:
            self._link.hand_on(Looked(_abi.OK, 0, data, meta, 0, None))
        if status == _abi.OK:
            self._cache._tell("set", self._key)
        elif status == _abi.CONFLICT:
            self._cache._counts.add(conflicts=1)
            self._cache._tell("conflict", self._key)

    # Its limits

    @property
    def limited(self) -> bool:
        """Whether its caller may go on without it."""
        return self._soft != NEVER or self._deadline != NEVER

    def patience(self) -> float | None:
        """Seconds until its caller goes on without it; None: never."""
        limit = min(self._soft, self._deadline)
        return None if limit == NEVER else max(0.0, limit - time.monotonic())

    def leave(self) -> LoadResult:
        """What its caller goes on with where its patience is over; raises where it has nothing."""
        self.left = True
        if self.found is not None and self._soft < self._deadline:
            return self.found
        # Others wait for its lease alone.
        if self._lease is not None:
            _heartbeat.end(self._lease)
        if self._link is not None:
            self._link.forget()
        return self._instead(LoadTimeoutError(self._key, self._policy.timeout))

    def log(self, error: BaseException) -> None:
        """Of a load that was left, nobody else would hear that it failed."""
        if self._cache.closed:
            return
        _log.warn("loading %r failed in the background", self._key, error=error)
