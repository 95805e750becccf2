"""The steps of the demonstration, in order; README.md describes them.

The expected results of a comparison are four letters, one for each Role: p present without an age, a present with an
age, m missing.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

from .board import Board
from .corpus import Role
from .crew import Crew, Failure
from .prepare import Prepared
from .screen import Screen

Result = dict[str, int]

LANGUAGES = ("C", "Python", "Swift")
KILLS = 20  # spread evenly over the entries
SHORT_AGE_SECONDS = 1.0
MARGIN_SECONDS = 0.05  # ages use the wall clock, sleep the monotonic one
KILL_TICK_SECONDS = 0.001

AFTER_FILL = "paap"
AFTER_INVALIDATION = "pamp"
AFTER_EXPIRY = "pamm"
AFTER_REFILL = "papp"


@dataclass
class Figures:
    """The figures of the table."""

    kills: int = 0
    gets: dict[str, Result] = field(default_factory=dict)
    sets: dict[str, Result] = field(default_factory=dict)
    set_many: Result = field(default_factory=dict)  # C, 64 keys per call
    get_many: Result = field(default_factory=dict)
    reopen_ns: dict[str, int] = field(default_factory=dict)
    stats: Result = field(default_factory=dict)
    disk_bytes: int = 0


class Story:
    def __init__(self, crew: Crew, board: Board, cache: Path, prepared: Prepared, screen: Screen) -> None:
        self._crew = crew
        self._board = board
        self._cache = cache
        self._prepared = prepared
        self._screen = screen
        self.figures = Figures()

    def run(self) -> Figures:
        self.fill()
        self.compare("compare", AFTER_FILL)
        self.invalidate()
        self.expire()
        self.refill()
        self.rewrite()
        self.close()
        self.reopen()
        return self.figures

    def fill(self) -> None:
        """C writes everything and is killed repeatedly; Python reads and refreshes entries; Swift reads."""
        self._screen.phase("fill")
        self._crew.start(LANGUAGES)
        total = self._prepared.count
        targets = [total * turn // (KILLS + 1) for turn in range(1, KILLS + 1)]

        def tick() -> None:
            completed = self._board.completed
            if targets and completed >= targets[0]:
                self._crew.replace("C", "fill")
                if self._board.completed < total:
                    self.figures.kills += 1
                targets[:] = [target for target in targets if target > self._board.completed]
            reads = (f"{name} has read {self._crew.workers[name].progress[0]:,}" for name in ("Python", "Swift"))
            self._screen.update(
                f"C: {completed:,} of {total:,} entries, killed {self.figures.kills} times; " + ", ".join(reads),
                completed / total,
            )

        results = self._crew.together({"C": "fill", "Python": "follow", "Swift": "follow"}, tick, KILL_TICK_SECONDS)
        if self.figures.kills == 0:
            raise Failure("C wrote everything before it was killed; run the demonstration again")
        self.expect(
            "entries that Python refreshed",
            results["Python"]["refreshed"],
            self.members(Role.REFRESHED, Role.INVALIDATED),
        )
        self._screen.done(f"{total:,} entries by C, killed {self.figures.kills} times with kill -9")
        self._screen.note(
            f"read and compared at the same time: {results['Python']['hits']:,} by Python, "
            f"{results['Swift']['hits']:,} by Swift"
        )

    def invalidate(self) -> None:
        """Swift invalidates one tag; C and Python, with open handles, see it at once."""
        tag = self._prepared.tag(Role.INVALIDATED)
        self._screen.phase("invalidate")
        self._crew.together({"Swift": f"invalidate {tag}"})
        self.compared_by_all(AFTER_INVALIDATION)
        self._screen.done(
            f"{tag}: {self.members(Role.INVALIDATED):,} entries missing for all three, the others present"
        )

    def expire(self) -> None:
        """Python gives one section a short age; after that, its entries are missing for all three."""
        tag = self._prepared.tag(Role.SHORT_LIVED)
        self._screen.phase("expire")
        aged = self._crew.together({"Python": f"age {SHORT_AGE_SECONDS}"})["Python"]["aged"]
        self.expect("entries that Python gave a short age", aged, self.members(Role.SHORT_LIVED))
        time.sleep(SHORT_AGE_SECONDS + MARGIN_SECONDS)
        self.compared_by_all(AFTER_EXPIRY)
        self._screen.done(f"{tag}: {aged:,} entries with an age of {SHORT_AGE_SECONDS:g} s missing for all three")

    def refill(self) -> None:
        """C sets the entries that it misses: exactly those that were invalidated or have expired."""
        self._screen.phase("refill")
        refilled = self._crew.together({"C": "refill"})["C"]["refilled"]
        self.expect("entries that C missed", refilled, self.members(Role.INVALIDATED, Role.SHORT_LIVED))
        self._screen.done(f"{refilled:,} entries were missed by C and set again")

    def rewrite(self) -> None:
        """Measures set: each language alone sets a quarter of the plain entries again; C the last one in batches."""
        self._screen.phase("rewrite")
        for part, name in enumerate(LANGUAGES):
            self.figures.sets[name] = self.alone(name, f"rewrite {part} 4", part / 4)
        self.figures.set_many = self.alone("C", "set_many 3 4", 3 / 4)
        count = sum(result["calls"] for result in self.figures.sets.values()) + self.figures.set_many["entries"]
        self.expect("entries written again", count, self.members(Role.PLAIN))
        self._screen.done(f"{count:,} entries set again, a quarter by each language, a quarter in batches")

    def close(self) -> None:
        self._screen.phase("close")
        self._crew.quit()
        self._screen.done("all three have closed the cache")

    def reopen(self) -> None:
        """New processes, one after another, open the cache, compare everything, and close it."""
        self._screen.phase("reopen")
        for part, name in enumerate(LANGUAGES):
            self._crew.start([name])
            self.figures.reopen_ns[name] = self._crew.workers[name].open_ns or 0
            self.figures.gets[name] = self.alone(name, f"compare {AFTER_REFILL}", part / 3)
            if name == "C":
                self.figures.get_many = self.alone("C", f"get_many {AFTER_REFILL}", part / 3)
                self.figures.stats = self.alone("C", "stats", part / 3)
                self.figures.disk_bytes = disk_bytes(self._cache)
            self._crew.quit()
        self.check_statistics()
        self._screen.done(f"{self._prepared.count:,} entries compared once more by each of the three")

    def compare(self, title: str, expected: str) -> None:
        self._screen.phase(title)
        self.compared_by_all(expected)
        self._screen.done(f"{self._prepared.count:,} entries by each of the three at the same time")

    def compared_by_all(self, expected: str) -> None:
        results = self._crew.together(
            dict.fromkeys(LANGUAGES, f"compare {expected}"),
            lambda: self._screen.update("", self._crew.fraction(LANGUAGES)),
        )
        for name, result in results.items():
            self.expect(f"entries that {name} compared", result["calls"], self._prepared.count)

    def alone(self, name: str, command: str, fraction: float) -> Result:
        return self._crew.together({name: command}, lambda: self._screen.update(name, fraction))[name]

    def check_statistics(self) -> None:
        stats = self.figures.stats
        self.expect("evictions", stats["evictions"], 0)
        self.expect("damaged records", stats["corrupt_records"], 0)
        self.expect("entries in the statistics", stats["entries"], self._prepared.count)
        self.expect("raw bytes in the statistics", stats["raw_bytes"], self._prepared.raw_bytes)
        if self.figures.disk_bytes > stats["capacity"]:
            raise Failure(
                f"the directory takes {self.figures.disk_bytes:,} bytes on disk, its capacity is {stats['capacity']:,}"
            )

    def members(self, *roles: Role) -> int:
        return sum(self._prepared.members[role] for role in roles)

    def expect(self, what: str, got: int, wanted: int) -> None:
        if got != wanted:
            raise Failure(f"{what}: {got:,}, but it should be {wanted:,}")


def disk_bytes(directory: Path) -> int:
    """Allocated blocks, like du, since the files are sparse."""
    return sum(path.stat().st_blocks * 512 for path in [directory, *directory.rglob("*")])
