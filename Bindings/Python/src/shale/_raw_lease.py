"""``Cache.lease``: the right to load a key, for those who load in a way of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic

from . import _abi, _lease, _lookups, _options
from ._errors import InvalidError
from ._lease import HeldLease, Looked
from ._records import Entry, entry_of
from ._typing import KT, VT
from ._units import LEASE, Seconds, age_ms, duration_ms, lease_ms
from ._values import MISSING, Unreadable

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from ._cache import Cache
    from ._options import StoreOptions


class Lease(Generic[KT, VT]):
    """What was found under a key, and perhaps the right to load it. A ``with`` statement gives
    that back at its end."""

    __slots__ = ("_cache", "_key", "_lease", "entry", "missing")

    def __init__(
        self,
        cache: Cache[KT, VT],
        key: KT,
        lease: HeldLease | None,
        entry: Entry[VT] | None,
        missing: bool,
    ) -> None:
        self._cache = cache
        self._key = key
        self._lease = lease
        self.entry = entry
        """What is there, fresh or stale, or None."""
        self.missing = missing
        """A loader has found that there is no such thing (``shale.Missing``)."""

    @property
    def granted(self) -> bool:
        """Whether it is for this caller to load. If not, and there is no ``entry``, another does:
        look again in a while."""
        return self._lease is not None

    @property
    def token(self) -> int:
        """The lease's number; 0 where none was granted."""
        return 0 if self._lease is None else self._lease.token

    def set(self, value: VT, **options: Unpack[StoreOptions]) -> bool:
        """Stores what was loaded, unless it may be older than what has happened since the lease
        was granted: the key was set, counted, removed or expired, one of the value's tags
        invalidated or expired, or the cache cleared. Whether it did. The options and errors are
        those of ``Cache.set``.

        It may be called where the lease's time is over, too. The lease stays granted.
        """
        token = self._granted().token
        cache = self._cache
        flags, rest = _options.storing(**options)
        flags |= _abi.SET_IF_UNTOUCHED
        if cache._store(self._key, value, flags, *rest, version=token) == _abi.OK:
            return True
        cache._counts.add(conflicts=1)
        cache._tell("conflict", self._key)
        return False

    def touch(self, max_age: Seconds | None = None) -> bool:
        """Gives the entry that was found a new age from now, seconds, on the same condition: for a
        load that finds that it was not modified. Whether it did."""
        token = self._granted().token
        cache = self._cache
        new_age, _, _ = cache._scoped(max_age, None, [])
        stored = cache._encode(self._key)
        return cache._pool.lend(_lookups.renew, stored, token, age_ms(new_age)) == _abi.OK

    def renew(self) -> bool:
        """Begins its time again. False where that was over, or it was never granted: others may be
        loading then. Nobody else renews it."""
        return self._lease is not None and self._lease.renew()

    def release(self) -> bool:
        """Gives it back, so that another may load; again is allowed. Whether it was held until
        now."""
        return self._lease is not None and self._lease.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.release()

    def __repr__(self) -> str:
        state = "granted" if self.granted else "not granted"
        return f"<shale.Lease of {self._key!r}, {state}>"

    def _granted(self) -> HeldLease:
        if self._lease is None:
            raise InvalidError(
                f"no lease of {self._key!r} was granted: there is a value, or another loads it"
            )
        return self._lease


def lease_of(
    cache: Cache[KT, VT],
    key: KT,
    stale: bool = True,
    lease: Seconds = LEASE,
    refresh_ahead: Seconds = 0,
) -> Lease[KT, VT]:
    stored = cache._encode(key)
    flags = _options.read_flags(stale, False)
    milliseconds = lease_ms(lease)
    ahead_ms = duration_ms("refresh_ahead", refresh_ahead)
    while True:
        looked = cache._pool.lend(_lease.look, stored, flags, milliseconds, ahead_ms, True)
        held = HeldLease(cache._pool, stored, looked.lease, milliseconds)
        try:
            entry = _entry(cache, looked)
            missing = looked.meta == MISSING
            unreadable = looked.status == _abi.OK and entry is None and not missing
            if unreadable and not looked.lease:
                # Nobody could use it, or load it, until its age is over.
                cache._pool.lend(_lookups.end_age, stored, looked.version)
                continue
            if cache._listeners is not None:
                meta = looked.meta if entry is None else None
                cache._listeners.looked(key, looked.status, looked.why, meta)
        except BaseException:
            held.release()
            raise
        return Lease(cache, key, held if looked.lease else None, entry, missing)


def _entry(cache: Cache[Any, VT], looked: Looked) -> Entry[VT] | None:
    """None also for what can't be read."""
    if looked.details is None:
        return None
    try:
        value = cache._codec.decode(looked.meta, looked.data)
    except Unreadable:
        return None
    return entry_of(value, looked.meta, looked.details)
