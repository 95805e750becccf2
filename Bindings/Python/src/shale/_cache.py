"""The cache: `Cache`, one directory."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Callable, Final, TypeVar, Union, cast

from . import _abi, _batch, _counter, _events, _iterate, _library, _lookups, _options
from ._buffer import LARGEST_KEPT
from ._errors import InvalidError, check, failure
from ._handle import Handle, Loan, Pool
from ._keys import MARKER, Key, encode_key
from ._library import SIZES, fast_get, fast_set
from ._loading_methods import LoadingMethods
from ._options import Tag
from ._records import Entry, Report, Stats, report_of, stats_of
from ._serializers import Serializer
from ._units import age_ms, unsigned
from ._values import Codec, Unreadable

if TYPE_CHECKING:
    from ._options import Eviction

# Not bound to Key: a list of mixed keys is a list of objects to a type checker.
K = TypeVar("K")

_MISS: Final = _abi.MISS
_STALE: Final = _abi.GET_STALE
_MOST_PREPARED: Final = 256
_missing: Final = object()


class Cache(LoadingMethods):
    """A persistent cache in one directory.

    Any number of threads and processes use it at the same time, each process
    through its own ``Cache`` or, after ``fork``, through the one it inherited.

    Keys are ``str``, ``bytes``, ``int`` and tuples of these. Values are
    ``bytes``, ``str``, ``int``, ``float``, ``bool``, ``None``, and lists, tuples
    and dicts of them; anything else needs a serializer. A value that cannot be
    read back (another serializer, a newer release) is a miss.

    Ages are seconds, ``int`` or ``float``. ``None`` is the cache's default,
    ``shale.NEVER`` has no end, and 0 is none at all: with ``max_age`` stale at
    once, with ``stale`` gone at the end of its age. They are exact to the
    millisecond.

    A miss is not an error, except for ``cache[key]`` and ``del cache[key]``,
    which raise ``KeyError``. Any call may raise a subclass of ``shale.Error``.
    """

    def __init__(
        self,
        directory: Union[str, bytes, os.PathLike[str], os.PathLike[bytes], None],
        *,
        capacity: int | str | None = None,
        max_entries: int | None = None,
        max_age: float | None = None,
        stale: float | None = None,
        read_only: bool = False,
        must_exist: bool = False,
        sync_on_close: bool = True,
        serializer: Serializer | None = None,
        compression: str = "dictionary",
        now: Callable[[], float] | None = None,
        shards: int | None = None,
        segment_size: int | str | None = None,
        mode: int | None = None,
        eviction: Eviction | None = None,
    ) -> None:
        """Opens the cache in ``directory``, and creates it where there is none.

        directory: None for a new cache in memory, shared with later children of
            ``fork`` alone.
        capacity: bytes on disk, all files together: an int, or a string such as
            "1GiB" (powers of 1024) or "64MB" (powers of 1000). None: 1 GiB for a
            new cache, unchanged for an existing one.
        max_entries: None: as many as fit, or unchanged.
        max_age, stale: default age of an entry, and how long it is kept past it,
            seconds. None: what was set when the cache was created, or
            ``shale.NEVER`` and none.
        read_only: never write, and need no permission to. must_exist: raise
            ``SystemCallError`` (ENOENT) instead of creating.
        sync_on_close: whether the last process to close writes everything to disk.
        serializer: for values of other types, such as ``shale.PickleSerializer()``.
        compression: "dictionary" (LZ4, with dictionaries for small values), "lz4"
            or "none".
        now: a clock, seconds since 1970 as ``time.time`` gives them. It judges
            every entry that this handle meets, other processes' too. It must not
            raise: where it does, the traceback is printed and the system's clock
            answers.
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

        Raises InvalidError, SystemCallError, FormatError (the directory holds
        other files), VersionError, BusyError (another capacity or max_entries
        while other writers have it open), FilesystemError,
        PermissionDeniedError, FullError, OutOfMemoryError.
        """
        path, encoded = _path(directory)
        clock = _options.clock(now)
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
            clock=clock,
        )
        self._codec = Codec(serializer)
        self._plain = _options.plain_set_options(self._codec.serialized_meta)
        self._without_tags: dict[tuple[bytes, int, float | None, float | None], Any] = {}
        self._directory = path
        # For another process to open it so. What belongs to the cache itself is kept in it.
        self._handle_arguments = {
            "max_age": max_age,
            "stale": stale,
            "read_only": read_only,
            "sync_on_close": sync_on_close,
            "serializer": serializer,
            "compression": compression,
            "now": now,
        }
        self._pool = Pool(Handle(encoded, options, clock))
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

    def __enter__(self) -> Cache:
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

    def get(self, key: Key, default: Any = None, *, stale: bool = False) -> Any:
        """The value, or ``default``. stale: also what is past its age but kept."""
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
                _STALE if stale else 0,
                buffer.reference,
            )
            if status:
                if status == _MISS:
                    return default
                if status < 0:
                    raise failure(status)
            struct = buffer.struct
            size = struct.size
            if size <= LARGEST_KEPT and not struct.meta_size:
                return buffer.data[:size]
            data, meta = buffer.take()
        finally:
            idle.append(loan)
        try:
            return self._codec.decode(meta, data)
        except Unreadable:
            return default

    def __getitem__(self, key: Key) -> Any:
        value = self.get(key, _missing)
        if value is _missing:
            raise KeyError(key)
        return value

    def __contains__(self, key: Key) -> bool:
        """Whether ``get`` would find it. Leaves recency and counters alone."""
        return self._pool.lend(_lookups.contains, encode_key(key), self._codec)

    def entry(self, key: Key, *, stale: bool = False) -> Entry | None:
        """The value with its times, version, size and meta, or None."""
        flags = _STALE if stale else 0
        return self._pool.lend(_lookups.entry, encode_key(key), flags, self._codec)

    def get_many(self, keys: Iterable[K], *, stale: bool = False) -> dict[K, Any]:
        """The values that are there, by key. Costs much less than one call for each."""
        wanted = list(dict.fromkeys(keys))
        stored = [
            key if type(key) is bytes and key < MARKER and key else encode_key(key)
            for key in cast("list[Key]", wanted)
        ]
        found = self._pool.lend(_batch.get_many, stored, _STALE if stale else 0)
        values = {}
        for position, data, meta in found:
            if not meta:
                values[wanted[position]] = data
                continue
            try:
                values[wanted[position]] = self._codec.decode(meta, data)
            except Unreadable:
                continue
        return values

    # Writing

    def set(
        self,
        key: Key,
        value: Any,
        *,
        max_age: float | None = None,
        stale: float | None = None,
        tag: Tag | None = None,
        tags: Iterable[Tag] | None = None,
        pinned: bool = False,
    ) -> None:
        """Stores a value.

        max_age, stale: seconds; None is the cache's default. tag, tags: up to
        eight, for ``invalidate``. pinned: never evicted for space; ages and
        removals still apply.

        Raises TypeError for a key or value that can't be stored, TooLargeError
        for a value over a quarter of the capacity or over 1 GiB, FullError,
        OutOfMemoryError, PermissionDeniedError. The old value then stays.
        """
        flags = _abi.SET_PINNED if pinned else 0
        self._store(key, value, flags, max_age, stale, tag, tags)

    def __setitem__(self, key: Key, value: Any) -> None:
        self._store(key, value)

    def add(
        self,
        key: Key,
        value: Any,
        *,
        max_age: float | None = None,
        stale: float | None = None,
        tag: Tag | None = None,
        tags: Iterable[Tag] | None = None,
        pinned: bool = False,
    ) -> bool:
        """Stores a value if there is none that is fresh. Whether it did. Atomic."""
        flags = _abi.SET_IF_ABSENT | (_abi.SET_PINNED if pinned else 0)
        while self._store(key, value, flags, max_age, stale, tag, tags) != _abi.OK:
            if not self._pool.lend(_lookups.forget_missing, encode_key(key)):
                return False
        return True

    def set_many(
        self,
        items: Union[Mapping[Any, Any], Iterable[tuple[Key, Any]]],
        *,
        max_age: float | None = None,
        stale: float | None = None,
        tag: Tag | None = None,
        tags: Iterable[Tag] | None = None,
        pinned: bool = False,
    ) -> None:
        """Stores many values, a mapping or pairs. Costs less than one call for each.

        Everything is encoded first, so a TypeError stores nothing. Each key is an
        operation of its own: when the library fails, some may have been stored.
        """
        pairs = items.items() if isinstance(items, Mapping) else items
        encode = self._codec.encode
        encoded = {encode_key(key): encode(value) for key, value in pairs}
        by_meta: dict[bytes, list[tuple[bytes, bytes]]] = {}
        for stored, (meta, data) in encoded.items():
            by_meta.setdefault(meta, []).append((stored, data))
        flags = _abi.SET_PINNED if pinned else 0
        named = _options.tag_list(tag, tags)
        for meta, group in by_meta.items():
            options = _options.set_options(meta, flags, max_age, stale, named)
            self._pool.lend(_batch.set_many, group, ctypes.byref(options))

    def incr(
        self,
        key: Key,
        delta: int = 1,
        *,
        initial: int = 0,
        max_age: float | None = None,
        stale: float | None = None,
        tag: Tag | None = None,
        tags: Iterable[Tag] | None = None,
    ) -> int:
        """Adds ``delta`` to an int of 64 bits and gives the new one. Atomic.

        A missing key starts from ``initial``; the ages and tags are for that case
        alone, those of an existing entry stay. Counts as well on the 8 bytes that
        ``shale_increment`` made in another program; there ``get`` gives bytes.

        Raises InvalidError, with nothing changed, where the entry is no int of 64
        bits or the sum does not fit.
        """
        named = _options.tag_list(tag, tags)
        stored = encode_key(key)
        return self._pool.lend(_counter.increment, stored, delta, initial, max_age, stale, named)

    def touch(self, key: Key, max_age: float | None = None) -> bool:
        """Gives an entry, fresh or stale, a new age from now, seconds. False if there is none."""
        stored = encode_key(key)
        status = self._call(_library.touch, stored, len(stored), age_ms(max_age))
        return status == _abi.OK

    def expire(self, key: Key) -> bool:
        """Makes an entry stale, as if its age were over. Whether there was one.

        It is kept for its stale period from now, for those who ask for stale data; without
        one it is removed. A load under way stores nothing, as after ``remove``.
        """
        stored = encode_key(key)
        return self._call(_library.expire, stored, len(stored)) == _abi.OK

    # Removing

    def remove(self, key: Key) -> bool:
        """Removes an entry. Whether there was one."""
        stored = encode_key(key)
        return self._call(_library.remove, stored, len(stored), 0) == _abi.OK

    def __delitem__(self, key: Key) -> None:
        if not self.remove(key):
            raise KeyError(key)

    def remove_many(self, keys: Iterable[Key]) -> int:
        """Removes many entries. How many there were."""
        stored = list({encode_key(key): None for key in keys})
        return self._pool.lend(_batch.remove_many, stored)

    def pop(self, key: Key, default: Any = None) -> Any:
        """Removes an entry and gives its value, or ``default``. Of many callers one gets it."""
        return self._pool.lend(_lookups.pop, encode_key(key), default, self._codec)

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

    def __iter__(self) -> Iterator[Key]:
        """The keys of what is fresh, in no promised order.

        What lives throughout comes once, what is removed and set again meanwhile may
        come twice. The cache may be changed during the iteration. Recency stays as it is.
        """
        return _iterate.keys(self._pool, 0)

    def keys(self, *, stale: bool = False) -> Iterator[Key]:
        """Like ``iter(cache)``. stale: also what is past its age but kept."""
        return _iterate.keys(self._pool, _STALE if stale else 0)

    def items(self, *, stale: bool = False) -> Iterator[tuple[Key, Any]]:
        """Keys and values; leaves out what can't be read."""
        return _iterate.items(self._pool, _STALE if stale else 0, self._codec)

    def __len__(self) -> int:
        """Entries in the index; those that expired or were invalidated count until swept."""
        return self._stats().entries

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

    def _tell(self, name: _events.EventName, key: Key | None = None, **details: Any) -> None:
        if self._listeners is not None:
            self._listeners.tell(name, key, **details)

    def _stats(self) -> _abi.Stats:
        stats = _abi.Stats(struct_size=_abi.STATS_SIZE)
        self._call(_library.get_stats, ctypes.byref(stats))
        return stats

    def _call(self, function: Callable[..., int], *arguments: Any) -> int:
        """A function of the library on this cache: its answer, or its error raised."""
        return self._pool.lend(_call, function, *arguments)

    def _store(
        self,
        key: Key,
        value: Any,
        flags: int = 0,
        max_age: float | None = None,
        stale: float | None = None,
        tag: Tag | None = None,
        tags: Iterable[Tag] | None = None,
    ) -> int:
        """The status of ``shale_set``; errors are raised."""
        # As in `get`: encode_key, Codec.encode, Pool.lend and Loan.set.
        stored = key if type(key) is bytes and key < MARKER and key else encode_key(key)
        meta, data = (b"", value) if type(value) is bytes else self._codec.encode(value)
        if flags or max_age is not None or stale is not None or tag is not None or tags is not None:
            options = self._prepared(meta, flags, max_age, stale, tag, tags)
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
        max_age: float | None,
        stale: float | None,
        tag: Tag | None,
        tags: Iterable[Tag] | None,
    ) -> Any:
        """A pointer to set options. Those without tags are few, and made once."""
        if tag is not None or tags is not None:
            named = _options.tag_list(tag, tags)
            return ctypes.byref(_options.set_options(meta, flags, max_age, stale, named))
        wanted = (meta, flags, max_age, stale)
        options = self._without_tags.get(wanted)
        if options is None:
            options = ctypes.byref(_options.set_options(meta, flags, max_age, stale))
            if len(self._without_tags) < _MOST_PREPARED:
                self._without_tags[wanted] = options
        return options


def _call(loan: Loan, function: Callable[..., int], *arguments: Any) -> int:
    return check(function(loan.pointer, *arguments))


def _path(directory: object) -> tuple[str | None, bytes | None]:
    if directory is None:
        return None, None
    path = os.fsdecode(directory)  # type: ignore[arg-type]
    if not path:
        raise InvalidError("the directory's path is empty")
    if "\0" in path:
        raise InvalidError(f"the directory's path contains a NUL: {path!r}")
    path = os.path.abspath(path)
    return path, os.fsencode(path)


def _file_identity(path: str) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino


def _reopen(kind: type[Cache], directory: str, arguments: dict[str, Any]) -> Cache:
    return kind(directory, **arguments)
