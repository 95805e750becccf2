"""The stores, each in its documented fast configuration, behind three functions.

``get(key)`` returns the value or None, ``set(key, value)`` stores it so that the
next get of any process (that the store supports) finds it, ``delete(key)``
removes it. They are the store's own functions if it has such ones, so that no
store pays for a wrapper.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from data import Data, Set

_MOST_BYTES = 1 << 34
"""The size for stores that need a limit."""


def _room(data: Data) -> int:
    """Bytes for all entries, and to overwrite them, without evicting any."""
    return 2 * data.entries * (data.kind.size + 400) + (32 << 20)


class Store:
    name = ""
    about = ""
    processes = False  # several may have it open
    objects = True  # stores a dict
    gets_only = False

    get: Callable[[Any], Any]
    set: Callable[[bytes, Any], Any]
    delete: Callable[[bytes], Any]

    def __init__(self, directory: Path, kind: Set, data: Data | None) -> None:
        """data: for stores that need the values beforehand (the floor)."""

    @classmethod
    def describe(cls) -> str:
        return cls.about

    def keys(self, keys: list[bytes]) -> list[Any]:
        """The arguments of `get`."""
        return keys

    def settle(self) -> None:
        """Returns when all sets are stored; part of the time measured."""

    def close(self) -> None:
        pass


class Floor(Store):
    """The lower bound: a call of an empty function with the parameters of
    shale_get, with arguments that ctypes passes on as they are; then the value's
    bytes are copied to a new object from their place among all values."""

    name = "floor"
    about = "an empty call with shale_get's parameters by ctypes, then the same bytes are copied"
    objects = False
    gets_only = True
    library = ""

    def __init__(self, directory: Path, kind: Set, data: Data | None) -> None:
        assert data is not None
        self.data = data
        self.size = kind.size
        self.number = {key: number for number, key in enumerate(data.keys)}
        self.memory = ctypes.create_string_buffer(b"".join(data.values))
        self.call = ctypes.CDLL(self.library)["floor_get"]
        self.call.restype = ctypes.c_int32
        self.get = self._getter()

    def _getter(self) -> Callable[[Any], Any]:
        call = self.call
        place = ctypes.c_void_p(ctypes.addressof(self.memory))
        memory = ctypes.POINTER(ctypes.c_char).from_buffer(place)
        cache = ctypes.c_void_p.from_param(0)
        value = ctypes.byref(place)
        sizes = {size: ctypes.c_size_t.from_param(size) for size in range(256)}

        def get(key: tuple[bytes, slice]) -> Any:
            name, where = key
            call(cache, name, sizes[len(name)], 0, value)
            return memory[where]

        return get

    def keys(self, keys: list[bytes]) -> list[Any]:
        size = self.size
        starts = [self.number[key] * size for key in keys]
        return [(key, slice(start, start + size)) for key, start in zip(keys, starts)]


class PlainFloor(Floor):
    """The same as ctypes is usually written."""

    name = "floor, plain ctypes"
    about = "the same with declared argtypes and ctypes.string_at"

    def _getter(self) -> Callable[[Any], Any]:
        call = self.call
        call.argtypes = (
            ctypes.c_void_p,
            ctypes.c_char_p,
            ctypes.c_size_t,
            ctypes.c_uint32,
            ctypes.c_void_p,
        )
        base = ctypes.addressof(self.memory)
        size = self.size
        string_at = ctypes.string_at

        def get(key: tuple[bytes, int]) -> bytes:
            name, start = key
            call(None, name, len(name), 0, base)
            return string_at(base + start, size)

        return get

    def keys(self, keys: list[bytes]) -> list[Any]:
        return [(key, self.number[key] * self.size) for key in keys]


class Shale(Store):
    name = "shale"
    about = "compressed with dictionaries (the default)"
    processes = True
    compression = "dictionary"

    def __init__(self, directory: Path, kind: Set, data: Data | None) -> None:
        import shale

        self.cache = shale.Cache(
            directory if self.processes else None,
            # An existing cache keeps its capacity.
            capacity=_room(data) if data else None,
            compression=self.compression,
            sync_on_close=False,
        )
        self.get = self.cache.get
        self.set = self.cache.set
        self.delete = self.cache.remove

    @classmethod
    def describe(cls) -> str:
        import shale

        return f"{shale.library_version()}; {cls.about}"

    def close(self) -> None:
        self.cache.close()


class ShaleUncompressed(Shale):
    name = "shale, uncompressed"
    about = 'compression="none"'
    compression = "none"


class ShaleMemory(ShaleUncompressed):
    name = "shale, in memory"
    about = 'Cache(None), compression="none"'
    processes = False


class DiskCache(Store):
    name = "diskcache Cache"
    about = "WAL, synchronous=OFF, mmap over the whole file, no eviction, no statistics"
    processes = True
    settings: ClassVar[dict[str, Any]] = {
        "size_limit": _MOST_BYTES,
        "cull_limit": 0,
        "eviction_policy": "none",
        "statistics": 0,
        "sqlite_synchronous": 0,
        "sqlite_mmap_size": _MOST_BYTES,
    }

    def __init__(self, directory: Path, kind: Set, data: Data | None) -> None:
        self.cache = self._open(str(directory))
        self.get = self.cache.get
        self.set = self.cache.set
        self.delete = self.cache.delete

    def _open(self, directory: str) -> Any:
        import diskcache

        return diskcache.Cache(directory, timeout=60, **self.settings)

    @classmethod
    def describe(cls) -> str:
        version = importlib.metadata.version("diskcache")
        return f"{version}, SQLite {sqlite3.sqlite_version}; {cls.about}"

    def close(self) -> None:
        self.cache.close()


class DiskCacheDefaults(DiskCache):
    name = "diskcache Cache, defaults"
    about = "as it comes, but that nothing is evicted for size"
    settings: ClassVar[dict[str, Any]] = {"size_limit": _MOST_BYTES}


class FanoutCache(DiskCache):
    name = "diskcache FanoutCache"
    about = "8 shards; as Cache"

    def _open(self, directory: str) -> Any:
        import diskcache

        return diskcache.FanoutCache(directory, shards=8, timeout=60, **self.settings)


class Lmdb(Store):
    name = "python-lmdb"
    about = "writemap, no sync; a transaction for each call (a spare one, renewed, for gets)"
    processes = True
    objects = False

    def __init__(self, directory: Path, kind: Set, data: Data | None) -> None:
        import lmdb

        self.environment = lmdb.open(str(directory), map_size=_MOST_BYTES, writemap=True, sync=False, metasync=False)
        begin = self.environment.begin

        def get(key: bytes) -> bytes | None:
            # Without `with`, which costs a third more; it ends with the last reference.
            value: bytes | None = begin().get(key)
            return value

        def put(key: bytes, value: bytes) -> None:
            writing = begin(write=True)
            writing.put(key, value)
            writing.commit()

        def delete(key: bytes) -> None:
            writing = begin(write=True)
            writing.delete(key)
            writing.commit()

        self.get, self.set, self.delete = get, put, delete

    @classmethod
    def describe(cls) -> str:
        import lmdb

        version = importlib.metadata.version("lmdb")
        return f"{version}, LMDB {'.'.join(map(str, lmdb.version()))}; {cls.about}"

    def close(self) -> None:
        self.environment.close()


class RocksDict(Store):
    name = "rocksdict"
    about = "LZ4, block cache for all of it, 10 bits of bloom filter a key, WAL off; one process"

    def __init__(self, directory: Path, kind: Set, data: Data | None) -> None:
        import rocksdict

        options = rocksdict.Options(raw_mode=not kind.objects)
        options.create_if_missing(True)
        options.set_compression_type(rocksdict.DBCompressionType.lz4())
        table = rocksdict.BlockBasedOptions()
        table.set_block_cache(rocksdict.Cache(1 << 30))
        table.set_bloom_filter(10, False)
        options.set_block_based_table_factory(table)
        self.database = rocksdict.Rdict(str(directory), options)
        without_log = rocksdict.WriteOptions()
        without_log.disable_wal = True
        self.database.set_write_options(without_log)
        self.get = self.database.get
        self.set = self.database.put
        self.delete = self.database.delete

    @classmethod
    def describe(cls) -> str:
        return f"{importlib.metadata.version('rocksdict')}; {cls.about}"

    def close(self) -> None:
        self.database.close()


class SqliteDict(Store):
    name = "sqlitedict"
    about = "WAL, synchronous=OFF, autocommit, outer_stack=False, bytes as they are"
    processes = True

    def __init__(self, directory: Path, kind: Set, data: Data | None) -> None:
        import sqlitedict

        as_it_is = {} if kind.objects else {"encode": bytes, "decode": bytes}
        self.store = sqlitedict.SqliteDict(
            os.path.join(directory, "store.sqlite"),
            autocommit=True,
            journal_mode="WAL",
            outer_stack=False,
            **as_it_is,
        )
        self.get = self.store.get
        self.set = self.store.__setitem__
        self.delete = self.store.__delitem__

    @classmethod
    def describe(cls) -> str:
        version = importlib.metadata.version("sqlitedict")
        return f"{version}, SQLite {sqlite3.sqlite_version}; {cls.about}"

    def settle(self) -> None:
        self.store.commit()

    def close(self) -> None:
        self.store.close()


class CacheTools(Store):
    name = "cachetools LRUCache"
    about = "in memory, without the lock that threads would need; keeps the objects themselves"

    def __init__(self, directory: Path, kind: Set, data: Data | None) -> None:
        import cachetools

        self.cache = cachetools.LRUCache(maxsize=1 << 40)
        self.get = self.cache.get
        self.set = self.cache.__setitem__
        self.delete = self.cache.__delitem__

    @classmethod
    def describe(cls) -> str:
        return f"{importlib.metadata.version('cachetools')}; {cls.about}"


class CompatCache(Store):
    name = "shale.adapters.diskcache"
    about = "as it comes, but that nothing is evicted for size"
    processes = True

    def __init__(self, directory: Path, kind: Set, data: Data | None) -> None:
        from shale.adapters.diskcache import Cache

        self.cache = Cache(directory, size_limit=_MOST_BYTES)
        self.get = self.cache.get
        self.set = self.cache.set
        self.delete = self.cache.delete

    def close(self) -> None:
        self.cache.close()


class Redis(Store):
    name = "Redis"
    about = "a server on this machine by a Unix socket, without persistence; redis-py with hiredis"
    objects = False

    def __init__(self, directory: Path, kind: Set, data: Data | None) -> None:
        import redis

        path = str(directory / "socket")
        command = ["redis-server", "--port", "0", "--unixsocket", path, "--save", "", "--dir", str(directory)]
        self.server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        self.client = redis.Redis(unix_socket_path=path)
        while True:
            try:
                self.client.ping()
                break
            except redis.ConnectionError:
                if self.server.poll() is not None:
                    raise RuntimeError("redis-server ended") from None
                time.sleep(0.01)
        self.get = self.client.get
        self.set = self.client.set
        self.delete = self.client.delete

    @classmethod
    def describe(cls) -> str:
        if shutil.which("redis-server") is None:
            raise LookupError("redis-server is not installed")
        return f"redis-py {importlib.metadata.version('redis')}; {cls.about}"

    def close(self) -> None:
        self.client.close()
        self.server.terminate()
        self.server.wait()


STORES: tuple[type[Store], ...] = (
    Floor,
    PlainFloor,
    Shale,
    ShaleUncompressed,
    ShaleMemory,
    DiskCache,
    DiskCacheDefaults,
    FanoutCache,
    Lmdb,
    RocksDict,
    SqliteDict,
    CacheTools,
    CompatCache,
    Redis,
)
BY_NAME = {store.name: store for store in STORES}
