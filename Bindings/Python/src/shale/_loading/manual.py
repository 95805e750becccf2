"""``Cache.lease``: the right to load a key, for programs that load in another way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic

from .._data.options import read_flags, storing
from .._data.records import Entry, entry_of
from .._data.values import MISSING, Unreadable
from .._native import abi
from .._native.errors import InvalidError
from .._native.units import LEASE, Seconds, age_ms, duration_ms, lease_ms
from .._store import leases, lookups
from .._store.leases import HeldLease, LookupResult
from .._typing import KT, VT

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from .._data.options import StoreOptions
    from .._store.store import Store


class Lease(Generic[KT, VT]):
    """The current entry of a key and, if granted, the right to load it. A ``with`` statement
    releases it at its end."""

    __slots__ = ("_cache", "_key", "_lease", "entry", "missing")

    def __init__(
        self,
        cache: Store[KT, VT],
        key: KT,
        lease: HeldLease | None,
        entry: Entry[VT] | None,
        missing: bool,
    ) -> None:
        self._cache = cache
        self._key = key
        self._lease = lease
        self.entry = entry
        """The entry, fresh or stale, or None."""
        self.missing = missing
        """A loader found that there is no value (``shale.Missing``)."""

    @property
    def granted(self) -> bool:
        """Whether this caller has to load. If not, and there is no ``entry``, another caller is
        loading: retry later."""
        return self._lease is not None

    @property
    def token(self) -> int:
        """The number of the lease, a fencing token; 0 if none was granted."""
        return 0 if self._lease is None else self._lease.token

    def set(self, value: VT, **options: Unpack[StoreOptions]) -> bool:
        """Stores a loaded value, unless it may be outdated: since the lease was granted the key was
        set, counted, removed or expired, one of the value's tags was invalidated or expired, or the
        cache was cleared. Whether it did. Options and errors as in ``Cache.set``.

        It may be called after the lease's time is over. The lease stays granted.
        """
        token = self._granted().token
        cache = self._cache
        flags, rest = storing(**options)
        flags |= abi.SET_IF_UNCHANGED
        if cache._store(self._key, value, flags, *rest, version=token) == abi.OK:
            return True
        cache._counts.add(conflicts=1)
        cache._emit("conflict", self._key)
        return False

    def touch(self, max_age: Seconds | None = None) -> bool:
        """Gives the entry a new age from now, seconds, under the same condition: for a load that
        finds the entry not modified. Whether it did."""
        token = self._granted().token
        cache = self._cache
        new_age, _, _ = cache._scoped(max_age, None, [])
        stored = cache._encode(self._key)
        return cache._pool.run(lookups.renew, stored, token, age_ms(new_age)) == abi.OK

    def renew(self) -> bool:
        """Restarts its time. False if the time was over or the lease was never granted: others may
        be loading then. Only this call renews the lease."""
        return self._lease is not None and self._lease.renew()

    def release(self) -> bool:
        """Releases it, so that another caller may load. May be called again. Whether it was held
        until now."""
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
                f"no lease of {self._key!r} was granted: there is a value, or another caller is "
                "loading it"
            )
        return self._lease


def lease_of(
    cache: Store[KT, VT],
    key: KT,
    stale: bool = True,
    lease: Seconds = LEASE,
    refresh_ahead: Seconds = 0,
) -> Lease[KT, VT]:
    stored = cache._encode(key)
    flags = read_flags(stale, False)
    milliseconds = lease_ms(lease)
    ahead_ms = duration_ms("refresh_ahead", refresh_ahead)
    while True:
        held = HeldLease(cache._pool, stored, 0, milliseconds)
        try:
            lookup = cache._pool.run(
                leases.look, stored, flags, milliseconds, ahead_ms, True, held.given
            )
            entry = _entry(cache, lookup)
            missing = lookup.meta == MISSING
            unreadable = lookup.status == abi.OK and entry is None and not missing
            if unreadable and not lookup.lease:
                # Otherwise it could be neither used nor loaded until its age is over.
                cache._pool.run(lookups.end_age, stored, lookup.version)
                continue
            if cache._listeners is not None:
                meta = lookup.meta if entry is None else None
                cache._listeners.emit_lookup(key, lookup.status, lookup.flags, meta)
        except BaseException:
            held.release()
            raise
        return Lease(cache, key, held if lookup.lease else None, entry, missing)


def _entry(cache: Store[Any, VT], lookup: LookupResult) -> Entry[VT] | None:
    """None also for a value that this cache cannot read."""
    if lookup.details is None:
        return None
    try:
        value = cache._codec.decode(lookup.meta, lookup.data)
    except Unreadable:
        return None
    return entry_of(value, lookup.meta, lookup.details)
