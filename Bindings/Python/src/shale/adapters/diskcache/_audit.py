"""``python -m shale audit``: what a directory of diskcache holds, and what ``convert`` can move."""

from __future__ import annotations

import time
import zlib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Final

from ._convert import Left
from ._source import (
    Database,
    Found,
    Store,
    examine,
    largest_value,
    printable,
    settings_of,
    stores,
)

_MOST_NAMES: Final = 1000
_OTHERS: Final = "(others)"

_DANGEROUS: Final = frozenset(
    [
        "_posixsubprocess",
        "asyncio",
        "code",
        "codeop",
        "commands",
        "cProfile",
        "ctypes",
        "distutils",
        "functools",
        "http",
        "imp",
        "importlib",
        "inspect",
        "io",
        "marshal",
        "multiprocessing",
        "nt",
        "operator",
        "os",
        "pdb",
        "pickle",
        "pip",
        "pkgutil",
        "platform",
        "posix",
        "posixpath",
        "profile",
        "pty",
        "pydoc",
        "runpy",
        "setuptools",
        "shelve",
        "shutil",
        "signal",
        "site",
        "socket",
        "socketserver",
        "sqlite3",
        "ssl",
        "subprocess",
        "sys",
        "tempfile",
        "test",
        "threading",
        "timeit",
        "trace",
        "types",
        "urllib",
        "venv",
        "webbrowser",
        "xmlrpc",
    ]
)
"""Modules that start programs, load code, open files or connections, or call other functions."""
_DANGEROUS_BUILT_IN: Final = frozenset(
    [
        "__import__",
        "apply",
        "breakpoint",
        "compile",
        "delattr",
        "eval",
        "exec",
        "execfile",
        "file",
        "getattr",
        "globals",
        "input",
        "locals",
        "open",
        "setattr",
        "vars",
    ]
)

_COMPRESSED: Final = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
    b"\xfd7zXZ\x00": "xz",
    b"BZh": "bzip2",
}
_ZLIB_OF_JSON: Final = "zlib of JSON"
_DISK_SETTINGS: Final = {
    "disk_min_file_size": "Disk",
    "disk_pickle_protocol": "Disk",
    "disk_compress_level": "JSONDisk",
}


def is_dangerous(name: str) -> bool:
    """Whether a pickle that names it was most probably made to run code."""
    module, _, rest = name.partition(".")
    return module in _DANGEROUS or (module == "builtins" and rest in _DANGEROUS_BUILT_IN)


@dataclass
class StoreReport:
    """What one cache holds."""

    path: str
    kind: str
    settings: dict[str, Any]
    entries: int = 0
    bytes: int = 0
    moves: int = 0
    keys: Counter[str] = field(default_factory=Counter)
    values: Counter[str] = field(default_factory=Counter)
    in_files: int = 0
    pickles: Counter[str] = field(default_factory=Counter)
    """Of keys and values, by `Pickle.kind`."""
    names: Counter[str] = field(default_factory=Counter)
    """Entries by a name whose code unpickling would run."""
    data_names: Counter[str] = field(default_factory=Counter)
    compressed: Counter[str] = field(default_factory=Counter)
    tagged: int = 0
    tags: Counter[str] = field(default_factory=Counter)
    damage: dict[str, str] = field(default_factory=dict)

    def add(self, found: Found) -> None:
        self.entries += 1
        self.bytes += found.size
        self.keys[found.key_kind] += 1
        self.values[found.value_kind] += 1
        self.in_files += found.in_file
        for pickled in found.pickles:
            self.pickles[pickled.kind] += 1
        for counter, names in (
            (self.names, {name for each in found.pickles for name in each.names}),
            (self.data_names, {name for each in found.pickles for name in each.data_names}),
            (self.tags, set() if found.tag is None else {_cut(found.tag)}),
        ):
            for name in names:
                known = name in counter or len(counter) < _MOST_NAMES
                counter[name if known else _OTHERS] += 1
        self.tagged += found.tag is not None
        compressed = _compressed(found.value)
        if compressed:
            self.compressed[compressed] += 1

    @property
    def disk(self) -> str:
        """The class that wrote it, as far as its settings and values show."""
        options = {name for name in self.settings if name.startswith("disk_")}
        others = sorted(options - _DISK_SETTINGS.keys())
        if others:
            return f"a Disk class of its own, with {', '.join(map(printable, others))}"
        json_values = self.entries > 0 and self.compressed[_ZLIB_OF_JSON] == self.entries
        if json_values or any(_DISK_SETTINGS[name] == "JSONDisk" for name in options):
            return "JSONDisk"
        return "Disk"

    @property
    def dangerous(self) -> list[str]:
        return sorted(name for name in self.names if is_dangerous(name))

    def as_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "kind": self.kind,
            "disk": self.disk,
            "settings": self.settings,
            "entries": self.entries,
            "bytes": self.bytes,
            "moves": self.moves,
            "keys": self.keys,
            "values": self.values,
            "in_files": self.in_files,
            "pickles": self.pickles,
            "runs_code_of": self.names,
            "dangerous": self.dangerous,
            "data_classes": self.data_names,
            "compressed": self.compressed,
            "tagged": self.tagged,
            "tags": self.tags,
            "damaged": self.damage,
        }

    def lines(self) -> list[str]:
        path = printable(self.path)
        lines = [f"{path}: {self.kind}, {_entries(self.entries)}, {self.bytes:,} bytes"]
        disk = self.disk
        advice = (
            "" if disk == "Disk" else ": open NEW with the same class in shale.adapters.diskcache"
        )
        lines.append(f"  written by {disk}{advice}")
        for text, counter in (
            ("keys", self.keys),
            ("values", self.values),
            ("compressed", self.compressed),
            ("pickles", self.pickles),
            ("data classes", self.data_names),
            ("tags", self.tags),
        ):
            if counter:
                lines.append(f"  {text}: {_counted(counter)}")
        if self.in_files:
            lines.append(f"  values in files: {self.in_files:,}")
        for name, count in self.names.most_common():
            warning = "; DANGEROUS: made to run code?" if is_dangerous(name) else ""
            lines.append(f"  unpickling runs code of {printable(name)}: {_entries(count)}{warning}")
        lines += [
            printable(f"  {path} is damaged, and not read fully: {why}")
            for path, why in self.damage.items()
        ]
        return lines


@dataclass
class Audit:
    """What a directory holds."""

    directory: str
    left: Left
    stores: list[StoreReport] = field(default_factory=list)

    @property
    def moves(self) -> int:
        return sum(each.moves for each in self.stores)

    @property
    def complete(self) -> bool:
        """Whether everything moves, but for expired entries."""
        return self.left.complete and not any(each.damage for each in self.stores)

    def lines(self) -> list[str]:
        lines = [line for each in self.stores for line in each.lines()]
        lines.append(f"convert moves {_entries(self.moves)}")
        return lines + self.left.lines()

    def as_json(self) -> dict[str, Any]:
        return {
            "directory": self.directory,
            "moves": self.moves,
            "left": self.left.as_json(),
            "complete": self.complete,
            "stores": [each.as_json() for each in self.stores],
        }


def audit_directory(
    directory: str, most_examples: int, progress: Callable[[int, int], None]
) -> Audit:
    """Reads all entries. Raises ValueError if it is no directory of diskcache."""
    source = Path(directory)
    audit = Audit(directory, Left(most_examples))
    done = 0
    for store in stores(source):
        with_databases = [Database(folder) for folder in store.folders]
        try:
            report = _report(source, store, with_databases)
            audit.stores.append(report)
            largest = largest_value(settings_of(with_databases))
            total = done + sum(each.count for each in with_databases)
            for database in with_databases:
                for row in database.rows():
                    found = examine(database.folder, row, time.time(), largest)
                    report.add(found)
                    if found.reason is None:
                        report.moves += 1
                    else:
                        audit.left.add(found.reason, found.shown)
                    done += 1
                    progress(done, max(done, total) + 1)
                if database.damage is not None:
                    report.damage[str(database.folder)] = database.damage
        finally:
            for database in with_databases:
                database.close()
    progress(done, done)
    return audit


def _report(source: Path, store: Store, databases: list[Database]) -> StoreReport:
    settings = {
        str(name): value
        for name, value in databases[0].settings.items()
        if name not in ("count", "size", "hits", "misses") and not str(name).startswith("sqlite_")
    }
    if store.sharded:
        kind = f"FanoutCache or DjangoCache of {len(store.folders)} shards"
    elif settings.get("eviction_policy") == "none":
        kind = "Cache that evicts nothing, such as of Deque and Index"
    else:
        kind = "Cache"
    plain = {
        name: value if isinstance(value, (int, float, str)) else str(value)
        for name, value in settings.items()
    }
    return StoreReport(str(source / store.path), kind, plain)


def _compressed(value: Any) -> str | None:
    if type(value) is not bytes:
        return None
    if value[:1] == b"\x78":
        try:
            start = zlib.decompressobj().decompress(value, 1)
        except zlib.error:
            return None
        return _ZLIB_OF_JSON if start and start in b'[{"0123456789-tfn' else "zlib"
    for magic, name in _COMPRESSED.items():
        if value.startswith(magic):
            return name
    return None


def _cut(tag: Any) -> str:
    text = tag if isinstance(tag, str) else ascii(tag)
    return text[:80]


def _counted(counter: Counter[str]) -> str:
    shown = [f"{count:,} {printable(name)}" for name, count in counter.most_common(20)]
    more = len(counter) - len(shown)
    return ", ".join(shown) + (f" and {more:,} more" if more > 0 else "")


def _entries(count: int) -> str:
    return f"{count:,} {'entry' if count == 1 else 'entries'}"
