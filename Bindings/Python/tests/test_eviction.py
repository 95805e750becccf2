"""The eviction policy, as chosen when the cache was created."""

from __future__ import annotations

import asyncio
import pickle
import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support import SMALL

import shale

if TYPE_CHECKING:
    from shale._data.options import Eviction

VALUE = random.Random(1).randbytes(1000)

both = pytest.mark.parametrize("policy", ["lru", "clock"])


def other(policy: Eviction) -> Eviction:
    return "clock" if policy == "lru" else "lru"


def test_a_new_cache_has_lru(cache: shale.Cache) -> None:
    assert cache.stats().eviction == "lru"


@both
def test_the_policy_is_chosen_once_and_kept(directory: Path, policy: Eviction) -> None:
    with shale.Cache(directory, capacity=SMALL, eviction=policy) as cache:
        assert cache.stats().eviction == policy
        cache["k"] = 1
    same: list[Eviction | None] = [None, policy]
    for eviction in same:
        with shale.Cache(directory, eviction=eviction) as cache:
            assert cache.stats().eviction == policy
            assert cache["k"] == 1
    with shale.Cache(directory, eviction=policy, read_only=True) as cache:
        assert cache.stats().eviction == policy


@both
def test_another_policy_is_refused(directory: Path, policy: Eviction) -> None:
    with shale.Cache(directory, capacity=SMALL, eviction=policy) as cache:
        cache["k"] = 1
    for read_only in (False, True):
        with pytest.raises(shale.InvalidError, match=f"{directory} has the eviction policy"):
            shale.Cache(directory, eviction=other(policy), read_only=read_only)
    # No handle is left open, or another capacity would be refused.
    with shale.Cache(directory, capacity="4MiB") as cache:
        assert cache.stats().eviction == policy
        assert cache["k"] == 1


@pytest.mark.parametrize("wrong", ["LRU", "fifo", "", 1])
def test_no_policy(directory: Path, wrong: Any) -> None:
    with pytest.raises(shale.InvalidError, match=f"eviction is one of .*, not {wrong!r}"):
        shale.Cache(directory, eviction=wrong)
    assert not directory.exists()


def test_for_coroutines(directory: Path) -> None:
    async def main() -> None:
        async with await shale.AsyncCache.open(
            directory, capacity=SMALL, eviction="clock"
        ) as cache:
            assert (await cache.stats()).eviction == "clock"
        with pytest.raises(shale.InvalidError):
            await shale.AsyncCache.open(directory, eviction="lru")

    asyncio.run(main())


def test_pickled_it_is_the_same_cache(directory: Path) -> None:
    with (
        shale.Cache(directory, capacity=SMALL, eviction="clock") as cache,
        pickle.loads(pickle.dumps(cache)) as again,
    ):
        assert again.stats().eviction == "clock"


def scan(number: int) -> Iterator[tuple[tuple[str, int, int], bytes]]:
    """More than the cache can hold, with keys that are not read again."""
    return ((("scanned", number, each), VALUE) for each in range(8000))


@both
def test_what_is_used_survives_a_scan_with_clock_alone(policy: Eviction) -> None:
    with shale.Cache(None, capacity="8MiB", eviction=policy, compression="none") as cache:
        cache.set_many(scan(-1))
        used = [("used", number) for number in range(100)]
        cache.set_many((key, VALUE) for key in used)
        for _ in range(3):
            assert list(cache.get_many(used)) == used
        for number in range(5):
            cache.set_many(scan(number))
            assert len(cache) < 8000
            assert list(cache.get_many(used)) == (used if policy == "clock" else [])
