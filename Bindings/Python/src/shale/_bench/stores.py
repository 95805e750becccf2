"""The stores that are measured, each in the configuration that its documentation recommends.

``get(key)`` returns the value or None, and ``set(key, value)`` stores it. Where possible they are
the store's own functions, so that no store pays for a wrapper.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import os
import pickle
import shutil
import subprocess
import time
from typing import Any, Callable, ClassVar, Union

Function = Callable[[str], bytes]

PROMISES = {
    "P": "persists",
    "S": "is shared by processes",
    "K": "keeps what was set if the program is killed with kill -9",
    "E": "evicts",
}


class Store:
    name: ClassVar[str] = ""
    package: ClassVar[str] = ""  # as pip names it; "": a part of Python or of Shale
    module: ClassVar[str] = ""
    about: ClassVar[str] = ""
    promises: ClassVar[str] = ""  # letters of PROMISES
    values: ClassVar[str] = ""  # how it keeps them

    get: Callable[[Any], Any]
    set: Callable[[Any, bytes], Any]
    calls: ClassVar[bool] = True  # has get and set

    def __init__(self, directory: str, room: int, entries: int) -> None:
        """room: bytes in which nothing is evicted; entries: likewise."""

    @classmethod
    def version(cls) -> str:
        """Raises ImportError or LookupError if the store is not installed."""
        if not cls.package:
            return ""
        importlib.import_module(cls.module)
        return importlib.metadata.version(cls.package)

    @classmethod
    def peer(cls) -> Any:
        return importlib.import_module(cls.module)

    def key(self, key: str) -> Any:
        """The argument of `get` and `set`, made before the clock starts."""
        return key

    def unwrap(self, found: Any) -> Any:
        """The value of what `get` returned, after the clock has stopped."""
        return found

    def memoize(self, function: Function) -> Union[Function, None]:
        """None: the store has no such decorator."""
        return None

    def close(self) -> None:
        pass


class Shale(Store):
    name = "shale"
    module = "shale"
    about = "compressed with dictionaries (the default)"
    promises = "PSKE"
    values = "own encoding"
    compression = "dictionary"

    def __init__(self, directory: str, room: int, entries: int) -> None:
        self.cache = self.peer().Cache(
            directory, capacity=room, compression=self.compression, sync_on_close=False
        )
        self.get, self.set = self.cache.get, self.cache.set

    @classmethod
    def version(cls) -> str:
        extension = importlib.import_module("shale._native.extension")
        version: str = cls.peer().library_version()
        return version if extension.speed else f"{version}, without the extension"

    def memoize(self, function: Function) -> Function:
        memoized: Function = self.cache.memoize(function, name="load")
        return memoized

    def close(self) -> None:
        self.cache.close()


class ShaleUncompressed(Shale):
    name = "shale, uncompressed"
    about = 'compression="none"'
    compression = "none"


class DiskCache(Store):
    name = "diskcache"
    package = module = "diskcache"
    about = "its defaults: WAL, synchronous=NORMAL"
    promises = "PSKE"
    values = "bytes, others pickled"
    settings: ClassVar[dict[str, int]] = {}

    def __init__(self, directory: str, room: int, entries: int) -> None:
        self.cache = self.peer().Cache(directory, size_limit=room, **self.settings)
        self.get, self.set = self.cache.get, self.cache.set

    def memoize(self, function: Function) -> Function:
        memoized: Function = self.cache.memoize()(function)
        return memoized

    def close(self) -> None:
        self.cache.close()


class DiskCacheUnsynced(DiskCache):
    name = "diskcache, unsynced"
    about = "synchronous=OFF, mapped whole, no culling"
    promises = "PSK"
    settings: ClassVar[dict[str, int]] = {
        "cull_limit": 0,
        "sqlite_synchronous": 0,
        "sqlite_mmap_size": 1 << 34,
    }


class DiskCacheOfShale(DiskCache):
    name = "shale.adapters.diskcache"
    package = ""
    module = "shale.adapters.diskcache"
    about = "its defaults"
    values = "own encoding"

    @classmethod
    def version(cls) -> str:
        return Shale.version()


class DiskCacheRs(DiskCache):
    name = "diskcache-rs"
    package = "diskcache-rs"
    module = "diskcache_rs"
    about = "its defaults"
    values = "pickled"


class Sciqlop(DiskCache):
    name = "pysciqlop-cache"
    package = "pysciqlop-cache"
    module = "pysciqlop_cache"
    about = "its defaults: SQLite, pickle"
    values = "pickled"


class Lmdb(Store):
    name = "python-lmdb"
    package = module = "lmdb"
    about = "writemap, no sync; a transaction for each call"
    promises = "PSK"
    values = "bytes only"

    def __init__(self, directory: str, room: int, entries: int) -> None:
        self.environment = self.peer().open(
            directory, map_size=1 << 34, writemap=True, sync=False, metasync=False
        )
        begin = self.environment.begin

        def put(key: bytes, value: bytes) -> None:
            writing = begin(write=True)
            writing.put(key, value)
            writing.commit()

        # Without `with`, which costs a third more: a transaction ends with its last reference.
        self.get, self.set = lambda key: begin().get(key), put

    def key(self, key: str) -> bytes:
        return key.encode()

    def close(self) -> None:
        self.environment.close()


class RocksDict(Store):
    name = "rocksdict"
    package = module = "rocksdict"
    about = "LZ4, a block cache for everything, bloom filters; one process"
    promises = "PK"
    values = "bytes, others pickled"

    def __init__(self, directory: str, room: int, entries: int) -> None:
        rocksdict = self.peer()
        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_compression_type(rocksdict.DBCompressionType.lz4())
        table = rocksdict.BlockBasedOptions()
        table.set_block_cache(rocksdict.Cache(room))
        table.set_bloom_filter(10, False)
        options.set_block_based_table_factory(table)
        self.database = rocksdict.Rdict(directory, options)
        self.get, self.set = self.database.get, self.database.put

    def key(self, key: str) -> bytes:
        return key.encode()

    def close(self) -> None:
        self.database.close()


class Redis(Store):
    name = "Redis"
    package = module = "redis"
    about = "a server by a Unix socket, without persistence; redis-py"
    promises = "SKE"
    values = "bytes only"

    def __init__(self, directory: str, room: int, entries: int) -> None:
        redis = self.peer()
        path = os.path.join(directory, "socket")
        command = ["redis-server", "--port", "0", "--unixsocket", path, "--save", ""]
        self.server = subprocess.Popen([*command, "--dir", directory], stdout=subprocess.DEVNULL)
        self.client = redis.Redis(unix_socket_path=path)
        while True:
            try:
                self.client.ping()
                break
            except redis.ConnectionError:
                if self.server.poll() is not None:
                    raise RuntimeError("redis-server ended") from None
                time.sleep(0.01)
        self.get, self.set = self.client.get, self.client.set

    @classmethod
    def version(cls) -> str:
        version = super().version()
        if shutil.which("redis-server") is None:
            raise LookupError("redis-server is not installed")
        return version

    def close(self) -> None:
        self.client.close()
        self.server.terminate()
        self.server.wait()


class CacheTools(Store):
    name = "cachetools"
    package = module = "cachetools"
    about = "LRUCache, without the lock that threads need"
    promises = "E"
    values = "the objects"

    def __init__(self, directory: str, room: int, entries: int) -> None:
        self.entries = entries
        cache = self.peer().LRUCache(maxsize=entries)
        self.get, self.set = cache.get, cache.__setitem__

    def memoize(self, function: Function) -> Function:
        peer = self.peer()
        memoized: Function = peer.cached(peer.LRUCache(maxsize=self.entries))(function)
        return memoized


class CacheBox(CacheTools):
    name = "cachebox"
    package = module = "cachebox"
    about = "LRUCache"

    def __init__(self, directory: str, room: int, entries: int) -> None:
        super().__init__(directory, room, entries)
        cache = self.peer().LRUCache(maxsize=entries)
        self.get, self.set = cache.get, cache.insert


class Moka(Store):
    name = "moka-py"
    package = "moka-py"
    module = "moka_py"
    about = "Moka, TinyLFU"
    promises = "E"
    values = "the objects"

    def __init__(self, directory: str, room: int, entries: int) -> None:
        self.entries = entries
        cache = self.peer().Moka(entries)
        self.get, self.set = cache.get, cache.set

    def memoize(self, function: Function) -> Function:
        memoized: Function = self.peer().cached(maxsize=self.entries)(function)
        return memoized


class Theine(Store):
    name = "theine"
    package = module = "theine"
    about = "Cache, W-TinyLFU"
    promises = "E"
    values = "the objects"

    def __init__(self, directory: str, room: int, entries: int) -> None:
        self.entries = entries
        self.cache = self.peer().Cache(entries)
        self.get, self.set = self.cache.get, self.cache.set

    def unwrap(self, found: Any) -> Any:
        value, exists = found
        return value if exists else None

    def memoize(self, function: Function) -> Function:
        memoized: Any = self.peer().Memoize(self.entries, None)(function)
        memoized.key(lambda key: key)  # as its documentation recommends
        found: Function = memoized
        return found

    def close(self) -> None:
        self.cache.close()


class LruCache(Store):
    name = "functools.lru_cache"
    about = "only for calls"
    promises = "E"
    values = "the objects"
    calls = False

    def __init__(self, directory: str, room: int, entries: int) -> None:
        self.entries = entries

    def memoize(self, function: Function) -> Function:
        return functools.lru_cache(maxsize=self.entries)(function)


class PickledDict(Store):
    name = "dict with pickle"
    about = "the least that a copy of a value costs"
    values = "pickled"

    def __init__(self, directory: str, room: int, entries: int) -> None:
        kept: dict[str, bytes] = {}
        dumps, loads, find = pickle.dumps, pickle.loads, kept.get

        def get(key: str) -> Any:
            found = find(key)
            return None if found is None else loads(found)

        def put(key: str, value: bytes) -> None:
            kept[key] = dumps(value, pickle.HIGHEST_PROTOCOL)

        self.get, self.set = get, put


STORES: tuple[type[Store], ...] = (
    Shale,
    ShaleUncompressed,
    DiskCacheOfShale,
    DiskCache,
    DiskCacheUnsynced,
    DiskCacheRs,
    Sciqlop,
    Lmdb,
    RocksDict,
    Redis,
    CacheTools,
    CacheBox,
    Moka,
    Theine,
    LruCache,
    PickledDict,
)
