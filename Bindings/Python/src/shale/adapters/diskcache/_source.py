"""Directories of diskcache, for ``audit`` and ``convert``: read with the standard library's SQLite,
without a change to them and without unpickling."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ..._data.keys import encode_key
from ..._data.values import Codec
from ..._native.errors import InvalidError
from . import _pickles
from ._cache import DEFAULT_SETTINGS, EVICTION_POLICY, default_capacity, encode_value, shale_key
from ._disk import MODE_BINARY, MODE_PICKLE, MODE_RAW, MODE_TEXT, Disk

_DATABASE: Final = "cache.db"
_SHARD: Final = re.compile(r"[0-9]{3}")
_WAL: Final = 2
"""In byte 18 of a database: changes are in a file of their own until a checkpoint."""

_MOST_STEPS: Final = 1_000_000
"""Of SQLite's machine, for a schema."""
_MOST_SETTINGS: Final = 1000
_SMALLEST_ROW: Final = 6
"""Bytes."""
_MOST_ADDED: Final = 64 << 20
"""Bytes of rows that a program adds meanwhile."""

_LARGEST_PICKLE: Final = 256 << 20
_LARGEST_KEY: Final = 65_535
_LARGEST_VALUE: Final = 1 << 30
_LONGEST_SHOWN: Final = 80

REASONS: Final = {
    "expired": "as their age is over",
    "classes": "as they are pickled objects of classes, which only unpickling can make "
    "(--unpickle any runs their code)",
    "damaged": "as their pickle is damaged",
    "costly": "as their pickle takes too much work or memory to read",
    "no form": "as Shale has no form for their key or value",
    "too large": "as their key is over 65,535 bytes or their value over a quarter of the capacity",
    "no file": "as their file is missing or unreadable",
    "evicted": "as NEW is full: raise its size_limit, or leave more out",
}
"""Why ``convert`` leaves entries out."""


@dataclass
class Store:
    """A cache of diskcache, or all shards of a ``FanoutCache``."""

    path: Path
    """Relative to the directory of them all."""
    folders: list[Path]
    sharded: bool


def stores(source: Path) -> list[Store]:
    """All in the directory. Raises ValueError if there is none."""
    databases = _databases(source)
    if not databases:
        raise ValueError(f"{source} is no directory of diskcache: there is no {_DATABASE} in it")
    found: dict[Path, Store] = {}
    for database in databases:
        folder = database.parent
        sharded = bool(_SHARD.fullmatch(folder.name)) and folder != source
        path = (folder.parent if sharded else folder).relative_to(source)
        found.setdefault(path, Store(path, [], sharded)).folders.append(folder)
    return list(found.values())


def _databases(source: Path) -> list[Path]:
    """All in the directory, which may be deeper than ``rglob`` can walk. Raises OSError for a
    directory that cannot be read."""
    found: list[Path] = []
    folders = [str(source)]
    while folders:
        folder = folders.pop()
        try:
            with os.scandir(folder) as entries:
                for each in entries:
                    if each.is_dir(follow_symlinks=False):
                        folders.append(each.path)
                    elif each.name == _DATABASE:
                        found.append(Path(each.path))
        except FileNotFoundError:
            if folder == str(source):
                raise
    return sorted(found)


@dataclass
class Found:
    """An entry of diskcache."""

    shown: str
    """Its key for people, in ASCII."""
    key: Any = None
    value: Any = None
    """Unless it is in a file, or unreadable."""
    file: Path | None = None
    """Of a value that is no pickle."""
    mode: int = MODE_RAW
    left: float | None = None
    """Seconds of its age that are left."""
    tag: Any = None
    size: int = 0
    """Of the value, and the key, bytes."""
    key_kind: str = ""
    value_kind: str = ""
    in_file: bool = False
    pickles: list[_pickles.Pickle] = field(default_factory=list)
    reason: str | None = None
    """Why it cannot be moved: one of REASONS."""
    raw: tuple[Any, Any] = (None, None)
    """The bytes of its pickled key and value, for ``--unpickle any``."""


class Database:
    """The database of one folder, open for reading. Raises ValueError if it is none."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.damage: str | None = None
        """The error that ended the reading."""
        self._path = folder.absolute() / _DATABASE
        self._closing = contextlib.ExitStack()
        try:
            self._size = self._check_files()
            self._connection = self._open()
            self._closing.callback(self._connection.close)
            self._connection.text_factory = _text
            if not self._has_table("Cache"):
                raise ValueError(f"{self._path} has no table of diskcache's entries")
            self._connection.set_progress_handler(None, 0)
            self.settings = self._settings()
            self.count = self._count()
        except sqlite3.Error as error:
            self.close()
            raise ValueError(f"{self._path}: {error}") from error
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        self._closing.close()

    def _check_files(self) -> int:
        """The bytes of the database. ValueError for files that could be endless, as a fifo, or that
        are elsewhere."""
        total = 0
        for end in ("", "-wal", "-shm", "-journal"):
            path = self._path.with_name(_DATABASE + end)
            with contextlib.suppress(FileNotFoundError):
                found = path.lstat()
                if not stat.S_ISREG(found.st_mode):
                    raise ValueError(f"{path} is no regular file")
                total += found.st_size
        return total

    def _open(self) -> sqlite3.Connection:
        """Without the creation of a file: SQLite makes those of a WAL even to read it."""
        with open(self._path, "rb") as file:
            in_wal = file.read(20)[18:19] == bytes([_WAL])
        wal, memory = (self._path.with_name(_DATABASE + end) for end in ("-wal", "-shm"))
        if not in_wal:
            return self._connect(self._path, "mode=ro")
        if not wal.exists():
            # No program has it open.
            return self._connect(self._path, "mode=ro&immutable=1")
        if memory.exists():
            with contextlib.suppress(sqlite3.OperationalError):
                return self._connect(self._path, "mode=ro&readonly_shm=1")
        copy = Path(self._closing.enter_context(tempfile.TemporaryDirectory(prefix="shale-")))
        for each in (self._path, wal):
            shutil.copyfile(each, copy / each.name)
        return self._connect(copy / _DATABASE, "mode=rw")

    def _connect(self, path: Path, options: str) -> sqlite3.Connection:
        connection = sqlite3.connect(f"{path.as_uri()}?{options}", uri=True)
        connection.set_authorizer(_authorize)
        # Of a damaged schema: its pages may contain each other.
        connection.set_progress_handler(lambda: 1, _MOST_STEPS)
        try:
            connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
        except BaseException:
            connection.close()
            raise
        return connection

    def _has_table(self, name: str) -> bool:
        """Whether there is this table, with stored columns only: others could compute for ever."""
        query = "SELECT 1 FROM sqlite_master WHERE name = ? AND type = 'table' AND rootpage > 0"
        if self._connection.execute(query, (name,)).fetchone() is None:
            return False
        columns = self._connection.execute(f"PRAGMA table_xinfo({name})")
        return not any(hidden for *_, hidden in columns)

    def _settings(self) -> dict[str, Any]:
        try:
            if not self._has_table("Settings"):
                raise sqlite3.DatabaseError("no such table: Settings")
            query = "SELECT key, value FROM Settings LIMIT ?"
            return dict(self._connection.execute(query, (_MOST_SETTINGS,)).fetchall())
        except (sqlite3.Error, TypeError) as error:
            self.damage = str(error)
            return {}

    def _count(self) -> int:
        # At most as many as fit into the file: its pages may contain each other.
        query = "SELECT COUNT(*) FROM (SELECT 1 FROM Cache LIMIT ?)"
        try:
            limit = self._size // _SMALLEST_ROW
            return int(self._connection.execute(query, (limit,)).fetchone()[0])
        except sqlite3.Error as error:
            self.damage = str(error)
            return 0

    @property
    def volume(self) -> int:
        """The bytes of all entries, with those in files."""
        in_files: Any = self.settings.get("size")
        return self._path.stat().st_size + (int(in_files) if _is_valid("size", in_files) else 0)

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """The rows in the order of insertion. Those of a damaged database from the beginning to the
        damage, and then from the end."""
        last = None
        size = 0
        for order, step in (("ASC", 1), ("DESC", -1)):
            query = (
                "SELECT rowid, key, raw, expire_time, tag, mode, filename, value FROM Cache"
                f" WHERE rowid > ? ORDER BY rowid {order}"
            )
            try:
                after = -(1 << 63) if last is None else last
                before = None
                for row in self._connection.execute(query, (after,)):
                    size += sum(len(each) for each in row if isinstance(each, (bytes, str)))
                    # Of pages that contain each other there is no end.
                    if size > 2 * self._size + _MOST_ADDED:
                        raise sqlite3.DatabaseError("its rows are larger than its file")
                    if type(row[0]) is not int or (
                        before is not None and (row[0] - before) * step <= 0
                    ):
                        raise sqlite3.DatabaseError("its rows are not in order")
                    before = row[0]
                    last = before if order == "ASC" else last
                    yield row[1:]
                return
            except sqlite3.Error as error:
                self.damage = str(error)


def _authorize(_action: int, _one: Any, _two: Any, _schema: Any, view: str | None) -> int:
    """Denies what a view does, which could be endless."""
    return sqlite3.SQLITE_OK if view is None else sqlite3.SQLITE_DENY


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def settings_of(databases: list[Database]) -> dict[str, Any]:
    """The settings of a store for Shale. Only those that this package has."""
    settings = {
        name: value
        for name, value in databases[0].settings.items()
        if name in DEFAULT_SETTINGS and name != "disk_pickle_protocol" and _is_valid(name, value)
    }
    limits = [
        each.settings["size_limit"]
        for each in databases
        if _is_valid("size_limit", each.settings.get("size_limit"))
    ]
    if limits:
        settings["size_limit"] = int(sum(limits))
    return settings


def _is_valid(name: str, value: Any) -> bool:
    if name == "eviction_policy":
        return value in EVICTION_POLICY
    return isinstance(value, (int, float)) and 0 <= value < 1 << 50


def largest_value(settings: dict[str, Any]) -> int:
    """Bytes."""
    size_limit = int(settings.get("size_limit", DEFAULT_SETTINGS["size_limit"]))
    return min(_LARGEST_VALUE, default_capacity(size_limit) // 4)


def examine(folder: Path, row: tuple[Any, ...], now: float, largest: int) -> Found:
    """An entry, with the reason why it cannot be moved without unpickling, if any."""
    key, raw, expire_time, tag, mode, filename, value = row
    found = Found(shown=_shown(key), tag=tag, size=_size(key) + _size(value))
    if isinstance(expire_time, (int, float)):
        found.left = expire_time - now
    if type(mode) is int:
        found.mode = mode
    if raw:
        found.key, found.key_kind = key, type(key).__name__
    else:
        found.key_kind = "pickle"
        pickled = _unpickled(found, key)
        found.key = pickled.value
        found.shown = _shown(pickled.value) if pickled.built else found.shown
        found.raw = (key, None)
    if filename is not None:
        found.in_file = True
        value = None
        _find_file(folder, filename, found)
    _examine_value(found, value)
    if raw and key is None:
        # NaN, which diskcache cannot find again. It pickles None.
        found.reason = "no form"
    if found.reason is None:
        found.reason = _refused(found, largest)
    if found.left is not None and found.left <= 0:
        found.reason = "expired"
    return found


def _examine_value(found: Found, value: Any) -> None:
    if found.mode == MODE_PICKLE:
        found.value_kind = "pickle"
        if found.file is not None:
            value = _read_pickle(found)
        if type(value) is bytes:
            found.raw = (found.raw[0], value)
            found.value = _unpickled(found, value).value
        elif found.reason is None:
            found.reason = "damaged"
    elif found.in_file and found.mode in (MODE_BINARY, MODE_TEXT):
        found.value_kind = "bytes" if found.mode == MODE_BINARY else "str"
    else:
        found.value, found.value_kind = value, type(value).__name__
        if found.in_file or value is None:
            found.reason = found.reason or "no file"


def _read_pickle(found: Found) -> Any:
    path, found.file = found.file, None
    try:
        if path is not None and found.size <= _LARGEST_PICKLE:
            return path.read_bytes()
        found.reason = "costly"
    except OSError:
        found.reason = "no file"
    return None


def _unpickled(found: Found, data: Any) -> _pickles.Pickle:
    if type(data) is not bytes:
        pickled = _pickles.Pickle("damaged", None, [], [])
    elif len(data) > _LARGEST_PICKLE:
        pickled = _pickles.Pickle("costly", None, [], [])
    else:
        pickled = _pickles.read(data)
    found.pickles.append(pickled)
    if not pickled.built:
        found.reason = found.reason or pickled.kind
    return pickled


def _find_file(folder: Path, name: Any, found: Found) -> None:
    """Looks for the file of a value, and notes its path and size."""
    try:
        root = os.path.realpath(folder)
        path = os.path.realpath(os.path.join(root, name))
        if os.path.commonpath([root, path]) != root or not os.path.isfile(path):
            raise OSError(f"{name} is no file in {folder}")
        found.size += os.path.getsize(path)
        if not os.access(path, os.R_OK):
            raise OSError(f"{path} is not readable")
        found.file = Path(path)
    except (OSError, TypeError, ValueError):
        found.reason = "no file"


def _refused(found: Found, largest: int) -> str | None:
    """Whether Shale has no form for its key or value, or no room."""
    try:
        key = encode_key(shale_key(_DISK, found.key))
        size = found.size if found.file else len(encode_value(_CODEC, found.value)[1])
    except (TypeError, InvalidError):
        return "no form"
    return "too large" if len(key) > _LARGEST_KEY or size > largest else None


_DISK: Final = Disk("")
_CODEC: Final = Codec(None)


def _size(value: Any) -> int:
    return len(value) if isinstance(value, (bytes, str)) else 8


def printable(text: str) -> str:
    """The text with escapes for what a terminal would not show, or obey."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def _shown(key: Any) -> str:
    # Of a long key not all.
    cut = key[:_LONGEST_SHOWN] if isinstance(key, (bytes, str)) else key
    try:
        text = ascii(cut)
    except ValueError:
        # An int of more digits than Python writes.
        text = f"<{type(key).__name__}>"
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 3] + "..."
