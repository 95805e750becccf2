"""Short histories, what the checker would say of wrong ones, and fills that are known to be
refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Optional

import pytest
from histories import NEVER, SUITE, Read, Record, Write, check, run
from near import Machines
from progress import judge_case, known_failures
from servers import RedisServer

BOUND = 100


@pytest.mark.parametrize("seed", [1, 2])
def test_histories(tmp_path: Path, seed: int) -> None:
    faults = run(tmp_path, seed, 30, 0.1)
    assert not faults, (
        f"python histories.py --seed {seed} --rounds 30 repeats its faults:\n"
        + "\n".join(faults[:20])
    )


def test_a_history_with_memcached(tmp_path: Path) -> None:
    faults = run(tmp_path, 1, 15, 0.1, memcached=True)
    assert not faults, "\n".join(faults[:20])


def record(*reads: Read) -> Record:
    """Of a key that machine a writes: 1 at 0 to 10, 2 at 1000 to 1010, 3 fails."""
    made = Record()
    made.writes["k"] = {
        1: Write(1, 0, 10, "t", "a"),
        2: Write(2, 1000, 1010, "", "a"),
        3: Write(3, 2000, NEVER, "", "a"),
    }
    made.invalidations["t"] = [(300, 310, "a")]
    made.reads += reads
    return made


def read(value: int, began: int, source: str = "near", machine: str = "b") -> Read:
    return Read(machine, "k", value, began, began + 5, source, False)


@pytest.mark.parametrize(
    "reads, fault",
    [
        ([read(1, 20), read(2, 1105), read(3, 2100)], ""),
        ([read(1, 1105), read(1, 250)], ""),
        ([read(1, 1111)], "1, 2"),
        ([read(1, 1011, "remote")], "1, 2"),
        ([read(1, 1011, machine="a")], "3"),
        ([read(2, 900)], "nobody"),
        ([read(4, 900)], "nobody"),
        ([read(1, 420)], "8"),
        ([read(1, 320, machine="a")], "8"),
        ([read(2, 1005), read(1, 1050)], "backwards"),
    ],
)
def test_the_checker(reads: list[Read], fault: str) -> None:
    found = check(record(*reads), BOUND)
    if not fault:
        found = [each for each in found if not each.startswith("8")]
        assert not found
    else:
        assert any(each.startswith(fault) or fault in each for each in found), found


# Reads of keys that nothing happens to while they run


Case = Callable[[Any], Optional[str]]


def kept(tier: Any, during: Callable[[], object]) -> bool:
    """Whether what is read is kept near."""
    fetch = tier._remote.fetch
    with pytest.MonkeyPatch.context() as patch:

        def fetch_late(*arguments: Any, **named: Any) -> Any:
            patch.undo()
            fetched = fetch(*arguments, **named)
            during()
            return fetched

        patch.setattr(tier._remote, "fetch", fetch_late)
        assert tier.get(b"k") == b"v"
    return tier._cache.get(b"k", stale=True) is not None


def a_read(tier: Any) -> str | None:
    return None if kept(tier, lambda: tier.get("another")) else "fence"


def other_reads_that_fill_the_near_cache(tier: Any) -> str | None:
    def during() -> None:
        for number in range(100):
            tier.get(f"another {number}")

    return None if kept(tier, during) else "fence"


def many_tags(tier: Any) -> str | None:
    def during() -> None:
        for number in range(400):
            tier.invalidate(f"tag {number}")

    return None if kept(tier, during) else "fence"


CASES: list[Case] = [a_read, other_reads_that_fill_the_near_cache, many_tags]


@pytest.mark.parametrize("case", CASES)
def test_what_is_read_is_kept_near(case: Case, machine: Machines, server: RedisServer) -> None:
    server.client().set("shale:k:k", b"v")
    kind = case(machine(timeout=60.0, max_entries=40, shards=1))
    judge_case(SUITE, name_of(case), kind)


def name_of(case: Case) -> str:
    return case.__name__.replace("_", " ")


def test_all_known_failures_are_cases() -> None:
    assert known_failures(SUITE).keys() <= set(map(name_of, CASES))
