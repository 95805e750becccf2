"""``python -m shale convert``: converts directories of diskcache to those of this package.

The standard library reads SQLite. Pickled entries are read only on request.
"""

from __future__ import annotations

import io
import os
import pickle
import re
import sqlite3
import time
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Callable, Final

from ..._native.errors import Error
from ._cache import DEFAULT_SETTINGS, EVICTION_POLICY, Cache
from ._disk import MODE_BINARY, MODE_PICKLE, MODE_TEXT, Disk, PickleDisk

_DATABASE: Final = "cache.db"
_SHARD: Final = re.compile(r"[0-9]{3}")


@dataclass
class Counts:
    """The numbers of converted and left out entries."""

    converted: int = 0
    expired: int = 0
    pickled: int = 0
    refused: int = 0
    lost: int = 0

    @property
    def complete(self) -> bool:
        """Whether only expired entries are left out."""
        return not (self.pickled or self.refused or self.lost)

    def __str__(self) -> str:
        texts = {
            "converted": "entries converted",
            "expired": "left out, as their age is over",
            "pickled": "left out, as they are pickled (--unpickle)",
            "refused": "left out, as Shale has no form for them, or they are too large",
            "lost": "left out, as their file is missing or unreadable",
        }
        counted = ((getattr(self, field.name), texts[field.name]) for field in fields(self))
        lines = [f"{count:,} {text}" for count, text in counted if count]
        return "\n".join(lines or ["no entries"])


class _Refused(Exception):
    """The entry is pickled, and pickles are not read."""


class _Plain(pickle.Unpickler):
    """Reads only pickles that name no class and no function, and so can call none."""

    def find_class(self, module: str, name: str, /) -> Any:
        raise _Refused(f"{module}.{name}")

    def persistent_load(self, pid: Any, /) -> Any:
        raise _Refused("a persistent id")


def _refuse(data: bytes) -> Any:
    raise _Refused


def _read_plain(data: bytes) -> Any:
    return _Plain(io.BytesIO(data)).load()


_READERS: Final[dict[str | None, Callable[[bytes], Any]]] = {
    None: _refuse,
    "plain": _read_plain,
    "any": pickle.loads,
}


def convert_directory(
    old: str, new: str, unpickle: str | None, progress: Callable[[int, int], None]
) -> Counts:
    """Converts all entries of ``old``. progress: called with the numbers of done and of all
    entries.

    Raises ValueError if ``old`` is no directory of diskcache, or ``new`` is not empty.
    """
    source, target = Path(old), Path(new)
    databases = sorted(source.rglob(_DATABASE))
    if not databases:
        raise ValueError(f"{source} is no directory of diskcache: there is no {_DATABASE} in it")
    if target.exists() and any(target.iterdir()):
        raise ValueError(f"{target} is not empty")
    by_target: dict[Path, list[Path]] = {}
    for database in databases:
        folder = database.parent
        # The shards of a FanoutCache become one cache.
        whole = folder.parent if _SHARD.fullmatch(folder.name) and folder != source else folder
        by_target.setdefault(target / whole.relative_to(source), []).append(folder)
    total = sum(_count(folder) for folders in by_target.values() for folder in folders)
    counts = Counts()
    done = 0

    def step() -> None:
        nonlocal done
        done += 1
        progress(done, total)

    for path, folders in by_target.items():
        _convert(path, folders, unpickle, counts, step)
    progress(total, total)
    return counts


def _open(folder: Path) -> sqlite3.Connection:
    path = folder.absolute() / _DATABASE
    try:
        return sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
    except sqlite3.Error as error:
        raise ValueError(f"{path}: {error}") from error


def _query(folder: Path, query: str) -> list[Any]:
    connection = _open(folder)
    try:
        return connection.execute(query).fetchall()
    except sqlite3.Error as error:
        raise ValueError(f"{folder / _DATABASE}: {error}") from error
    finally:
        connection.close()


def _count(folder: Path) -> int:
    return int(_query(folder, "SELECT COUNT(*) FROM Cache")[0][0])


def _settings(folders: list[Path]) -> dict[str, Any]:
    """The settings that this package has."""
    all_of_them = [dict(_query(folder, "SELECT key, value FROM Settings")) for folder in folders]
    settings = {
        name: value
        for name, value in all_of_them[0].items()
        if name in DEFAULT_SETTINGS and name != "disk_pickle_protocol"
    }
    if "size_limit" in settings:
        settings["size_limit"] = int(sum(each.get("size_limit", 0) for each in all_of_them))
    if settings.get("eviction_policy") not in EVICTION_POLICY:
        settings.pop("eviction_policy", None)
    return settings


def _convert(
    path: Path,
    folders: list[Path],
    unpickle: str | None,
    counts: Counts,
    step: Callable[[], None],
) -> None:
    disk = PickleDisk if unpickle == "any" else Disk
    with Cache(path, disk=disk, **_settings(folders)) as cache:
        for folder in folders:
            connection = _open(folder)
            try:
                rows = connection.execute(
                    "SELECT key, raw, expire_time, tag, mode, filename, value FROM Cache"
                    " ORDER BY rowid"
                )
                for row in rows:
                    _convert_row(cache, folder, row, _READERS[unpickle], counts)
                    step()
            except sqlite3.Error as error:
                raise ValueError(f"{folder / _DATABASE}: {error}") from error
            finally:
                connection.close()


def _convert_row(
    cache: Cache, folder: Path, row: tuple[Any, ...], read: Callable[[bytes], Any], counts: Counts
) -> None:
    key, raw, expire_time, tag, mode, filename, value = row
    left = None if expire_time is None else expire_time - time.time()
    if left is not None and left <= 0:
        counts.expired += 1
        return
    try:
        if filename is not None:
            value = _file(folder, filename)
            if mode == MODE_TEXT:
                value = value.decode()
        if not raw:
            key = read(key)
        if mode == MODE_PICKLE:
            value = read(value)
        file = io.BytesIO(value) if mode == MODE_BINARY else None
        if file is None:
            cache.set(key, value, expire=left, tag=tag, retry=True)
        else:
            cache.set(key, file, expire=left, read=True, tag=tag, retry=True)
    except _Refused:
        counts.pickled += 1
    except (Error, TypeError):
        counts.refused += 1
    except Exception:
        # Unpickling may raise any exception.
        counts.lost += 1
    else:
        counts.converted += 1


def _file(folder: Path, name: str) -> bytes:
    root = os.path.realpath(folder)
    path = os.path.realpath(os.path.join(root, name))
    if os.path.commonpath([root, path]) != root:
        raise OSError(f"{name} is outside of {folder}")
    return Path(path).read_bytes()
