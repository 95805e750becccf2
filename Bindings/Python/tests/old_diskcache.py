"""Directories as diskcache 5.6 writes them, made by hand."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

_TABLES = """
    CREATE TABLE Settings (key TEXT NOT NULL UNIQUE, value);
    INSERT INTO Settings VALUES ('size_limit', 5000000), ('cull_limit', 7),
        ('eviction_policy', 'least-recently-used'), ('sqlite_mmap_size', 1), ('count', 0);
    CREATE TABLE Cache (rowid INTEGER PRIMARY KEY, key BLOB, raw INTEGER, store_time REAL,
        expire_time REAL, access_time REAL, access_count INTEGER DEFAULT 0, tag BLOB,
        size INTEGER DEFAULT 0, mode INTEGER DEFAULT 0, filename TEXT, value BLOB);
"""
_COLUMNS = "key, raw, expire_time, tag, mode, filename, value"


def make(folder: Path, *rows: tuple[Any, ...], settings: dict[str, Any] | None = None) -> Path:
    """rows: key, raw, expire_time, tag, mode, filename, value."""
    connection = open_in_wal(folder, *rows)
    connection.executemany("REPLACE INTO Settings VALUES (?, ?)", (settings or {}).items())
    connection.commit()
    connection.close()
    return folder


def open_in_wal(folder: Path, *rows: tuple[Any, ...]) -> sqlite3.Connection:
    """A connection that stays open, as of a program that uses the cache: its last changes are not
    in the database yet."""
    folder.mkdir(parents=True)
    connection = sqlite3.connect(folder / "cache.db")
    connection.execute("PRAGMA journal_mode = wal")
    connection.executescript(_TABLES)
    connection.executemany(f"INSERT INTO Cache ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
    connection.commit()
    return connection
