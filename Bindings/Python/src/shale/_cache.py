"""The cache: `Cache`, one directory."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Iterator, MutableMapping
from typing import TYPE_CHECKING, Any, Callable, Final, Union, cast, overload

from . import _abi, _batch, _counter, _events, _iterate, _library, _log, _lookups, _options
from ._buffer import LARGEST_KEPT
from ._clock import Clock
from ._errors import CLOSE_OTHERS, BusyError, InvalidError, check, failure
from ._fast import Fast, calls_of, put_in_front
from ._handle import Handle, Loan, Pool
from ._keys import MARKER, K, encode_key, encode_keys, several
from ._library import SIZES, fast_get, fast_set
from ._loading_methods import LoadingMethods
from ._lock import Lock
from ._mapping import CacheItems, CacheKeys, CacheValues
from ._options import EntryOptions, StoreOptions, Tag
from ._records import Entry, Report, Stats, report_of, stats_of
from ._serializers import Serializer
from ._typing import KT, VT, T, pairs
from ._units import LEASE, Seconds, age_ms, unsigned
from ._values import Codec, Unreadable, join_meta

if TYPE_CHECKING:
    from typing import Literal

    from typing_extensions import Buffer, Self, Unpack

    from ._namespace import Namespace
    from ._options import Eviction, ReadOptions, Rest
    from ._raw_lease import Lease
    from ._reader import Reader
    from ._typing import Items

_MISS: Final = _abi.MISS
_STALE: Final = _abi.GET_STALE
_MOST_PREPARED: Final = 256
_missing: Final = object()


class Cache(Fast, LoadingMethods[KT], MutableMapping[KT, VT]):
    """A persistent cache in one directory.

    Any number of threads and processes use it at the same time, each process
    through its own ``Cache`` or, after ``fork``, through the one it inherited.

    Keys are ``str``, ``bytes``, ``int`` and tuples of these. Values are
    ``bytes``, ``str``, ``int``, ``float``, ``bool``, ``None``, ``datetime``, ``date``,
    ``timedelta``, ``Decimal``, ``UUID``, and lists, tuples, sets, frozensets and dicts of them;
    anything else needs a serializer. A value that cannot be
    read back (another serializer, a newer release) is a miss.

    Ages are seconds, ``int`` or ``float``, or a ``timedelta``. ``None`` is the cache's default,
    ``shale.NEVER`` has no end, and 0 is none at all: with ``max_age`` stale at
    once, with ``stale`` gone at the end of its age. They are exact to the
    millisecond.

    A miss is not an error, except for ``cache[key]``, ``del cache[key]`` and ``popitem()``,
    which raise ``KeyError``. Any call may raise a subclass of ``shale.Error``.

    It is a ``MutableMapping``, that differs from a dict where it has to: ``pop(key)`` of what is
    not there gives None; a cache equals itself alone, and so can be a key; the keywords of
    ``update`` are options; and entries may leave at any time, by their age or to make room.

    ``Cache[str, int]`` is, to a type checker, one of such keys and values. It is not checked
    when the program runs.
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
        """Opens the cache in ``directory``, and creates it where there is none.

        directory: a leading ``~`` is the home directory. None for a new cache in memory, shared
            with later children of ``fork`` alone.
        capacity: bytes on disk, all files together: an int, or a string such as
            "1GiB" (powers of 1024) or "64MB" (powers of 1000). None: 1 GiB for a
            new cache, unchanged for an existing one.
        max_entries: None: as many as fit, or unchanged.
        accept_capacity: where others have the cache open for writing, with another capacity or
            max_entries than these, take theirs and log a warning (logger "shale") instead of
            raising ``BusyError``: for processes of an old and a new release side by side.
            ``stats()`` tells which they are.
        max_age, stale: default age of an entry, and how long it is kept past it,
            seconds. None: what was set when the cache was created, or
            ``shale.NEVER`` and none.
        read_only: never write, and need no permission to. must_exist: raise
            ``NotFoundError`` instead of creating.
        sync_on_close: whether the last process to close writes everything to disk.
        serializer: for values of other types, such as ``shale.PickleSerializer()``.
        serialize_all: the serializer writes every value, str and bytes too, and what it did not
            write is a miss: for one that encrypts, or signs. Keys, tags and the meta of a loader
            are stored as they are. There are no counters then: ``incr`` raises ``InvalidError``.
        compression: "dictionary" (LZ4, with dictionaries for small values), "lz4"
            or "none".
        now: a clock, seconds since 1970 as ``time.time`` gives them. It judges
            every entry that this handle meets, other processes' too. It is asked before
            each call, and what it raises goes to that call's caller.
        shards, segment_size, mode (permission bits): None: chosen by the library.
            They are set when the cache is created.
        eviction: which entries leave first where there is no room. "lru": the least
            recently used one, exactly so within a shard. "adaptive": what was not used
            since it was written or last kept, the oldest first. Choose that for a cache
            that is full most of the time: one pass over many keys (a scan, a crawl)
            displaces less of what is used, more of the capacity is filled, and less is
            written. Choose "lru" where the order has to be exact, or where popularity
            changes all at once. It is chosen when the cache is created; another one
            than an existing cache's raises ``InvalidError``. None: "lru" for a new
            cache, unchanged for an existing one.
        lock_timeout: how long a call waits for a lock that another process or thread holds,
            seconds; then it raises ``BusyError``, with nothing changed, which names the process.
            That is one that was stopped in the middle of a call (SIGSTOP, a debugger, a frozen
            cgroup): a lock is held for less than a millisecond as a rule. Calls that work on the
            whole cache (``clear``, ``invalidate``, ``evict``, ``purge``, ``verify``, and what
            takes many keys) may have done part of it; call them again. Opening waits as long for
            another that opens or closes. None: without end. In any case a wait of a second is
            logged as a warning (logger "shale").
        reserve_capacity: of a new cache, the capacity up to which address space is reserved for
            it in each process that opens it, so that it can grow with its index; beyond that the
            index is made anew. Give it the capacity where address space is limited (``ulimit -v``).
            None, or more: four times the capacity.

        Raises InvalidError, SystemCallError, NotFoundError, FormatError (the directory holds
        other files), VersionError, BusyError (another capacity or max_entries
        while other writers have it open, or lock_timeout), FilesystemError,
        PermissionDeniedError, FullError, OutOfMemoryError.
        """
        path, encoded = _path(directory)
        clock = None if now is None else Clock(now)
        options = _options.open_options(
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
        # What `get` and `_store` take as it is.
        self._raw_kind: type[Any] | None = None if serialize_all else bytes
        self._largest_raw = -1 if serialize_all else LARGEST_KEPT
        self._plain = _options.plain_set_options(self._codec.serialized_meta)
        self._without_tags: dict[tuple[bytes, int, Seconds | None, Seconds | None], Any] = {}
        self._directory = path
        # For another process to open it so. What belongs to the cache itself is kept in it.
        self._handle_arguments = {
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
        self._listeners: _events.Listeners | None = None
        self._counts = _events.Counts()
        # The same for all caches that are open on one directory.
        self._identity = object() if path is None else _file_identity(path)
        # To C, LRU is what a new cache has by default, and no demand on one that exists.
        if eviction == "lru" and self._stats().eviction != _abi.EVICTION_LRU:
            self.close()
            raise InvalidError(
                f"{path} has the eviction policy adaptive, which cannot be changed; "
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
        """Closes the handle; again is allowed. The last process to close syncs.

        Calls that other threads have under way finish, and the last of them
        closes the handle. Calls and iterations after it raise ``InvalidError``.
        """
        check(self._pool.close())

    def sync(self) -> None:
        """Returns when all that was completed before the call is on the disk.

        After a power cut each entry is as it was then, or as later. What may be missing: an entry
        whose place a full cache has reused since, a key that was changed since, what was evicted,
        and in a full cache what evicted entries displace that come back.
        """
        self._call(_library.sync)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = " (closed)" if self.closed else ""
        return f"<shale.Cache {self._directory or 'in memory'}{state}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process opens the same directory anew."""
        if self._directory is None:
            raise TypeError("a cache in memory is shared with children of fork alone")
        return _reopen, (type(self), self._directory, self._handle_arguments)

    # Reading

    @overload
    def get(self, key: KT, default: None = None, **options: Unpack[ReadOptions]) -> VT | None: ...

    @overload
    def get(
        self, key: KT, default: Union[VT, T], **options: Unpack[ReadOptions]
    ) -> Union[VT, T]: ...

    def get(self, key: Any, default: Any = None, *, stale: bool = False, peek: bool = False) -> Any:
        """The value, or ``default``.

        stale: also what is past its age but kept. peek: leave the order of use and the counters
        alone, and tell no listener.
        """
        # encode_key, Pool.lend, Loan.get and Buffer.take, without the cost of their calls.
        stored = key if type(key) is bytes and key < MARKER and key else encode_key(key)
        pool = self._pool
        idle = pool.idle
        try:
            loan = idle.pop()
        except IndexError:
            loan = pool.make()
        try:
            buffer = loan.buffer
            status = fast_get(
                loan.pointer,
                stored,
                SIZES[len(stored)],
                _options.read_flags(stale, peek) if stale or peek else 0,
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
            idle.append(loan)
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
        """Whether ``get`` would find it. Leaves recency and counters alone."""
        return self._has(key, False)

    def entry(self, key: KT, *, stale: bool = False, peek: bool = False) -> Entry[VT] | None:
        """The value with its times, version, size and meta, or None. stale, peek: as in ``get``."""
        flags = _options.read_flags(stale, peek)
        return self._pool.lend(_lookups.entry, self._encode(key), flags, self._codec)

    def get_many(
        self, keys: Iterable[K], *, stale: bool = False, peek: bool = False
    ) -> dict[K, VT]:
        """The values that are there, by key. Costs much less than one call for each. stale, peek:
        as in ``get``."""
        flags = _options.read_flags(stale, peek)
        if self._whole and self._calls is not None:
            return self._get_many(list(several(keys)), flags)
        by_stored = self._encode_many(keys)
        wanted = list(by_stored.values())
        found = self._pool.lend(_batch.get_many, list(by_stored), flags)
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
        """Copies a value of bytes into memory of yours, such as a ``bytearray`` or a numpy array,
        and says how many bytes it has; None, and nothing is copied, where there is none. stale,
        peek: as in ``get``.

        Raises InvalidError for a buffer that is smaller than the value, or cannot be written to,
        and TypeError for a value that is not bytes; nothing is copied then.
        """
        from ._reader import copy_into

        return copy_into(self, key, _options.read_flags(stale, peek), buffer)

    def reader(self, key: KT, *, stale: bool = False, peek: bool = False) -> Reader | None:
        """A value of bytes as a file to read from, or None where there is none.

            with cache.reader("video") as file:
                shutil.copyfileobj(file, response)

        It is the value as it was at this call, whatever becomes of the entry, in the memory that
        the library has put it into: ``getbuffer()`` is a read-only ``memoryview`` of that, without
        a copy. stale, peek: as in ``get``. Raises TypeError for a value that is not bytes.
        """
        from ._reader import reader_of

        return reader_of(self, key, _options.read_flags(stale, peek))

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
        """Stores a value. Whether it did: always, unless there is a condition.

        max_age, stale: seconds; None is the cache's default. tag, tags: up to
        eight, for ``invalidate``. pinned: never evicted for space; ages and
        removals still apply. meta: bytes of your own beside the value (an ETag, a content
        type), up to some 65,000; ``entry(key).meta`` are these. compress: False for what is
        compressed already.

        if_present: only where there is a value that is fresh. if_version: only where the entry,
        fresh or stale, has this ``Entry.version``; every set changes it. Both are atomic.

        Raises TypeError for a key or value that can't be stored, TooLargeError
        for a value over a quarter of the capacity or over 1 GiB, FullError,
        OutOfMemoryError, PermissionDeniedError. The old value then stays.
        """
        flags = 0 if compress and not pinned else _options.store_flags(pinned, compress)
        if if_present or if_version is not None:
            rest = max_age, stale, tag, tags, meta
            return self._set_if(key, value, flags, rest, if_present, if_version)
        self._store(key, value, flags, max_age, stale, tag, tags, meta)
        return True

    def __setitem__(self, key: KT, value: VT) -> None:
        self._put(key, value)

    def add(self, key: KT, value: VT, **options: Unpack[StoreOptions]) -> bool:
        """Stores a value if there is none that is fresh. Whether it did. Atomic. The options and
        errors are those of ``set``."""
        flags, rest = _options.storing(**options)
        flags |= _abi.SET_IF_ABSENT
        while self._store(key, value, flags, *rest) != _abi.OK:
            if not self._pool.lend(_lookups.forget_missing, self._encode(key)):
                return False
        return True

    def set_many(self, items: Items[KT, VT], **options: Unpack[StoreOptions]) -> None:
        """Stores many values, a mapping or pairs. Costs less than one call for each.

        Everything is encoded first, so a TypeError stores nothing. Each key is an
        operation of its own: when the library fails, some may have been stored. The
        options are those of ``set``.
        """
        flags, (max_age, stale, tag, tags, own_meta) = _options.storing(**options)
        encode = self._codec.encode
        encoded = {self._encode(key): encode(value) for key, value in pairs(items)}
        by_meta: dict[bytes, list[tuple[bytes, bytes]]] = {}
        for stored, (meta, data) in encoded.items():
            by_meta.setdefault(meta, []).append((stored, data))
        named = _options.tag_list(tag, tags)
        for meta, group in by_meta.items():
            struct = _options.set_options(
                join_meta(meta, own_meta), flags, *self._scoped(max_age, stale, named)
            )
            self._pool.lend(_batch.set_many, group, ctypes.byref(struct))

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
        """Adds ``delta`` to an int of 64 bits and gives the new one. Atomic.

        A missing key starts from ``initial``; the ages and tags are for that case
        alone, those of an existing entry stay. create: False to leave a missing key missing, and
        give None. Counts as well on the 8 bytes that ``shale_increment`` made in another program;
        there ``get`` gives bytes.

        Raises InvalidError, with nothing changed, where the entry is no int of 64
        bits or the sum does not fit.
        """
        if self._codec.serializes_all:
            raise InvalidError("incr counts on plain ints; this cache is opened with serialize_all")
        scoped = self._scoped(*_options.keeping(**options))
        stored = self._encode(key)
        return self._pool.lend(_counter.increment, stored, delta, initial, create, *scoped)

    def touch(self, key: KT, max_age: Seconds | None = None) -> bool:
        """Gives an entry, fresh or stale, a new age from now, seconds. False if there is none."""
        stored = self._encode(key)
        max_age, _, _ = self._scoped(max_age, None, [])
        status = self._call(_library.touch, stored, len(stored), age_ms(max_age))
        return status == _abi.OK

    def expire(self, key: KT) -> bool:
        """Makes an entry stale, as if its age were over. Whether there was one.

        It is kept for its stale period from now, for those who ask for stale data; without
        one it is removed. A load under way stores nothing, as after ``remove``.
        """
        stored = self._encode(key)
        return self._call(_library.expire, stored, len(stored)) == _abi.OK

    def setdefault(
        self,
        key: KT,
        default: VT = None,  # type: ignore[assignment]
        **options: Unpack[StoreOptions],
    ) -> VT:
        """The value, or ``default``, which is then stored. Atomic. The options and errors are those
        of ``set``."""
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
        """Stores ``function(value)``, of ``default`` where there is no value that is fresh, and
        gives it. Atomic: where the key was changed meanwhile, the function is called again with
        what is there then, so it should do nothing else. What it raises stores nothing.

        The options and errors are those of ``set``: ages and tags of the old entry do not stay.

        ``update(items)``, without a function, is ``set_many(items)``, as a dict has it.
        """
        if function is None:
            return self.set_many(key, **options)
        flags, rest = _options.storing(**options)
        stored = self._encode(key)
        while True:
            old, version = self._pool.lend(_lookups.current, stored, default, self._codec)
            new = function(old)
            condition = _abi.SET_IF_VERSION if version else _abi.SET_IF_ABSENT
            if self._store(key, new, flags | condition, *rest, version=version) == _abi.OK:
                return new

    def lease(
        self,
        key: KT,
        *,
        stale: bool = True,
        lease: Seconds = LEASE,
        refresh_ahead: Seconds = 0,
    ) -> Lease[KT, VT]:
        """What is there, and where it is to be loaded, the right to do so, of one at a time of all
        who ask, in all processes. Never waits. It is what ``get_or_load`` is made of, for those who
        load in a way of their own:

            with cache.lease("k", lease=10) as lease:
                if lease.granted:
                    lease.set(load(), max_age=60)

        It is granted on a miss, on a stale value, and with ``refresh_ahead`` sometimes on a fresh
        one, if nobody has it. It ends with its release, its process, or its time: ``Lease.renew``
        begins that again. It keeps nobody from setting the key. A cache of 16 MiB or more records
        at least 4,096 leases at once, a smaller one as many in proportion. Further ones are granted
        unrecorded: two may have those, and ``stats().leases_unrecorded`` counts them.

        stale: also what is past its age but kept. lease: seconds, up to an hour. refresh_ahead: as
        in ``get_or_load``. Raises PermissionDeniedError where a read-only cache would have to load.
        """
        from ._raw_lease import lease_of

        return lease_of(self, key, stale, lease, refresh_ahead)

    def lock(self, key: KT, *, timeout: Seconds | None = None, lease: Seconds = LEASE) -> Lock:
        """A lock: of all who ask for this key's, in all threads and processes, one at a time has
        it, for the body of a ``with`` statement.

            with cache.lock("report", timeout=10):
                ...

        It keeps nobody from reading or changing the key, and neither does a load of it.

        timeout: how long to wait for another; then ``LockTimeoutError``. None: without end. 0: not
            at all.
        lease: how soon the lock of a process that was stopped is another's, up to an hour. It may
            be held for longer: it is renewed. That of a process that was killed is free at once.

        It is not reentrant, and gives no order to those who wait: they look again after pauses of
        up to 16 ms. It ends early where its process is stopped for longer than ``lease``, or the
        cache's index is made anew; ``held`` says so. So guard with it what is wasteful to do twice;
        where that would be wrong, let ``set(..., if_version=...)`` decide.
        """
        return Lock(self, key, timeout=timeout, lease=lease)

    def namespace(self, name: str, **options: Unpack[EntryOptions]) -> Namespace[Any, Any]:
        """A part of the cache: a cache with keys of its own, which shares all the rest.

            users = cache.namespace("users", max_age=3600)
            users[7] = "Ada"
            users.clear()

        Its key 7 is ``("users", 7)`` in the cache. Its ``clear`` costs the same however many
        entries there are: it removes what was stored by way of a namespace of this name, and so
        each such entry has a tag beside its own, of which there may be seven. Iteration and
        ``len`` walk the whole cache.

        max_age, stale: the defaults of what is stored by way of it. tag, tags: what that carries
        beside its own.

        All else is the whole cache's: ``stats``, ``invalidate``, ``evict``, ``purge`` and so on.
        Listeners are told, in its own keys, of what is done by way of this object. It is open as
        long as the cache is, and ``close`` and ``with`` leave that open. With ``AsyncCache``, it is
        for coroutines.
        """
        from ._namespace import Namespace

        return Namespace(self, name, *_options.keeping(**options))

    # Removing

    def remove(self, key: KT, *, if_version: int | None = None) -> bool:
        """Removes an entry. Whether there was one. if_version: only one of this ``Entry.version``;
        atomic."""
        version = 0 if if_version is None else unsigned("if_version", if_version, 64, least=1)
        stored = self._encode(key)
        return self._call(_library.remove, stored, len(stored), version) == _abi.OK

    def __delitem__(self, key: KT) -> None:
        if not self.remove(key):
            raise KeyError(key)

    def remove_many(self, keys: Iterable[KT]) -> int:
        """Removes many entries. How many there were."""
        return self._pool.lend(_batch.remove_many, list(self._encode_many(keys)))

    @overload  # type: ignore[override]
    def pop(self, key: KT, default: None = None) -> VT | None: ...

    @overload
    def pop(self, key: KT, default: Union[VT, T]) -> Union[VT, T]: ...

    def pop(self, key: Any, default: Any = None) -> Any:
        """Removes an entry and gives its value, or ``default``. Of many callers one gets it."""
        return self._pool.lend(_lookups.pop, self._encode(key), default, self._codec)

    def popitem(self) -> tuple[KT, VT]:
        """Removes some entry, and gives its key and value. Of many callers one gets it. KeyError
        where there is none."""
        for key in self._iterate_keys(False):
            value = self.pop(key, _missing)
            if value is not _missing:
                return key, cast("VT", value)
        raise KeyError("the cache is empty")

    def invalidate(self, tag: Tag, *, expire: bool = False) -> None:
        """Removes every entry that carries the tag. Costs the same however many there are.

        expire: makes them stale instead, as ``expire`` does.
        """
        name = _options.tag_bytes(tag)
        flags = _abi.INVALIDATE_EXPIRE if expire else 0
        self._call(_library.invalidate_with, name, len(name), flags)

    def clear(self) -> None:
        """Removes every entry, pinned ones too."""
        self._call(_library.clear)

    def evict(self, count: int) -> int:
        """Evicts up to ``count`` entries, those first that the cache's ``eviction`` says: the
        least recently used, unless it is another. How many it did."""
        evicted = ctypes.c_uint64()
        self._call(_library.evict, unsigned("count", count, 64), ctypes.byref(evicted))
        return evicted.value

    def purge(self) -> int:
        """Removes what is past its age and its stale period. How many. Walks the whole index."""
        purged = ctypes.c_uint64()
        self._call(_library.purge, ctypes.byref(purged))
        return purged.value

    # Looking at the whole

    def __iter__(self) -> Iterator[KT]:
        """The keys of what is fresh, in no promised order.

        The cache may be changed during the iteration: a key that is there throughout comes
        exactly once, also where its value is replaced; no key comes twice; one that is set or
        leaves meanwhile comes or not. Where a writer replaces the index that a read-only cache
        uses, BusyError ends the iteration. Recency stays as it is.
        """
        return self._iterate_keys(False)

    def keys(self, *, stale: bool = False) -> CacheKeys[KT]:
        """The keys, as a dict's view: it shows what is there when it is asked. stale: also what is
        past its age but kept."""
        return CacheKeys(self, stale)

    def values(self, *, stale: bool = False) -> CacheValues[VT]:
        """The values, likewise; leaves out what can't be read."""
        return CacheValues(self, stale)

    def items(self, *, stale: bool = False) -> CacheItems[KT, VT]:
        """Keys and values, likewise."""
        return CacheItems(self, stale)

    def __len__(self) -> int:
        """How many keys iteration gives. It walks them all, at one to two microseconds each;
        ``stats().entries`` costs nothing, and counts what expired or was invalidated until that is
        swept."""
        return self._count(False)

    def __bool__(self) -> bool:
        """Whether iteration gives any key."""
        return any(True for _ in self)

    # A cache is itself alone, whatever is in another.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    # Python would count down from len() and take the numbers for keys.
    __reversed__ = None

    def __array__(self, *_arguments: Any, **_options: Any) -> Any:
        # numpy would take it for a sequence.
        raise TypeError("a cache is no array; numpy.array(list(cache)) is one of its keys")

    def stats(self) -> Stats:
        """Counters since the index was made, of all processes together; and ``own``, what this
        object has counted of its loads."""
        return stats_of(self._stats(), self._counts.stats(self._codec.undecodable))

    def on(self, name: _events.EventName, listener: _events.Listener) -> Callable[[], None]:
        """Calls ``listener(event)`` at each event of this name, from now on. Calling what this
        returns ends that.

        ``Event.name`` has the names. Only what this object does is told, not what other processes
        do, nor what is evicted or comes to the end of its age; what ``expire`` and
        ``invalidate(tag, expire=True)`` make stale is an ``"expire"``. The listener is called in
        the thread of the call that it is told of, before that returns, and without a lock: it may
        use the cache, and what it does is not told again. An exception that it raises is logged
        (logger "shale"), and goes no further. Where several threads change a key, their events may
        come in another order than their changes.

        While nobody listens, a call costs what it did. While somebody does, ``get_many`` and
        ``remove_many`` tell of each key, and ``get_many`` reads one after the other. A subclass's
        own ``get``, ``entry``, ``get_many``, ``pop`` or ``remove_many`` is called as ever; nothing
        is told of what it calls with ``super()``.
        """
        listeners = self._listeners or _events.Listeners(self)
        return listeners.add(name, listener)

    def volume(self) -> int:
        """Bytes on disk, all files together."""
        stats = self._stats()
        return stats.data_bytes + stats.index_bytes

    def verify(self) -> Report:
        """Reads every current record, checks it, and drops what is damaged."""
        report = _abi.Report(struct_size=_abi.REPORT_SIZE)
        self._call(_library.verify, ctypes.byref(report))
        return report_of(report)

    # What a namespace does otherwise

    _whole = True
    """Whether it is no part of one, with keys and options of its own."""

    def _encode(self, key: Any) -> bytes:
        """The stored form of a key."""
        return encode_key(key)

    def _encode_many(self, keys: Iterable[K]) -> dict[bytes, K]:
        """The keys by their stored form."""
        return encode_keys(keys)

    def _scoped(
        self, max_age: Seconds | None, stale: Seconds | None, tags: list[bytes]
    ) -> tuple[Seconds | None, Seconds | None, list[bytes]]:
        """The ages and tags of what is stored."""
        return max_age, stale, tags

    def _iterate_keys(self, stale: bool) -> Iterator[Any]:
        return _iterate.keys(self._pool, _STALE if stale else 0)

    def _iterate_items(self, stale: bool) -> Iterator[tuple[Any, Any]]:
        return _iterate.items(self._pool, _STALE if stale else 0, self._codec)

    def _count(self, stale: bool) -> int:
        return _iterate.count(self._pool, _STALE if stale else 0)

    # Inside

    def _has(self, key: Any, stale: bool) -> bool:
        flags = _STALE if stale else 0
        return self._pool.lend(_lookups.contains, self._encode(key), flags, self._codec)

    def _tell(self, name: _events.EventName, key: Any = None, **details: Any) -> None:
        if self._listeners is not None:
            self._listeners.tell(name, key, **details)

    def _stats(self) -> _abi.Stats:
        stats = _abi.Stats(struct_size=_abi.STATS_SIZE)
        self._call(_library.get_stats, ctypes.byref(stats))
        return stats

    def _call(self, function: Callable[..., int], *arguments: Any) -> int:
        """A function of the library on this cache: its answer, or its error raised."""
        return self._pool.lend(_call, function, *arguments)

    def _set_if(
        self,
        key: Any,
        value: Any,
        flags: int,
        rest: Rest,
        if_present: bool,
        if_version: int | None,
    ) -> bool:
        """`set` with a condition."""
        flags |= _abi.SET_IF_VERSION
        if if_version is not None:
            if if_present:
                raise InvalidError("if_version and if_present are one too many: give one of them")
            asked = unsigned("if_version", if_version, 64, least=1)
            return self._store(key, value, flags, *rest, version=asked) == _abi.OK
        stored = self._encode(key)
        while True:
            # The library's own condition would hold for what is known to be missing.
            version = self._pool.lend(_lookups.version, stored)
            if version is None:
                # What can't be stored is an error in any case.
                self._codec.encode(value)
                return False
            if self._store(key, value, flags, *rest, version=version) == _abi.OK:
                return True

    def _store(
        self,
        key: Any,
        value: Any,
        flags: int = 0,
        max_age: Seconds | None = None,
        stale: Seconds | None = None,
        tag: Tag | None = None,
        tags: Iterable[Tag] | None = None,
        own_meta: bytes = b"",
        version: int = 0,
    ) -> int:
        """The status of ``shale_set``; errors are raised."""
        # As in `get`: encode_key, Codec.encode, Pool.lend and Loan.set.
        stored = key if type(key) is bytes and key < MARKER and key else encode_key(key)
        meta, data = (b"", value) if type(value) is self._raw_kind else self._codec.encode(value)
        if (
            flags
            or own_meta
            or max_age is not None
            or stale is not None
            or tag is not None
            or tags is not None
        ):
            if own_meta:
                meta = join_meta(meta, own_meta)
            options = self._prepared(meta, flags, max_age, stale, tag, tags, version)
        else:
            options = self._plain[meta]
        pool = self._pool
        idle = pool.idle
        try:
            loan = idle.pop()
        except IndexError:
            loan = pool.make()
        try:
            status = fast_set(
                loan.pointer, stored, SIZES[len(stored)], data, SIZES[len(data)], options
            )
            if status < 0:
                raise failure(status)
            return status
        finally:
            idle.append(loan)

    def _prepared(
        self,
        meta: bytes,
        flags: int,
        max_age: Seconds | None,
        stale: Seconds | None,
        tag: Tag | None,
        tags: Iterable[Tag] | None,
        version: int,
    ) -> Any:
        """A pointer to set options. Those without tags and versions are few, and made once."""
        if tag is not None or tags is not None or version:
            named = _options.tag_list(tag, tags)
            scoped = self._scoped(max_age, stale, named)
            return ctypes.byref(_options.set_options(meta, flags, *scoped, version))
        wanted = (meta, flags, max_age, stale)
        options = self._without_tags.get(wanted)
        if options is None:
            scoped = self._scoped(max_age, stale, [])
            options = ctypes.byref(_options.set_options(meta, flags, *scoped))
            if len(self._without_tags) < _MOST_PREPARED:
                self._without_tags[wanted] = options
        return options


put_in_front(Cache)


def _call(loan: Loan, function: Callable[..., int], *arguments: Any) -> int:
    return check(function(loan.pointer, *arguments))


def _open(
    directory: bytes | None, options: _abi.Options, clock: Clock | None, accept: bool
) -> Handle:
    try:
        return Handle(directory, options, clock)
    except BusyError as error:
        if not accept or not error.message.endswith(CLOSE_OTHERS):
            raise
        options.capacity = options.max_entries = 0
        handle = Handle(directory, options, clock)
        _log.warn("%s; it is opened with what it has, as accept_capacity says", error)
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


def _reopen(
    kind: type[Cache[Any, Any]], directory: str, arguments: dict[str, Any]
) -> Cache[Any, Any]:
    return kind(directory, **arguments)
