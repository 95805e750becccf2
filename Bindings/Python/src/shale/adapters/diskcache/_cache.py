"""``Cache`` of diskcache, on Shale.

A directory has ``entries``, the cache itself; ``state``, a small cache for the state of queues and
statistics, created when it is needed; ``settings.json``; and ``writer.lock``. An entry's meta has
its position in the order of insertion, the mode of its value, and its tag.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import struct
import tempfile
import threading
import time
import warnings
from collections.abc import Container, Iterator
from typing import Any, Callable, Final, NamedTuple, TypeVar

from ..._cache import Cache as Shale
from ..._data import packed
from ..._data.options import read_flags, set_options
from ..._data.records import Details, Entry
from ..._data.values import DECODERS, MARKER, PACKED, Codec, Unreadable, join_meta, split_meta
from ..._native import abi
from ..._native.buffers import LARGEST_KEPT
from ..._native.errors import InvalidError, check
from ..._native.extension import speed
from ..._native.handles import CallContext
from ..._native.units import NEVER
from ..._store import iteration
from ._disk import ENOVAL, Disk, PickleDisk, refused
from ._memoize import memoizer
from ._writer_lock import WriterLock

T = TypeVar("T")

DEFAULT_SETTINGS: Final[dict[str, Any]] = {
    "statistics": 0,
    "tag_index": 0,
    "eviction_policy": "least-recently-stored",
    "size_limit": 1 << 30,
    "cull_limit": 10,
    "disk_min_file_size": 1 << 15,
    "disk_pickle_protocol": 5,
    # These are not in diskcache.
    "compression": "none",
    "capacity": None,
}

EVICTION_POLICY: Final = (
    "none",
    "least-recently-stored",
    "least-recently-used",
    "least-frequently-used",
)
"""The names of the policies. Shale implements the fourth as the third."""

_LEAST_CAPACITY: Final = 64 << 20

# A key that is no str, bytes or int is stored as a tuple of this, whether the disk returned it
# unchanged, and its packed form.
_KEY: Final = b"\xffdiskcache"

# The order of keys: numbers come before these.
_KINDS: Final[dict[type, int]] = {str: 1, bytes: 2}

_FIRST: Final = 500_000_000_000_000
_END: Final = 1_000_000_000_000_000

_META: Final = struct.Struct("<QB")
_STATE_CAPACITY: Final = 8 << 20

# They leave keys of str, bytes and int, and all values, as they are.
_PLAIN_DISKS: Final = frozenset((Disk, PickleDisk))

_LOOK: Final = read_flags(True, True) | abi.GET_INFO

# The first bytes of the meta of an entry that is no bytes, and how its bytes are read.
_DECODERS: Final = {
    join_meta(meta, bytes(_META.size))[: -_META.size]: decoder for meta, decoder in DECODERS.items()
}
(_HEAD_SIZE,) = {len(head) for head in _DECODERS}

# The size of the packed form of a tuple of one item, without the item.
_TUPLE_OF_ONE: Final = len(packed.pack((None,))) - len(packed.pack(None))

# About the bytes of an entry beside its key and value.
_RECORD: Final = 64

# How often a cache that fills up looks at its volume, at least.
_LOOKS: Final = 32


class Timeout(Exception):
    """Another writer did not finish in time. Its argument, if any, is the work done before."""


class _Info(NamedTuple):
    order: int
    mode: int
    tag: Any
    expires: float | None
    """Seconds since 1970."""


class _Kept(NamedTuple):
    """An entry before a transaction changed it."""

    entry: Entry[Any]
    info: _Info


class _Turn:
    """Makes this thread the sole writer for the body of a ``with`` statement. Raises Timeout."""

    __slots__ = ("_lock", "_timeout")

    def __init__(self, lock: WriterLock, timeout: float | None) -> None:
        self._lock = lock
        self._timeout = timeout

    def __enter__(self) -> None:
        if not self._lock.acquire(self._timeout):
            raise Timeout

    def __exit__(self, *_exception: object) -> None:
        self._lock.release()


class Cache:
    """A cache with the interface of ``diskcache.Cache``.

    Any number of threads and processes may use it, as ``shale.Cache``; one at a time writes. All
    methods may raise a subclass of ``shale.Error``.

    Keys and values are those of Shale, and float, None, lists and so on as keys too; ``disk`` adds
    others. An expired entry is removed; with a ``cull_limit`` of 0 it stays until ``expire`` or
    ``cull``, as in diskcache.
    """

    def __init__(
        self,
        directory: Any = None,
        timeout: float = 60,
        disk: type[Disk] = Disk,
        **settings: Any,
    ) -> None:
        """Opens the cache in ``directory``, and creates it if there is none. None: in a new
        temporary directory, which is never removed.

        timeout: seconds to wait for another writer before ``Timeout`` is raised; no limit in
        methods
            that are called with ``retry=True``, and for ``cache[key] = value``.
        disk: ``Disk``, or a subclass.
        settings: any of ``DEFAULT_SETTINGS``. They are stored; settings that are not given do not
            change. ``sqlite_...`` are accepted and ignored. size_limit: bytes of values and keys,
            above which a set evicts ``cull_limit`` entries. eviction_policy: their order; with
            "none" none is evicted, and a set raises ``FullError`` if there is no room. compression:
            as in ``shale.Cache``. capacity: the limit of bytes on disk; None: somewhat more than
            twice the ``size_limit`` that the cache is created with.

        Raises ValueError if ``disk`` is no subclass of ``Disk``, OSError if the directory cannot be
        created.
        """
        self._begin(directory, timeout, disk, settings, shards=1)

    def _begin(
        self,
        directory: Any,
        timeout: float,
        disk: type[Disk],
        settings: dict[str, Any],
        shards: int | None,
    ) -> None:
        if not (isinstance(disk, type) and issubclass(disk, Disk)):
            raise ValueError("disk is a subclass of shale.adapters.diskcache.Disk")
        if directory is None:
            directory = tempfile.mkdtemp(prefix="shale-")
        self._directory = os.path.expandvars(os.path.expanduser(os.fsdecode(directory)))
        self._timeout = timeout
        self._shard_count = shards
        os.makedirs(self._directory, 0o755, exist_ok=True)
        self._writer_lock = WriterLock(self._path("writer.lock"))
        self._adopt(self._kept_settings())
        if any(self._settings.get(name, ENOVAL) != value for name, value in settings.items()):
            with self._transact(True):
                self._adopt(self._change_settings(settings))
        options = {
            name[5:]: value for name, value in self._settings.items() if name.startswith("disk_")
        }
        self._disk = disk(self._directory, **options)
        self._opening = threading.Lock()
        self._opened: Shale[Any, Any] | None = None
        self._state_opened: Shale[Any, Any] | None = None
        self._undo: dict[Any, _Kept | None] | None = None
        self._last_order = 0
        # Whether entries may be kept past their age.
        self._keeps_expired = self._cull_limit == 0
        self._shale()

    def _path(self, name: str) -> str:
        return os.path.join(self._directory, name)

    # Settings

    def _kept_settings(self) -> dict[str, Any]:
        try:
            with open(self._path("settings.json"), encoding="utf-8") as file:
                return {**DEFAULT_SETTINGS, **json.load(file)}
        except FileNotFoundError:
            return dict(DEFAULT_SETTINGS)

    def _adopt(self, settings: dict[str, Any]) -> None:
        """Uses these settings. What each call needs is in attributes, as ``__getattr__`` is
        slow."""
        self._settings = settings
        self._cull_limit = settings["cull_limit"]
        self._size_limit = settings["size_limit"]
        self._counting = bool(settings["statistics"])
        policy = settings["eviction_policy"]
        self._pinned = policy == "none"
        self._read_flags = read_flags(False, policy in ("none", "least-recently-stored"))
        # Bytes that may be set before the next look at the volume.
        self._room = 0

    def _change_settings(self, given: dict[str, Any]) -> dict[str, Any]:
        """The stored settings, changed by the given ones. To be called by the writer."""
        settings = {**self._kept_settings(), **given}
        if settings["eviction_policy"] not in EVICTION_POLICY:
            raise InvalidError(
                f"eviction_policy is one of {', '.join(EVICTION_POLICY)}, "
                f"not {settings['eviction_policy']!r}"
            )
        new = self._path("settings.json.new")
        with open(new, "w", encoding="utf-8") as file:
            json.dump(settings, file)
        os.replace(new, self._path("settings.json"))
        return settings

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and name in self._settings:
            return self._settings[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def reset(self, key: str, value: Any = ENOVAL, update: bool = True) -> Any:
        """Changes a setting, and returns it; without a value, reads it again. update: False to
        change it only for this object."""
        if value is ENOVAL:
            self._adopt(self._kept_settings())
        elif not update:
            self._adopt({**self._settings, key: value})
        elif self._settings.get(key, ENOVAL) != value or self._kept_settings().get(key) != value:
            with self._transact(True):
                self._adopt(self._change_settings({key: value}))
        if key.startswith("disk_"):
            setattr(self._disk, key[5:], self._settings[key])
        if key == "cull_limit" and value == 0:
            self._keeps_expired = True
        return self._settings[key]

    @property
    def directory(self) -> str:
        """The path of its directory."""
        return self._directory

    @property
    def timeout(self) -> float:
        """How long to wait for another writer, seconds."""
        return self._timeout

    @property
    def disk(self) -> Disk:
        """The `Disk` that converts keys and values."""
        return self._disk

    # The handle

    def _shale(self) -> Shale[Any, Any]:
        """The cache underneath, reopened if it was closed."""
        opened = self._opened
        if opened is not None and not opened.closed:
            return opened
        with self._opening:
            if self._opened is None or self._opened.closed:
                capacity = self.capacity
                path = self._path("entries")
                if capacity is None and not os.path.exists(path):
                    capacity = default_capacity(int(self.size_limit))
                self._opened = Shale(
                    path,
                    capacity=capacity,
                    shards=self._shard_count,
                    compression=self.compression,
                    serializer=self._disk.serializer(),
                    accept_capacity=True,
                )
            return self._opened

    def _state(self) -> Shale[Any, Any]:
        with self._opening:
            if self._state_opened is None or self._state_opened.closed:
                self._state_opened = Shale(
                    self._path("state"), capacity=_STATE_CAPACITY, accept_capacity=True
                )
            return self._state_opened

    def _reading(self, function: Callable[[Shale[Any, Any]], T]) -> T:
        """``function`` of the cache underneath, which another thread may close at any time."""
        while True:
            shale = self._shale()
            try:
                return function(shale)
            except InvalidError:
                if not shale.closed:
                    raise

    def close(self) -> None:
        """Closes the cache. The next call of any method reopens it."""
        # Not while another thread is writing.
        with self._writer_lock.threads, self._opening:
            for opened in (self._opened, self._state_opened):
                if opened is not None:
                    opened.close()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def __getstate__(self) -> Any:
        return self._directory, self._timeout, type(self._disk)

    def __setstate__(self, state: Any) -> None:
        self.__init__(*state)  # type: ignore[misc]

    def __repr__(self) -> str:
        return f"<shale.adapters.diskcache.{type(self).__name__} {self._directory}>"

    # Transactions

    def _transact(self, retry: bool = False) -> _Turn:
        return _Turn(self._writer_lock, None if retry else self._timeout)

    @contextlib.contextmanager
    def transact(self, retry: bool = False) -> Iterator[None]:
        """Makes this thread the sole writer, in all processes, for the body of a ``with``
        statement.

        Others can read meanwhile, and see its changes at once. An exception undoes the changes; the
        end of a killed process does not. It may be nested. Raises Timeout.
        """
        with self._transact(retry):
            outermost = self._undo is None
            if outermost:
                self._undo = {}
            try:
                yield
            except BaseException:
                if outermost:
                    self._undo_all()
                raise
            finally:
                if outermost:
                    self._undo = None

    def _undo_all(self) -> None:
        changed, self._undo = self._undo or {}, None
        shale = self._shale()
        for key, kept in changed.items():
            if kept is None:
                shale.remove(key)
            else:
                self._put(shale._encode(key), kept.entry.value, kept.info, kept.entry.ttl)

    def _note(self, key: Any) -> None:
        """Stores an entry that a transaction is about to change, for undo."""
        if self._undo is None or key in self._undo:
            return
        entry = self._shale().entry(key, stale=True, peek=True)
        self._undo[key] = None if entry is None else _Kept(entry, _info_of(entry))

    # Entries

    def _key(self, key: Any) -> Any:
        """The key for Shale."""
        kind = type(key)
        if type(self._disk) in _PLAIN_DISKS and (
            kind is str or kind is bytes or (kind is int and abi.INT64_MIN <= key <= abi.INT64_MAX)
        ):
            return key
        return shale_key(self._disk, key)

    def _unkey(self, stored: Any) -> tuple[Any, bool]:
        """The key for the disk."""
        if type(stored) is tuple and len(stored) == 3 and stored[0] == _KEY:
            return packed.unpack(stored[2]), bool(stored[1])
        return stored, True

    def _user_key(self, stored: Any) -> Any:
        return self._disk.get(*self._unkey(stored))

    def _put(self, key: bytes, data: Any, info: _Info, age: float | None) -> None:
        """Stores an entry under Shale's stored form of its key. age: seconds, or None."""
        own = _META.pack(info.order, info.mode)
        if info.tag is not None:
            own += packed.pack(info.tag)
        shale = self._shale()
        try:
            meta, stored = encode_value(shale._codec, data)
        except TypeError as error:
            raise refused(error) from None
        options = set_options(
            join_meta(meta, own),
            abi.SET_PINNED if self._pinned else 0,
            NEVER if age is None else max(0.0, age),
            NEVER if self._keeps_expired and age is not None else None,
        )
        shale._pool.run(_set, key, stored, ctypes.byref(options))
        self._room -= len(key) + len(stored) + _RECORD

    def _write(
        self, key: Any, stored: tuple[int, int, Any, Any], age: float | None, tag: Any
    ) -> None:
        """A set by the writer."""
        self._note(key)
        _, mode, _, data = stored
        shale = self._shale()
        encoded = shale._encode(key)
        order = shale._pool.run(_order_of, encoded)
        if order is None:
            order = self._next_order()
        self._put(encoded, data, _Info(order, mode, tag, None), age)
        self._cull()

    def _next_order(self) -> int:
        self._last_order = max(self._last_order + 1, time.time_ns())
        return self._last_order

    def _remove(self, key: Any) -> bool:
        """Removes an entry. Whether there was one, also a stale one."""
        self._note(key)
        return self._shale().remove(key)

    def _infos(self) -> list[tuple[Any, _Info]]:
        """The key and the properties of each entry."""
        return self._reading(
            lambda shale: [
                (key, _read_meta(meta, _expires(details)))
                for key, meta, details in iteration.infos(shale._pool, abi.GET_STALE)
            ]
        )

    def _entry(self, key: Any) -> Entry[Any] | None:
        """A fresh entry. The policy decides whether this counts as a use."""
        peek = self._read_flags != 0
        return self._reading(lambda shale: shale.entry(key, peek=peek))

    def _plain_value(self, key: Any) -> Any:
        """The value of a fresh entry, or ENOVAL: as ``_fetch(_entry(key))``, but faster."""
        shale: Any = self._opened
        stored = shale._encode(key)
        try:
            return shale._pool.run(_value, stored, self._read_flags, shale._codec)
        except InvalidError:
            return self._fetch(self._entry(key))

    def _fetch(self, entry: Entry[Any] | None, read: bool = False) -> Any:
        """An entry's value, or ENOVAL."""
        if entry is None:
            return ENOVAL
        try:
            return self._disk.fetch(_mode_of(entry.meta), None, entry.value, read)
        except OSError:
            return ENOVAL

    # Reading and writing

    def get(
        self,
        key: Any,
        default: Any = None,
        read: bool = False,
        expire_time: bool = False,
        tag: bool = False,
        retry: bool = False,
    ) -> Any:
        """The value, or ``default``.

        read: a large value of bytes as a file. expire_time, tag: a tuple of the value and these;
        the time is seconds since 1970, or None. retry: ignored, as reads never wait.
        """
        if not (read or expire_time or tag or self._counting) and type(self._disk) in _PLAIN_DISKS:
            value = self._plain_value(self._key(key))
            return default if value is ENOVAL else value
        entry = self._entry(self._key(key))
        value = self._fetch(entry, read)
        if self._counting:
            self._state().incr("misses" if value is ENOVAL else "hits")
        if value is ENOVAL:
            value, entry = default, None
        return _answer(value, entry, expire_time, tag)

    def __getitem__(self, key: Any) -> Any:
        value = self.get(key, ENOVAL, retry=True)
        if value is ENOVAL:
            raise KeyError(key)
        return value

    def read(self, key: Any, retry: bool = False) -> Any:
        """The value as a file, if it is bytes and large. Raises KeyError."""
        value = self.get(key, ENOVAL, read=True, retry=retry)
        if value is ENOVAL:
            raise KeyError(key)
        return value

    def __contains__(self, key: Any) -> bool:
        stored = self._key(key)
        return self._reading(lambda shale: stored in shale)

    def set(
        self,
        key: Any,
        value: Any,
        expire: float | None = None,
        read: bool = False,
        tag: Any = None,
        retry: bool = False,
    ) -> bool:
        """Stores a value; always True.

        expire: seconds; None: no limit. read: the value is a file, open for reading bytes. tag:
        str, bytes, int, float or None. retry: wait for another writer without a limit.

        Raises Timeout, TypeError for what cannot be stored, TooLargeError, FullError.
        """
        stored_key = self._key(key)
        stored = self._disk.store(value, read, key=key)
        with self._transact(retry):
            self._write(stored_key, stored, expire, tag)
        return True

    def __setitem__(self, key: Any, value: Any) -> None:
        self.set(key, value, retry=True)

    def add(
        self,
        key: Any,
        value: Any,
        expire: float | None = None,
        read: bool = False,
        tag: Any = None,
        retry: bool = False,
    ) -> bool:
        """Stores a value if there is none. Whether it did. The options are those of ``set``."""
        stored_key = self._key(key)
        stored = self._disk.store(value, read, key=key)
        with self._transact(retry):
            if stored_key in self._shale():
                return False
            self._write(stored_key, stored, expire, tag)
        return True

    def touch(self, key: Any, expire: float | None = None, retry: bool = False) -> bool:
        """Gives an entry a new age from now, seconds; None: no limit. False if there is no
        entry."""
        stored = self._key(key)
        with self._transact(retry):
            shale = self._shale()
            if stored not in shale:
                return False
            self._note(stored)
            return shale.touch(stored, NEVER if expire is None else max(0.0, expire))

    def incr(self, key: Any, delta: Any = 1, default: Any = 0, retry: bool = False) -> Any:
        """Adds to a number, and returns the new one; a missing one starts from ``default``.
        KeyError if it is missing and default is None."""
        stored = self._key(key)
        with self._transact(retry):
            entry = self._shale().entry(stored, peek=True)
            if entry is None:
                if default is None:
                    raise KeyError(key)
                value = default + delta
                self._write(stored, self._disk.store(value, False, key=key), None, None)
                return value
            info = _info_of(entry)
            value = self._disk.fetch(info.mode, None, entry.value, False) + delta
            left = None if entry.ttl == NEVER else entry.ttl
            self._write(stored, self._disk.store(value, False, key=key), left, info.tag)
            return value

    def decr(self, key: Any, delta: Any = 1, default: Any = 0, retry: bool = False) -> Any:
        """``incr(key, -delta)``."""
        return self.incr(key, -delta, default, retry)

    def pop(
        self,
        key: Any,
        default: Any = None,
        expire_time: bool = False,
        tag: bool = False,
        retry: bool = False,
    ) -> Any:
        """Removes an entry and returns its value, or ``default``. Only one caller gets the
        value."""
        stored = self._key(key)
        with self._transact(retry):
            entry = self._shale().entry(stored, peek=True)
            if entry is not None:
                self._remove(stored)
        value = self._fetch(entry)
        if value is ENOVAL:
            value, entry = default, None
        return _answer(value, entry, expire_time, tag)

    def __delitem__(self, key: Any, retry: bool = True) -> None:
        if not self._delete(key, retry):
            raise KeyError(key)

    def delete(self, key: Any, retry: bool = False) -> bool:
        """Removes an entry. Whether there was one."""
        return self._delete(key, retry)

    def _delete(self, key: Any, retry: bool) -> bool:
        stored = self._key(key)
        with self._transact(retry):
            there = stored in self._shale()
            self._remove(stored)
            return there

    # Queues

    def push(
        self,
        value: Any,
        prefix: str | None = None,
        side: str = "back",
        expire: float | None = None,
        read: bool = False,
        tag: Any = None,
        retry: bool = False,
    ) -> Any:
        """Adds a value at a side of a queue, "back" or "front", and returns its key: an int, or a
        str if there is a prefix."""
        _check_side(side)
        stored = self._disk.store(value, read)
        with self._transact(retry):
            front, back = self._ends(prefix) or (_FIRST, _FIRST - 1)
            step = 1 if side == "back" else -1
            number = back + 1 if side == "back" else front - 1
            if front > back:
                number = front = back = _FIRST
            # After a power failure the state may be older than the entries.
            while _queue_key(prefix, number) in self._shale():
                number += step
            key = _queue_key(prefix, number)
            self._set_ends(prefix, (min(front, number), max(back, number)))
            self._write(key, stored, expire, tag)
            return key

    def pull(
        self,
        prefix: str | None = None,
        default: Any = (None, None),
        side: str = "front",
        expire_time: bool = False,
        tag: bool = False,
        retry: bool = False,
    ) -> Any:
        """Removes the item at a side of a queue and returns (key, value), or ``default``. Only one
        caller gets the item."""
        return self._take(prefix, default, side, expire_time, tag, retry, True)

    def peek(
        self,
        prefix: str | None = None,
        default: Any = (None, None),
        side: str = "front",
        expire_time: bool = False,
        tag: bool = False,
        retry: bool = False,
    ) -> Any:
        """The item at a side of a queue: (key, value), or ``default``."""
        return self._take(prefix, default, side, expire_time, tag, retry, False)

    def _take(
        self,
        prefix: str | None,
        default: Any,
        side: str,
        expire_time: bool,
        tag: bool,
        retry: bool,
        remove: bool,
    ) -> Any:
        _check_side(side)
        with self._transact(retry):
            ends = before = self._ends(prefix)
            while ends is not None:
                front, back = ends
                key = _queue_key(prefix, front if side == "front" else back)
                entry = self._shale().entry(key, peek=True)
                value = self._fetch(entry)
                if entry is None or remove:
                    # Also expired items.
                    self._remove(key)
                if value is ENOVAL or remove:
                    ends = (front + 1, back) if side == "front" else (front, back - 1)
                    ends = None if ends[0] > ends[1] else ends
                if value is not ENOVAL:
                    break
            if remove and ends != before:
                self._set_ends(prefix, ends)
            if before is None or value is ENOVAL:
                return _answer(default, None, expire_time, tag)
        return _answer((key, value), entry, expire_time, tag)

    def _ends(self, prefix: str | None) -> tuple[int, int] | None:
        """The first and the last number of a queue; some numbers between them may be missing."""
        ends = self._state().get(("queue", b"" if prefix is None else prefix), ENOVAL)
        if ends is ENOVAL:
            # The queue is new, or its state was lost.
            numbers = [number for key, _ in self._infos() for number in _number_of(key, prefix)]
            return (min(numbers), max(numbers)) if numbers else None
        return None if ends is None else tuple(ends)

    def _set_ends(self, prefix: str | None, ends: tuple[int, int] | None) -> None:
        self._state().set(("queue", b"" if prefix is None else prefix), ends, tag="queues")

    def peekitem(
        self,
        last: bool = True,
        expire_time: bool = False,
        tag: bool = False,
        retry: bool = False,
    ) -> Any:
        """(key, value) of the entry that was inserted last, or first. Walks all keys. KeyError if
        the cache is empty."""
        with self._transact(retry):
            for key, _ in sorted(self._infos(), key=_order, reverse=last):
                entry = self._shale().entry(key, peek=True)
                value = self._fetch(entry)
                if value is not ENOVAL:
                    return _answer((self._user_key(key), value), entry, expire_time, tag)
                if entry is None:
                    self._remove(key)
        raise KeyError("dictionary is empty")

    def memoize(
        self,
        name: str | None = None,
        typed: bool = False,
        expire: float | None = None,
        tag: Any = None,
        ignore: Container[Any] = (),
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """A decorator that keeps a function's results. typed: calls differ by the types of their
        arguments, too. expire: seconds; 0: none is stored. ignore: numbers and names of arguments.
        Callers do not wait for each other; with
        ``shale.Cache.memoize`` one caller at a time calls the function."""

        def set(key: Any, result: Any) -> None:
            if expire is None or expire > 0:
                self.set(key, result, expire, tag=tag, retry=True)

        return memoizer(lambda key: self.get(key, ENOVAL), set, name, typed, ignore)

    # Making room

    def _cull(self) -> None:
        """Enforces the limit after a set."""
        limit = self._cull_limit
        if not limit:
            return
        if self._keeps_expired:
            limit -= self._expire(time.time(), limit)
        if not limit or self._pinned or self._room > 0:
            return
        left = self._size_limit - self.volume()
        if left <= 0:
            self._shale().evict(limit)
        else:
            # Other processes write meanwhile.
            self._room = left // _LOOKS

    def _expire(self, now: float, limit: int | None) -> int:
        """Removes up to ``limit`` expired entries that were kept."""
        expired = [
            (info.expires, key)
            for key, info in self._infos()
            if info.expires is not None and info.expires < now
        ]
        expired.sort(key=lambda each: each[0])
        self._keeps_expired = len(expired) > len(expired[:limit]) or self._cull_limit == 0
        return sum(self._remove(key) for _, key in expired[:limit])

    def expire(self, now: float | None = None, retry: bool = False) -> int:
        """Removes expired entries. Returns their number, without those that were removed before."""
        with self._transact(retry):
            count = self._shale().purge()
            return count + self._expire(time.time() if now is None else now, None)

    def cull(self, retry: bool = False) -> int:
        """Removes expired entries, and evicts until ``volume`` is within the limit. Returns the
        number."""
        now = time.time()
        count = self.expire(now)
        if self._pinned:
            return count
        try:
            while self.volume() > self._size_limit:
                with self._transact(retry):
                    evicted = self._shale().evict(10)
                if not evicted:
                    break
                count += evicted
        except Timeout:
            raise Timeout(count) from None
        return count

    def evict(self, tag: Any, retry: bool = False) -> int:
        """Removes the entries with the tag. Returns their number. Walks all keys."""
        with self._transact(retry):
            found = [key for key, info in self._infos() if _same_tag(info.tag, tag)]
            return sum(self._remove(key) for key in found)

    def clear(self, retry: bool = False) -> int:
        """Removes all entries. Returns their number."""
        with self._transact(retry):
            if self._undo is not None:
                return sum(self._remove(key) for key, _ in self._infos())
            count = len(self)
            self._shale().clear()
            if os.path.exists(self._path("state")):
                self._state().invalidate("queues")
            return count

    def create_tag_index(self) -> None:
        """Changes the setting, and nothing else: ``evict`` walks all keys."""
        self.reset("tag_index", 1)

    def drop_tag_index(self) -> None:
        """Likewise."""
        self.reset("tag_index", 0)

    # Looking at the whole

    def __iter__(self) -> Iterator[Any]:
        """The keys in the order of insertion, also those of expired entries that are kept."""
        return self._in_order(False)

    def __reversed__(self) -> Iterator[Any]:
        return self._in_order(True)

    def _in_order(self, reverse: bool) -> Iterator[Any]:
        found = sorted(self._infos(), key=_order, reverse=reverse)
        return (self._user_key(key) for key, _ in found)

    def iterkeys(self, reverse: bool = False) -> Iterator[Any]:
        """The keys by their own order: numbers, then str, then bytes, then all others."""
        found = [self._unkey(key) for key, _ in self._infos()]
        found.sort(key=_sort_key, reverse=reverse)
        return (self._disk.get(*key) for key in found)

    def __len__(self) -> int:
        """The number of entries, including expired ones that have not been swept. Immediate."""
        return int(self._reading(lambda shale: shale._stats()).entries)

    def volume(self) -> int:
        """The size of the entries with their keys, bytes. The files may be larger."""
        return int(self._reading(lambda shale: shale._stats()).live_bytes)

    def stats(self, enable: bool = True, reset: bool = False) -> tuple[int, int]:
        """(hits, misses) of all processes that count. enable: whether this object counts from now
        on. reset: set both to 0."""
        if not (self._counting or os.path.exists(self._path("state"))):
            counted = 0, 0
        else:
            state = self._state()
            counted = state.get("hits", 0), state.get("misses", 0)
            if reset:
                state.remove_many(["hits", "misses"])
        self.reset("statistics", int(enable))
        return counted

    def check(self, fix: bool = False, retry: bool = False) -> list[warnings.WarningMessage]:
        """Reads all entries, and removes damaged ones. Returns a list of warnings, one of which has
        their number. fix: ignored."""
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            report = self._reading(lambda shale: shale.verify())
            if report.corrupt_records:
                warnings.warn(f"{report.corrupt_records} damaged records removed", stacklevel=2)
        return found


def shale_key(disk: Disk, key: Any) -> Any:
    """A key for Shale, of a key for a disk."""
    db_key, raw = disk.put(key)
    kind = type(db_key)
    if raw and (kind is str or kind is bytes or kind is int):
        return db_key
    if kind is float and db_key.is_integer() and abs(db_key) < 2.0**63:
        return int(db_key)  # they are equal, and one key to SQLite
    return _KEY, int(raw), packed.pack(db_key)


def default_capacity(size_limit: int) -> int:
    """The limit of bytes on disk of a new cache."""
    return 2 * size_limit + _LEAST_CAPACITY


def _value(context: CallContext, key: bytes, flags: int, codec: Codec) -> Any:
    """The value, or ENOVAL."""
    if check(context.get(key, flags)) == abi.MISS:
        return ENOVAL
    buffer = context.buffer
    struct = buffer.struct
    size = struct.size
    if size <= LARGEST_KEPT and struct.meta_size >= _HEAD_SIZE:
        head = buffer.meta[:_HEAD_SIZE]
        if not head.startswith(MARKER):
            return buffer.data[:size]
        decoder = _DECODERS.get(head)
        if decoder is not None:
            # The codec counts bytes that are no such value.
            with contextlib.suppress(Exception):
                return decoder(buffer.data[:size])
    data, meta = buffer.take()
    try:
        return codec.decode(meta, data)
    except Unreadable:
        return ENOVAL


def encode_value(codec: Codec, value: Any) -> tuple[bytes, bytes]:
    """(meta, bytes), as of the codec, but dicts and lists in the packed form: C packs and unpacks
    it two to four times as fast as JSON."""
    kind = type(value)
    if speed is not None and (kind is dict or kind is list):
        form = speed.form((value,))
        if form is not None:
            return PACKED, form[1][_TUPLE_OF_ONE:]
    return codec.encode(value)


def _set(context: CallContext, key: bytes, data: bytes, options: Any) -> None:
    check(context.set(key, data, options))


def _order_of(context: CallContext, key: bytes) -> int | None:
    """The order of an entry, also of an expired one."""
    if check(context.get(key, _LOOK)) == abi.MISS:
        return None
    return _read_order(split_meta(context.buffer.take_meta())[1])


def _read_order(meta: bytes) -> int:
    return _META.unpack_from(meta)[0] if len(meta) >= _META.size else 0


def _read_meta(meta: bytes, expires: float | None) -> _Info:
    # An entry of another program has another meta, and comes first in order.
    if len(meta) < _META.size:
        return _Info(0, 1, None, expires)
    order, mode = _META.unpack_from(meta)
    tag = packed.unpack(meta[_META.size :]) if len(meta) > _META.size else None
    return _Info(order, mode, tag, expires)


def _info_of(entry: Entry[Any]) -> _Info:
    return _read_meta(entry.meta, None if entry.expires == NEVER else entry.expires)


def _mode_of(meta: bytes) -> int:
    return meta[8] if len(meta) >= _META.size else 1


def _expires(details: Details) -> float | None:
    return None if details.expires_ms == abi.NEVER_MS else details.expires_ms / 1000


def _answer(value: Any, entry: Entry[Any] | None, expire_time: bool, tag: bool) -> Any:
    if not (expire_time or tag):
        return value
    info = None if entry is None else _info_of(entry)
    answer = [value]
    if expire_time:
        answer.append(info and info.expires)
    if tag:
        answer.append(info and info.tag)
    return tuple(answer)


def _order(found: tuple[Any, _Info]) -> int:
    return found[1].order


def _sort_key(key: tuple[Any, bool]) -> tuple[int, Any]:
    db_key, raw = key
    if not raw:
        return 3, db_key
    return _KINDS.get(type(db_key), 0), db_key


def _same_tag(one: Any, other: Any) -> bool:
    return other is not None and isinstance(one, bytes) == isinstance(other, bytes) and one == other


def _check_side(side: str) -> None:
    if side not in ("front", "back"):
        raise InvalidError(f"side is 'front' or 'back', not {side!r}")


def _queue_key(prefix: str | None, number: int) -> Any:
    return number if prefix is None else f"{prefix}-{number:015d}"


def _number_of(key: Any, prefix: str | None) -> list[int]:
    """The number of a key of this queue, or None."""
    if prefix is None:
        return [key] if type(key) is int and 0 < key < _END else []
    if type(key) is not str or not key.startswith(prefix + "-"):
        return []
    digits = key[len(prefix) + 1 :]
    return [int(digits)] if len(digits) == 15 and digits.isdecimal() else []
