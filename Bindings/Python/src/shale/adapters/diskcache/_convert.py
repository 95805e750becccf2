"""``python -m shale convert``: converts directories of diskcache to those of this package."""

from __future__ import annotations

import io
import pickle
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Final

from ..._native.errors import FullError, InvalidError, TooLargeError
from ._cache import Cache
from ._disk import MODE_BINARY, MODE_PICKLE, MODE_TEXT, Disk, PickleDisk
from ._source import (
    REASONS,
    Database,
    Found,
    examine,
    largest_value,
    printable,
    settings_of,
    stores,
)


@dataclass
class Left:
    """The entries that are left out, by the reason."""

    most_examples: int
    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)
    """Keys."""

    def add(self, reason: str, shown: str) -> None:
        self.counts[reason] += 1
        examples = self.examples.setdefault(reason, [])
        if len(examples) < self.most_examples:
            examples.append(shown)

    @property
    def complete(self) -> bool:
        """Whether only expired entries are left out."""
        return not (self.counts.keys() - {"expired"})

    def lines(self) -> list[str]:
        lines = []
        for reason, text in REASONS.items():
            if self.counts[reason]:
                lines.append(f"{self.counts[reason]:,} left out, {text}")
                if reason != "expired":
                    lines += [f"  {shown}" for shown in self.examples[reason]]
        return lines

    def as_json(self) -> list[dict[str, Any]]:
        return [
            {"reason": reason, "entries": count, "examples": self.examples.get(reason, [])}
            for reason, count in self.counts.items()
        ]


@dataclass
class Result:
    """What ``convert`` did."""

    left: Left
    converted: int = 0
    damage: dict[str, str] = field(default_factory=dict)
    """The error of each damaged database."""

    @property
    def complete(self) -> bool:
        return self.left.complete and not self.damage

    def lines(self) -> list[str]:
        lines = [f"{self.converted:,} entries converted"] if self.converted else []
        lines += self.left.lines()
        lines += [
            printable(f"{path} is damaged, and not read fully: {why}")
            for path, why in self.damage.items()
        ]
        return lines or ["no entries"]

    def as_json(self) -> dict[str, Any]:
        return {
            "converted": self.converted,
            "left": self.left.as_json(),
            "damaged": self.damage,
            "complete": self.complete,
        }


def convert_directory(
    old: str,
    new: str,
    unpickle_any: bool,
    most_examples: int,
    progress: Callable[[int, int], None],
) -> Result:
    """Converts all entries of ``old``. progress: called with the numbers of done and of all
    entries.

    Raises ValueError if ``old`` is no directory of diskcache, or ``new`` is in it or not empty.
    """
    source, target = Path(old), Path(new)
    found = stores(source)
    if target.exists() and any(target.iterdir()):
        raise ValueError(f"{target} is not empty")
    if source.resolve() in target.resolve().parents:
        raise ValueError(f"{target} is in {source}, which does not change")
    result = Result(Left(most_examples))
    with ExitStack() as opened:
        opened_stores = [
            (store, [opened.enter_context(Database(folder)) for folder in store.folders])
            for store in found
        ]
        total = sum(each.count for _, databases in opened_stores for each in databases)
        done = 0

        def step() -> None:
            nonlocal done
            done += 1
            progress(done, max(done, total))

        for store, databases in opened_stores:
            _convert(target / store.path, databases, unpickle_any, result, step)
            for each in databases:
                if each.damage is not None:
                    result.damage[str(each.folder)] = each.damage
    progress(max(done, total), max(done, total))
    return result


def _convert(
    path: Path,
    databases: list[Database],
    unpickle_any: bool,
    result: Result,
    step: Callable[[], None],
) -> None:
    settings = settings_of(databases)
    if settings.get("eviction_policy") == "none":
        # Entries that diskcache never evicts may exceed the limit.
        volume = sum(each.volume for each in databases)
        settings["size_limit"] = max(volume, settings.get("size_limit", 0))
    largest = largest_value(settings)
    converted = 0
    with Cache(path, disk=PickleDisk if unpickle_any else Disk, **settings) as cache:
        for database in databases:
            for row in database.rows():
                found = examine(database.folder, row, time.time(), largest)
                reason = _store(cache, found, unpickle_any)
                if reason is None:
                    converted += 1
                else:
                    result.left.add(reason, found.shown)
                step()
        evicted = max(0, converted - len(cache))
    result.converted += converted - evicted
    if evicted:
        result.left.counts["evicted"] += evicted
        result.left.examples.setdefault("evicted", [])


# Unpickling with the program's own classes may succeed where an entry is left out for these.
_FOR_PICKLE: Final = ("classes", "damaged", "costly", "no form")


def _store(cache: Cache, found: Found, unpickle_any: bool) -> str | None:
    """Stores an entry. Returns the reason if it is left out."""
    key, value = found.key, found.value
    if unpickle_any and found.reason in _FOR_PICKLE:
        try:
            # Code that the bytes choose runs here.
            pickled_key, pickled_value = found.raw
            if pickled_key is not None:
                key = pickle.loads(pickled_key)
            if found.mode == MODE_PICKLE:
                value = pickle.loads(pickled_value)
        except Exception:
            return "damaged"
    elif found.reason is not None:
        return found.reason
    is_file = found.mode == MODE_BINARY
    if found.file is not None:
        try:
            value = found.file.read_bytes()
            if found.mode == MODE_TEXT:
                value = value.decode()
        except (OSError, UnicodeDecodeError):
            return "no file"
    try:
        cache.set(
            key,
            io.BytesIO(value) if is_file else value,
            expire=found.left,
            read=is_file,
            tag=found.tag,
            retry=True,
        )
    except FullError:
        return "evicted"
    except TooLargeError:
        return "too large"
    except (TypeError, InvalidError):
        return "no form"
    return None
