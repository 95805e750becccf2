"""The progress that a cache guarantees at any time: a set, a removal, an eviction, an invalidation
of a tag, and a load of an unchanged key succeed. Known failures: Tests/known-failures."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, ClassVar

from support import REPOSITORY

KNOWN = REPOSITORY / "Tests" / "known-failures"
SUITE = "test_progress"
"""The suite of the Python tests in that file."""


def known_failures(suite: str = SUITE) -> dict[str, str]:
    """The kind of each known failure, by the case that repeats it."""
    lines = KNOWN.read_text().splitlines()
    fields = [line.split(" | ") for line in lines if line and not line.startswith("#")]
    return {case: kind for named, kind, case, _ in fields if named == suite}


def evaluate_case(suite: str, case: str, kind: str | None) -> None:
    """kind: of the failure of the case; None: it passed."""
    listed = known_failures(suite).get(case)
    assert kind == listed, (
        f"{case!r} passes: delete its line in {KNOWN.name}"
        if kind is None
        else f"{case!r} fails ({kind}); {KNOWN.name} lists {listed or 'nothing'} for it"
    )


class Share:
    """A share of failures in a suite. conftest.py prints all shares."""

    made: ClassVar[list[Share]] = []

    def __init__(self, what: str, limit: float) -> None:
        """limit: the largest share that passes."""
        self.what = what
        self.limit = limit
        self.all = self.failed = 0
        Share.made.append(self)

    def count(self, failed: bool) -> None:
        self.all += 1
        self.failed += failed

    def __str__(self) -> str:
        share = self.failed / max(1, self.all)
        return f"{self.what}: {self.failed} of {self.all} ({share:.2%}, limit {self.limit:.0%})"

    def check(self) -> None:
        assert self.failed <= self.limit * self.all, self


def _set(cache: Any, key: Any, _tag: str) -> bool:
    cache.set(key, b"x")
    return bool(cache.get(key) == b"x")


def _remove(cache: Any, key: Any, _tag: str) -> bool:
    cache.set(key, b"x")
    return bool(cache.remove(key)) and cache.get(key) is None


def _evict(cache: Any, key: Any, _tag: str) -> bool:
    cache.set(key, b"x")
    return bool(cache.evict(1) == 1)


def _invalidate(cache: Any, key: Any, tag: str) -> bool:
    cache.set(key, b"x", tag=tag)
    cache.invalidate(tag)
    return cache.get(key) is None


def _load(cache: Any, key: Any, tag: str) -> bool:
    return bool(cache.get_or_load(key, lambda: b"x", tag=tag) == cache.get(key) == b"x")


def _fenced_set(cache: Any, key: Any, tag: str) -> bool:
    with cache.lease(key) as lease:
        return bool(lease.granted and lease.set(b"x", tag=tag))


CHANGES = (_set, _remove, _invalidate)
LOADS = (_load, _fenced_set)
ALL = (*CHANGES, _evict, *LOADS)


def check_progress(
    cache: Any,
    works: Sequence[Callable[[Any, Any, str], bool]] = ALL,
    *,
    tries: int = 1,
    refused: Share | None = None,
    changes: Callable[[], Hashable] = lambda: 0,
) -> None:
    """Each operation succeeds, on keys and with tags of its own.

    No reason that limits.md, "Disk space" or limits.md, "Order, counts and eviction" has for a
    refusal holds in these tests: the disk has room, no file-size limit is set, and what is pinned
    fills no shard. So no error is expected.

    tries: 1 if nothing else runs; more if others clear the cache meanwhile. refused: counts loads
    that are not stored. changes: returns a state that changes when others change all keys; None
    while they do.
    """
    undone = []
    for work in works:
        for number in range(tries):
            key, tag = ("progress", work.__name__, number), f"progress {work.__name__}"
            before = changes()
            done = work(cache, key, tag)
            if refused is not None and work in LOADS and None is not before == changes():
                refused.count(not done)
            cache.remove(key)
            if done:
                break
        else:
            undone.append(work.__name__[1:])
    assert not undone, f"not done in {tries} tries: {undone}"
