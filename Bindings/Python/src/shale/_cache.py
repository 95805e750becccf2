"""The cache: `Cache`, one directory, and `Namespace`, a part of one."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Iterator, MutableMapping
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, Final, Union, cast, overload

from ._data.keys import MARKER, K, encode_key, several
from ._data.options import (
    EntryOptions,
    StoreOptions,
    Tag,
    keeping,
    open_options,
    plain_set_options,
    read_flags,
    set_options,
    set_options_by_meta,
    store_flags,
    storing,
    tag_bytes,
    tag_list,
)
from ._data.records import Entry, Report, Stats, report_of, stats_of
from ._data.serializers import Serializer
from ._data.values import BYTES, FIXED_METAS, Codec, Unreadable, join_meta
from ._loading.methods import LoadingMethods
from ._native import abi, library, log
from ._native.buffers import LARGEST_KEPT
from ._native.clock import Clock
from ._native.errors import CLOSE_OTHERS, BusyError, InvalidError, check, failure
from ._native.handles import Handle, Pool
from ._native.library import SIZES, fast_get
from ._native.units import LEASE, Seconds, age_ms, int64, unsigned
from ._store import batch, counters, lookups
from ._store.events import Counts
from ._store.fast import calls_of, put_in_front
from ._store.listening import listen
from ._store.locks import Lock
from ._store.views import CacheItems, CacheKeys, CacheValues
from ._typing import KT, VT, T, pairs

if TYPE_CHECKING:
    from typing import Literal

    from typing_extensions import Buffer, Self, Unpack

    from ._data.options import Eviction, ReadOptions
    from ._loading.manual import Lease
    from ._store.events import EventName, Listener
    from ._store.readers import Reader
    from ._typing import Items

_MISS: Final = abi.MISS
_STALE: Final = abi.GET_STALE
_missing: Final = object()

_TAG: Final = b"\xffP1n"

# Attributes of its cache that a namespace shares.
_SHARED: Final = (
    "_codec",
    "_counts",
    "_directory",
    "_handle_arguments",
    "_identity",
    "_largest_raw",
    "_pool",
    "_raw_kind",
)


class Cache(LoadingMethods[KT, VT], MutableMapping[KT, VT]):
    """A persistent cache in one directory.

    Any number of threads and processes may use it at the same time, each process through its own
    ``Cache`` or, after ``fork``, through the one that it inherited.

    Keys are ``str``, ``bytes``, ``int``, ``date``, ``UUID`` and tuples of these. Values are
    ``bytes``, ``str``, ``int``, ``float``, ``bool``, ``None``, ``datetime``, ``date``,
    ``timedelta``, ``Decimal``, ``UUID``, and lists, tuples, sets, frozensets and dicts of them;
    anything else needs a serializer. A value that this cache cannot read (of another serializer or
    a newer release) is a miss.

    Ages are seconds, ``int`` or ``float``, or a ``timedelta``. ``None`` is the cache's default,
    ``shale.NEVER`` is no limit. 0 is no age at all: an entry with ``max_age=0`` is stale at once,
    one with ``stale=0`` is dead at the end of its age. Ages are exact to the millisecond.

    A miss is not an error, except for ``cache[key]``, ``del cache[key]`` and ``popitem()``,
    which raise ``KeyError``. Any call may raise a subclass of ``shale.Error``.

    It is a ``MutableMapping`` that differs from a dict where it has to: ``pop(key)`` of a missing
    key returns None; a cache equals only itself, and so can be a key of a dict; the keywords of
    ``update`` are options; and an entry may disappear at any time, because it expires or is
    evicted.

    To a type checker, ``Cache[str, int]`` has str keys and int values. Nothing checks that at run
    time.
    """

    def __init__(
        self,
        directory: Union[str, bytes, os.PathLike[str], os.PathLike[bytes], None],
        *,
        capacity: int | str | None = None,
        max_entries: int | None = None,
        accept_capacity: bool = False,
        max_age: Seconds | None = None,
        stale: Seconds | None = None,
        read_only: bool = False,
        must_exist: bool = False,
        sync_on_close: bool = True,
        serializer: Serializer | None = None,
        serialize_all: bool = False,
        compression: str = "dictionary",
        now: Callable[[], float] | None = None,
        shards: int | None = None,
        segment_size: int | str | None = None,
        mode: int | None = None,
        eviction: Eviction | None = None,
        lock_timeout: Seconds | None = None,
        reserve_capacity: int | str | None = None,
    ) -> None:
        """Opens the cache in ``directory``, and creates it if there is none.

        directory: a leading ``~`` is the home directory. None: a new cache in memory, shared only
            with later children of ``fork``.
        capacity: bytes on disk, all files together: an int, or a string such as
            "1GiB" (powers of 1024) or "64MB" (powers of 1000). None: 1 GiB for a
            new cache, unchanged for an existing one.
        max_entries: None: as many as fit, or unchanged.
        accept_capacity: if others have the cache open for writing with another capacity or
            max_entries, use theirs and log a warning (logger "shale") instead of raising
            ``BusyError``: for processes of an old and a new release side by side. ``stats()``
            reports the values in use.
        max_age, stale: the default age of an entry, and how long it is kept after that, seconds.
            None: as given when the cache was created, or ``shale.NEVER`` and not at all.
        read_only: never write; needs no permission to write. must_exist: raise ``NotFoundError``
            instead of creating the cache.
        sync_on_close: the last process that closes the cache writes everything to disk.
        serializer: for values of other types, such as ``shale.PickleSerializer()``.
        serialize_all: the serializer writes every value, also str and bytes, and a value that it
            did not write is a miss: for serializers that encrypt or sign. Keys, tags and the meta
            of a loader are stored as they are. ``incr`` then raises ``InvalidError``.
        compression: of values that this handle sets. "dictionary" (LZ4, with dictionaries for small
            values), "lz4", "none", or "dense": as "dictionary", but a third smaller and faster to
            read, and several times slower to set, for what is set once and read often.
        now: a clock, which returns seconds since 1970 as ``time.time`` does. This handle evaluates
            the freshness of all entries by it, those of other processes too. Each call asks it
            first, and passes on an exception that it raises.
        shards, segment_size, mode (permission bits): None: chosen by the library. Set when the
            cache is created.
        eviction: the order of eviction when the cache is full. "lru": least recently used first,
            exactly so within a shard. "clock": the oldest entry that was not used since it was
            written or last kept. Choose "clock" for a cache that is full most of the time: a pass
            over many keys (a scan, a crawl) displaces fewer entries in use, more of the capacity is
            filled, and less is written. Choose "lru" if the order has to be exact, or if popularity
            changes suddenly. Set when the cache is created; opening an existing cache with another
            policy raises ``InvalidError``. None: "lru" for a new cache, unchanged for an existing
            one.
        lock_timeout: how long a call waits for a lock that another process or thread holds,
            seconds; then it raises ``BusyError``, which names the process, and has changed nothing.
            Such a process was stopped during a call (SIGSTOP, a debugger, a frozen cgroup): a lock
            is usually held for less than a millisecond. Calls on the whole cache (``clear``,
            ``invalidate``, ``evict``, ``purge``, ``verify``, and calls with many keys) may have
            done part of their work; repeat them. Opening waits as long for another process that
            opens or closes. None: no limit. A wait of a second is always logged as a warning
            (logger "shale").
        reserve_capacity: for a new cache, the capacity up to which each process that opens it
            reserves address space, so that the cache can grow and keep its index; growing further
            rebuilds the index. Set it to the capacity if address space is limited
            (``ulimit -v``). None, or more: four times the capacity.

        Raises InvalidError, SystemCallError, NotFoundError, NotDirectoryError (the path is a file),
        FormatError (the directory holds other files), VersionError, BusyError (other writers have
        the cache open with another capacity or max_entries, or lock_timeout is over),
        FilesystemError, PermissionDeniedError, FullError, OutOfMemoryError. Their ``filename`` is
        the directory.
        """
        path, encoded = _path(directory)
        clock = None if now is None else Clock(now)
        options = open_options(
            capacity=capacity,
            max_entries=max_entries,
            max_age=max_age,
            stale=stale,
            read_only=read_only,
            must_exist=must_exist,
            sync_on_close=sync_on_close,
            compression=compression,
            shards=shards,
            segment_size=segment_size,
            mode=mode,
            eviction=eviction,
            lock_timeout=lock_timeout,
            reserve_capacity=reserve_capacity,
        )
        self._codec = Codec(serializer, serialize_all)
        # Values that `get` and `_store` copy as they are.
        self._raw_kind = None if serialize_all else bytes
        self._largest_raw = -1 if serialize_all else LARGEST_KEPT
        self._plain = plain_set_options(self._codec.serialized_meta)
        self._without_tags = {}
        self._directory = path
        # For another process that opens it. The directory stores the options of the cache itself.
        self._handle_arguments: dict[str, Any] = {
            "max_age": max_age,
            "stale": stale,
            "read_only": read_only,
            "sync_on_close": sync_on_close,
            "serializer": serializer,
            "serialize_all": serialize_all,
            "compression": compression,
            "now": now,
            "lock_timeout": lock_timeout,
        }
        self._pool = Pool(_open(encoded, options, clock, accept_capacity))
        self._calls = calls_of(self._pool, self._codec)
        self._sets_plainly = True
        self._listeners = None
        self._counts = Counts()
        # Equal for all caches that are open on one directory.
        self._identity = object() if path is None else _file_identity(path)
        # In C, LRU is the default of a new cache, and is not checked for an existing one.
        if eviction == "lru" and self._stats().eviction != abi.EVICTION_LRU:
            self.close()
            raise InvalidError(
                f"{path} has the eviction policy clock, which cannot be changed; "
                "pass None, or use another directory"
            )

    # The handle

    @property
    def directory(self) -> str | None:
        """The absolute path, or None for a cache in memory."""
        return self._directory

    @property
    def closed(self) -> bool:
        return self._pool.closed

    def close(self) -> None:
        """Closes the handle. May be called again. The last process that closes the cache syncs it.

        Running calls of other threads finish, and the last of them closes the handle. Later calls
        and iterations raise ``InvalidError``.
        """
        check(self._pool.close())

    def sync(self) -> None:
        """Returns when all calls that completed before it are on disk.

        After a power failure you have everything as of the last ``sync``, except keys modified
        since and entries that a full cache has moved or evicted. No key reverts to an older value;
        evicted entries may reappear, and in a full cache displace others.
        """
        self._call(library.sync)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = " (closed)" if self.closed else ""
        return f"<shale.Cache {self._directory or 'in memory'}{state}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """For another process, which opens the same directory."""
        if self._directory is None:
            raise TypeError(
                "a cache in memory cannot be pickled, as only children of fork share it"
            )
        return partial(type(self), self._directory, **self._handle_arguments), ()

    # Reading

    @overload
    def get(self, key: KT, default: None = None, **options: Unpack[ReadOptions]) -> VT | None: ...

    @overload
    def get(
        self, key: KT, default: Union[VT, T], **options: Unpack[ReadOptions]
    ) -> Union[VT, T]: ...

    def get(self, key: Any, default: Any = None, *, stale: bool = False, peek: bool = False) -> Any:
        """The value, or ``default``.

        stale: also return a stale value. peek: do not change the eviction order and the counters,
        and emit no event.
        """
        # encode_key, Pool.run, CallContext.get and Buffer.take, without the cost of their calls.
        stored = key if type(key) is bytes and key < MARKER and key else encode_key(key)
        pool = self._pool
        idle = pool.idle
        try:
            context = idle.pop()
        except IndexError:
            context = pool.make()
        try:
            buffer = context.buffer
            status = fast_get(
                context.pointer,
                stored,
                SIZES[len(stored)],
                read_flags(stale, peek) if stale or peek else 0,
                buffer.reference,
            )
            if status:
                if status == _MISS:
                    return default
                if status < 0:
                    raise failure(status)
            struct = buffer.struct
            size = struct.size
            if size <= self._largest_raw and not struct.meta_size:
                return buffer.data[:size]
            data, meta = buffer.take()
        finally:
            idle.append(context)
        try:
            return self._codec.decode(meta, data)
        except Unreadable:
            return default

    def __getitem__(self, key: KT) -> VT:
        value = self.get(key, _missing)
        if value is _missing:
            raise KeyError(key)
        return cast("VT", value)

    def __contains__(self, key: object) -> bool:
        """Whether ``get`` would return a value. Does not change the eviction order and counters."""
        return self._has(key, False)

    def entry(self, key: KT, *, stale: bool = False, peek: bool = False) -> Entry[VT] | None:
        """The value with its times, version, size and meta, or None. stale, peek: as in ``get``."""
        flags = read_flags(stale, peek)
        return self._pool.run(lookups.entry, self._encode(key), flags, self._codec)

    def get_many(
        self, keys: Iterable[K], *, stale: bool = False, peek: bool = False
    ) -> dict[K, VT]:
        """The existing values, by key. Costs much less than a call for each key. stale, peek: as in
        ``get``."""
        flags = read_flags(stale, peek)
        if self._whole and self._calls is not None:
            return self._get_many(list(several(keys)), flags)
        by_stored = self._encode_many(keys)
        wanted = list(by_stored.values())
        found = self._pool.run(batch.get_many, list(by_stored), flags)
        values: dict[K, Any] = {}
        raw = not self._codec.serializes_all
        for position, data, meta in found:
            if raw and not meta:
                values[wanted[position]] = data
                continue
            try:
                values[wanted[position]] = self._codec.decode(meta, data)
            except Unreadable:
                continue
        return values

    def get_into(
        self,
        key: KT,
        buffer: Buffer,
        *,
        stale: bool = False,
        peek: bool = False,
    ) -> int | None:
        """Copies a value of bytes into your memory, such as a ``bytearray`` or a numpy array, and
        returns its size in bytes; None if there is no value. stale, peek: as in ``get``.

        Raises InvalidError if the buffer is smaller than the value or read-only, and TypeError if
        the value is not bytes; nothing is copied then.
        """
        from ._store.readers import copy_into

        return copy_into(self, key, read_flags(stale, peek), buffer)

    def reader(self, key: KT, *, stale: bool = False, peek: bool = False) -> Reader | None:
        """A value of bytes as a file to read from, or None if there is no value.

            with cache.reader("video") as file:
                shutil.copyfileobj(file, response)

        The file is the value at the time of this call, also if the entry changes. It is in the
        memory that the library filled: ``getbuffer()`` is a read-only ``memoryview`` of it, without
        a copy. stale, peek: as in ``get``. Raises TypeError if the value is not bytes.
        """
        from ._store.readers import reader_of

        return reader_of(self, key, read_flags(stale, peek))

    # Writing

    def set(
        self,
        key: KT,
        value: VT,
        *,
        max_age: Seconds | None = None,
        stale: Seconds | None = None,
        tag: Tag | None = None,
        tags: Iterable[Tag] | None = None,
        pinned: bool = False,
        meta: bytes = b"",
        compress: bool = True,
        if_present: bool = False,
        if_version: int | None = None,
    ) -> bool:
        """Stores a value. Returns whether it did: False only if a condition is not met.

        max_age, stale: seconds; None is the cache's default. tag, tags: up to eight, for
        ``invalidate``. pinned: never evicted; ages and removals still apply. meta: your own bytes,
        stored with the value (an ETag, a content type) and returned as ``entry(key).meta``; up to
        about 65,000. compress: False for values that are compressed already.

        if_present: only if there is a fresh value. if_version: only if the entry, fresh or stale,
        has this ``Entry.version``, which every set changes. Both are atomic.

        Raises TypeError for a key or value that cannot be stored, TooLargeError for a value over a
        quarter of the capacity or over 1 GiB, FullError, OutOfMemoryError, PermissionDeniedError.
        The old value then stays.
        """
        flags = 0 if compress and not pinned else store_flags(pinned, compress)
        if if_present or if_version is not None:
            rest = max_age, stale, tag, tags, meta
            return self._set_if(key, value, flags, rest, if_present, if_version)
        self._store(key, value, flags, max_age, stale, tag, tags, meta)
        return True

    def __setitem__(self, key: KT, value: VT) -> None:
        self._put(key, value)

    def add(self, key: KT, value: VT, **options: Unpack[StoreOptions]) -> bool:
        """Stores a value if there is no fresh one. Whether it did. Atomic. Options and errors as in
        ``set``."""
        flags, rest = storing(**options)
        flags |= abi.SET_IF_ABSENT
        while self._store(key, value, flags, *rest) != abi.OK:
            stored = self._encode(key)
            if not self._pool.run(lookups.remove_unreadable, stored, self._codec):
                return False
        return True

    def set_many(self, items: Items[KT, VT], **options: Unpack[StoreOptions]) -> None:
        """Stores many values, from a mapping or pairs. Costs less than a call for each key.

        All values are encoded first, so a TypeError stores nothing. Each key is a separate
        operation: if the library fails, some values may be stored. Options as in ``set``.
        """
        flags, (max_age, stale, tag, tags, own_meta) = storing(**options)
        encode = self._codec.encode
        encoded = {self._encode(key): encode(value) for key, value in pairs(items)}
        by_meta: dict[bytes, list[tuple[bytes, bytes]]] = {}
        for stored, (meta, data) in encoded.items():
            by_meta.setdefault(meta, []).append((stored, data))
        named = tag_list(tag, tags)
        for meta, group in by_meta.items():
            struct = set_options(
                join_meta(meta, own_meta), flags, *self._scoped(max_age, stale, named)
            )
            self._pool.run(batch.set_many, group, ctypes.byref(struct))

    @overload
    def incr(
        self,
        key: KT,
        delta: int = 1,
        *,
        initial: int = 0,
        create: Literal[True] = True,
        **options: Unpack[EntryOptions],
    ) -> int: ...

    @overload
    def incr(
        self,
        key: KT,
        delta: int = 1,
        *,
        initial: int = 0,
        create: bool,
        **options: Unpack[EntryOptions],
    ) -> int | None: ...

    def incr(
        self,
        key: KT,
        delta: int = 1,
        *,
        initial: int = 0,
        create: bool = True,
        **options: Unpack[EntryOptions],
    ) -> int | None:
        """Adds ``delta`` to an int of 64 bits and returns the new number. Atomic.

        A missing key starts from ``initial``; the ages and tags apply only then, an existing entry
        keeps its own. create: False to leave a missing key missing, and return None. Also counts on
        the 8 bytes that ``shale_increment`` stored in another program; there ``get`` returns bytes.

        Raises InvalidError, with nothing changed, if the entry is not an int of 64 bits or the sum
        does not fit.
        """
        if self._codec.serializes_all:
            raise InvalidError(
                "incr needs plain ints, and this cache was opened with serialize_all; use update"
            )
        scoped = self._scoped(*keeping(**options))
        stored = self._encode(key)
        return self._pool.run(counters.increment, stored, delta, initial, create, *scoped)

    @overload
    def decr(
        self,
        key: KT,
        delta: int = 1,
        *,
        initial: int = 0,
        create: Literal[True] = True,
        **options: Unpack[EntryOptions],
    ) -> int: ...

    @overload
    def decr(
        self,
        key: KT,
        delta: int = 1,
        *,
        initial: int = 0,
        create: bool,
        **options: Unpack[EntryOptions],
    ) -> int | None: ...

    def decr(
        self,
        key: KT,
        delta: int = 1,
        *,
        initial: int = 0,
        create: bool = True,
        **options: Unpack[EntryOptions],
    ) -> int | None:
        """Subtracts ``delta``: ``incr`` with ``-delta``."""
        negative = -int64("delta", delta)
        return self.incr(key, negative, initial=initial, create=create, **options)

    def touch(self, key: KT, max_age: Seconds | None = None) -> bool:
        """Gives an entry, fresh or stale, a new age from now, seconds. False if there is no
        entry."""
        stored = self._encode(key)
        max_age, _, _ = self._scoped(max_age, None, [])
        status = self._call(library.touch, stored, len(stored), age_ms(max_age))
        return status == abi.OK

    def expire(self, key: KT) -> bool:
        """Makes an entry stale, as at the end of its age. Whether there was one.

        It is kept for its stale period from now, for calls that ask for stale values; without a
        stale period it is removed. A running load stores nothing, as after ``remove``.
        """
        stored = self._encode(key)
        return self._call(library.expire, stored, len(stored)) == abi.OK

    def setdefault(
        self,
        key: KT,
        default: VT = None,  # type: ignore[assignment]
        **options: Unpack[StoreOptions],
    ) -> VT:
        """The value, or ``default``, which it then stores. Atomic. Options and errors as in
        ``set``."""
        while True:
            value = self.get(key, _missing)
            if value is not _missing:
                return cast("VT", value)
            if self.add(key, default, **options):
                return default

    @overload  # type: ignore[override]
    def update(
        self,
        key: KT,
        function: Callable[[Any], VT],
        default: Any = None,
        **options: Unpack[StoreOptions],
    ) -> VT: ...

    @overload
    def update(self, items: Items[KT, VT], /, **options: Unpack[StoreOptions]) -> None: ...

    def update(
        self, key: Any, function: Any = None, default: Any = None, **options: Unpack[StoreOptions]
    ) -> Any:
        """Stores and returns ``function(value)``, or ``function(default)`` if there is no fresh
        value.

        Atomic: if the key changes meanwhile, the function is called again with the new value, so
        it should have no side effects. If it raises, nothing is stored. Options and errors as in
        ``set``: the old entry's ages and tags are not kept.

        ``update(items)``, without a function, is ``set_many(items)``, as for a dict.
        """
        if function is None:
            return self.set_many(key, **options)
        flags, rest = storing(**options)
        stored = self._encode(key)
        while True:
            old, version = self._pool.run(lookups.current, stored, default, self._codec)
            new = function(old)
            condition = abi.SET_IF_VERSION if version else abi.SET_IF_ABSENT
            if self._store(key, new, flags | condition, *rest, version=version) == abi.OK:
                return new

    def lease(
        self,
        key: KT,
        *,
        stale: bool = True,
        lease: Seconds = LEASE,
        refresh_ahead: Seconds = 0,
    ) -> Lease[KT, VT]:
        """Returns the current value and, if it needs loading, a lease that at most one caller in
        any process holds. Never waits. It is what ``get_or_load`` uses, for programs that load in
        another way:

            with cache.lease("k", lease=10) as lease:
                if lease.granted:
                    lease.set(load(), max_age=60)

        It is granted on a miss, on a stale value, and with ``refresh_ahead`` sometimes on a fresh
        one, unless another caller holds it. It ends when it is released, when its process ends, or
        when its time is over, which ``Lease.renew`` restarts. Other callers can still set the key.
        A cache of 16 MiB or more records at least 4,096 leases at once, a smaller one
        proportionally fewer. Further leases are granted unrecorded: two callers may hold one of
        those, and ``stats().leases_unrecorded`` counts them.

        stale: also return a stale value. lease: seconds, up to an hour. refresh_ahead: as in
        ``get_or_load``. Raises PermissionDeniedError if a read-only cache would have to load.
        """
        from ._loading.manual import lease_of

        return lease_of(self, key, stale, lease, refresh_ahead)

    def lock(self, key: KT, *, timeout: Seconds | None = None, lease: Seconds = LEASE) -> Lock:
        """The lock of a key, for the body of a ``with`` statement. One caller at a time holds it,
        in all threads and processes.

            with cache.lock("report", timeout=10):
                ...

        Other callers can still read and change the key, and load it.

        timeout: how long to wait for another holder; then ``LockTimeoutError``. None: no limit. 0:
            do not wait.
        lease: how soon another caller gets the lock of a process that was stopped, up to an hour.
            The lock may be held for longer: it is renewed. The lock of a process that was killed is
            free at once.

        It is not reentrant, and callers do not wait in order: they retry after pauses of up to
        16 ms. It ends early if its process is stopped for longer than ``lease``, or if the cache's
        index is rebuilt; ``held`` is False then. So use it to avoid duplicate work; where doing
        the work twice would be wrong, use ``set(..., if_version=...)``.
        """
        return Lock(self, key, timeout=timeout, lease=lease)

    def namespace(self, name: str, **options: Unpack[EntryOptions]) -> Namespace[Any, Any]:
        """A part of the cache: a cache with its own keys, which shares all the rest.

            users = cache.namespace("users", max_age=3600)
            users[7] = "Ada"
            users.clear()

        Its key 7 is ``("users", 7)`` in the cache. Its ``clear`` costs the same for any number of
        entries: it removes the entries that were stored through a namespace of this name, by a tag
        that each of them carries. So an entry may have seven tags of its own. Iteration and ``len``
        walk the whole cache.

        max_age, stale: the defaults of entries that are stored through it. tag, tags: added to
        their own tags.

        ``stats``, ``invalidate``, ``evict``, ``purge`` and so on work on the whole cache. Its
        listeners get the events of this object, with its own keys. It is open as long as the cache
        is; ``close`` and ``with`` do not close the cache. ``AsyncCache.namespace`` is the same for
        coroutines.
        """
        return Namespace(self, name, *keeping(**options))

    # Removing

    def remove(self, key: KT, *, if_version: int | None = None) -> bool:
        """Removes an entry. Whether there was one. A load under way then stores nothing, even if
        there was none. if_version: only an entry with this ``Entry.version``; atomic."""
        version = 0 if if_version is None else unsigned("if_version", if_version, 64, least=1)
        stored = self._encode(key)
        return self._call(library.remove, stored, len(stored), version) == abi.OK

    def __delitem__(self, key: KT) -> None:
        if not self.remove(key):
            raise KeyError(key)

    def remove_many(self, keys: Iterable[KT]) -> int:
        """Removes many entries. Returns their number."""
        return self._pool.run(batch.remove_many, list(self._encode_many(keys)))

    @overload  # type: ignore[override]
    def pop(self, key: KT, default: None = None) -> VT | None: ...

    @overload
    def pop(self, key: KT, default: Union[VT, T]) -> Union[VT, T]: ...

    def pop(self, key: Any, default: Any = None) -> Any:
        """Removes an entry, as ``remove`` does, and returns its value; ``default`` if it is stale,
        cannot be read or is absent. Only one caller gets the value."""
        return self._pool.run(lookups.pop, self._encode(key), default, self._codec)

    def popitem(self) -> tuple[KT, VT]:
        """Removes some entry and returns its key and value. Only one caller gets them. KeyError if
        the cache is empty."""
        # (A pop would remove values that this cache cannot read.)
        for key, _ in self._iterate_items(False):
            value = self.pop(key, _missing)
            if value is not _missing:
                return key, cast("VT", value)
        raise KeyError("the cache is empty")

    def invalidate(self, tag: Tag, *, expire: bool = False) -> None:
        """Removes every entry with the tag. Costs the same for any number of entries.

        expire: make them stale instead, as ``expire`` does.
        """
        name = tag_bytes(tag)
        flags = abi.INVALIDATE_EXPIRE if expire else 0
        self._call(library.invalidate_with, name, len(name), flags)

    def clear(self) -> None:
        """Removes every entry, also pinned ones."""
        self._call(library.clear)

    def evict(self, count: int) -> int:
        """Evicts up to ``count`` entries, in the order of the cache's ``eviction``. Returns their
        number."""
        evicted = ctypes.c_uint64()
        self._call(library.evict, unsigned("count", count, 64), ctypes.byref(evicted))
        return evicted.value

    def purge(self) -> int:
        """Removes entries that are past their age and stale period. Returns their number. Walks the
        whole index."""
        purged = ctypes.c_uint64()
        self._call(library.purge, ctypes.byref(purged))
        return purged.value

    # Looking at the whole

    def __iter__(self) -> Iterator[KT]:
        """The keys of fresh entries, in no particular order.

        The cache may change during the iteration: a key that exists throughout is returned exactly
        once, also if its value is replaced; no key is returned twice; a key that is added or
        removed meanwhile may be returned or not. If a writer replaces the index that a read-only
        cache uses, the iteration raises BusyError. The eviction order does not change.
        """
        return self._iterate_keys(False)

    def keys(self, *, stale: bool = False) -> CacheKeys[KT]:
        """The keys, as a view that follows the cache, like a dict's. stale: also those of stale
        entries."""
        return CacheKeys(self, stale)

    def values(self, *, stale: bool = False) -> CacheValues[VT]:
        """The values, likewise, without those that this cache cannot read."""
        return CacheValues(self, stale)

    def items(self, *, stale: bool = False) -> CacheItems[KT, VT]:
        """Keys and values, likewise."""
        return CacheItems(self, stale)

    def __len__(self) -> int:
        """The number of keys that iteration returns. Walks them all, at one to two microseconds
        each. ``stats().entries`` is immediate, and counts dead entries too, until they are
        swept."""
        return self._count(False)

    def __bool__(self) -> bool:
        """Whether iteration returns any key."""
        return any(True for _ in self)

    # A cache equals only itself, whatever its entries.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    # Python would count down from len() and use the numbers as keys.
    __reversed__ = None

    def __array__(self, *_arguments: Any, **_options: Any) -> Any:
        # numpy would read it as a sequence.
        raise TypeError("a cache is no array; numpy.array(list(cache)) is an array of its keys")

    def stats(self) -> Stats:
        """Counters since the index was made, of all processes together; and ``own``, the counts of
        this object's loads."""
        return stats_of(self._stats(), self._counts.stats(self._codec.undecodable))

    def on(self, name: EventName, listener: Listener) -> Callable[[], None]:
        """Calls ``listener(event)`` at each event of this name. Returns a function that ends that.

        ``Event.name`` lists the names. Events are emitted only for calls on this object, not for
        those of other processes, evictions, or entries that expire; ``expire`` and
        ``invalidate(tag, expire=True)`` emit ``"expire"``. The listener runs in the thread of the
        call, before the call returns, without a lock: it may use the cache, and its own calls emit
        no events. An exception that it raises is logged (logger "shale") and not passed on. If
        several threads change a key, their events may come in another order than their changes.

        Without listeners, events cost nothing. With listeners, ``get_many`` and ``remove_many``
        emit an event for each key, and ``get_many`` reads the keys one by one. A subclass's own
        ``get``, ``entry``, ``get_many``, ``pop`` or ``remove_many`` is called as before; its calls
        to ``super()`` emit no events.
        """
        return listen(self, name, listener)

    def volume(self) -> int:
        """Bytes on disk, all files together."""
        stats = self._stats()
        return stats.data_bytes + stats.index_bytes

    def verify(self) -> Report:
        """Reads and checks every current record, and removes damaged ones."""
        report = abi.Report(struct_size=abi.REPORT_SIZE)
        self._call(library.verify, ctypes.byref(report))
        return report_of(report)


put_in_front(Cache)
Cache._shale_class = Cache


class Namespace(Cache[KT, VT]):
    """A part of a cache. ``Cache.namespace`` makes it, and describes the differences."""

    def __init__(
        self,
        cache: Cache[Any, Any],
        name: str,
        max_age: Seconds | None,
        stale: Seconds | None,
        tags: list[bytes],
    ) -> None:
        if not isinstance(name, str):
            raise TypeError(f"a namespace's name is a str, not {type(name).__name__}")
        if not name:
            raise InvalidError("a namespace's name is empty")
        age_ms(max_age), age_ms(stale)
        for attribute in _SHARED:
            setattr(self, attribute, getattr(cache, attribute))
        self._calls = cache._calls
        self._cache = cache
        self._name = name
        self._tag = _TAG + name.encode("utf-8", "surrogatepass")
        self._own = max_age, stale, [self._tag, *tags]
        self._plain = set_options_by_meta(
            BYTES,
            *FIXED_METAS,
            self._codec.serialized_meta,
            max_age=max_age,
            stale=stale,
            tags=self._own[2],
        )
        self._without_tags = {}
        self._listeners = None

    @property
    def name(self) -> str:
        """The first item of its keys in the cache."""
        return self._name

    @property
    def cache(self) -> Cache[Any, Any]:
        """The cache that it is a part of."""
        return self._cache

    def close(self) -> None:
        """Does nothing: it is open as long as its cache is."""

    def __repr__(self) -> str:
        return f"<shale.Namespace {self._name!r} of {self._cache!r}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._cache, self._name, *self._own[:2], self._own[2][1:])

    def namespace(self, name: str, **options: Any) -> Namespace[Any, Any]:
        raise InvalidError("a namespace has no namespaces; make one of the cache, named 'a:b'")

    # Its keys

    _whole = False

    def _encode(self, key: Any) -> bytes:
        return encode_key((self._name, key))

    def _encode_many(self, keys: Iterable[K]) -> dict[bytes, K]:
        return {self._encode(key): key for key in several(keys)}

    def _scoped(
        self, max_age: Seconds | None, stale: Seconds | None, tags: list[bytes]
    ) -> tuple[Seconds | None, Seconds | None, list[bytes]]:
        own_max_age, own_stale, own_tags = self._own
        return (
            own_max_age if max_age is None else max_age,
            own_stale if stale is None else stale,
            [*own_tags, *tags],
        )

    # These two encode their keys themselves, which is faster.

    def get(self, key: Any, default: Any = None, *, stale: bool = False, peek: bool = False) -> Any:
        own: Any = self._name, key
        if stale or peek:
            return super().get(own, default, stale=stale, peek=peek)
        return super().get(own, default)

    def _store(self, key: Any, *arguments: Any, **options: Any) -> int:
        return super()._store((self._name, key), *arguments, **options)

    # The whole namespace

    def clear(self) -> None:
        """Removes all entries that were stored through a namespace of this name, pinned or not.
        Costs the same for any number of entries."""
        self._call(library.invalidate_with, self._tag, len(self._tag), 0)

    def _iterate_keys(self, stale: bool) -> Iterator[Any]:
        for key in super()._iterate_keys(stale):
            if type(key) is tuple and len(key) == 2:
                name, own = key
                # (Python may warn about comparing str with bytes.)
                if type(name) is str and name == self._name:
                    yield own

    def _iterate_items(self, stale: bool) -> Iterator[tuple[Any, Any]]:
        for key in self._iterate_keys(stale):
            value = self.get(key, _missing, stale=stale, peek=True)
            if value is not _missing:
                yield key, value

    def _count(self, stale: bool) -> int:
        return sum(1 for _ in self._iterate_keys(stale))


Namespace._shale_class = Namespace


def _open(
    directory: bytes | None, options: abi.Options, clock: Clock | None, accept: bool
) -> Handle:
    try:
        return Handle(directory, options, clock)
    except BusyError as error:
        if not accept or not error.message.endswith(CLOSE_OTHERS):
            raise
        options.capacity = options.max_entries = 0
        handle = Handle(directory, options, clock)
        log.warn("%s; opened with the values in use, because of accept_capacity", error)
        return handle


def _path(directory: object) -> tuple[str | None, bytes | None]:
    if directory is None:
        return None, None
    path = os.path.expanduser(os.fsdecode(directory))  # type: ignore[arg-type]
    if not path:
        raise InvalidError("the directory's path is empty")
    if "\0" in path:
        raise InvalidError(f"the directory's path contains a NUL: {path!r}")
    path = os.path.abspath(path)
    return path, os.fsencode(path)


def _file_identity(path: str) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino
