"""Short histories, the results of the checker for wrong ones, and fills that are known to be refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from histories import NEVER, SUITE, Read, Record, Write, bound_of, check, run, shows
from histories_child import markers_are_left, no_back_off_limit
from histories_progress import (
    Cause,
    Change,
    Connected,
    Failure,
    HalfOpen,
    Loaded,
    Progress,
    Run,
    Stop,
    Waited,
    check_failures,
    check_loads,
    check_markers,
    check_waits,
)
from near import Machines
from progress import evaluate_case, known_failures
from servers import RedisServer

BOUND = 100
ROUNDS = 5


@pytest.mark.parametrize("seed", range(1, 7))
def test_histories(tmp_path: Path, seed: int) -> None:
    faults = run(tmp_path, seed, ROUNDS, bound_of(seed))
    assert not faults, f"python histories.py --seed {seed} --rounds {ROUNDS} repeats its faults:\n" + "\n".join(
        faults[:20]
    )


def test_a_history_with_memcached(tmp_path: Path) -> None:
    faults = run(tmp_path, 1, ROUNDS, 0.1, memcached=True)
    assert not faults, "\n".join(faults[:20])


@pytest.mark.parametrize("flaw", [no_back_off_limit, markers_are_left])
def test_a_history_reports_a_flaw(tmp_path: Path, flaw: Callable[[Any], None]) -> None:
    assert shows(tmp_path, flaw)


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
        ([read(2, 900)], "no process"),
        ([read(4, 900)], "no process"),
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


# Progress


def failure(began: int, passed: bool = False, ports: int = 0, key: str = "k") -> Failure:
    return Failure("a", "a1", "get", key, began, began + 10, passed, {ports}, "why")


@pytest.mark.parametrize(
    "failures, fault",
    [
        ([failure(95), failure(299)], ""),
        ([failure(301)], "without a cause"),
        ([failure(80)], "without a cause"),
        ([failure(2000, passed=True)], ""),
        ([failure(550, key="slow1")], ""),
        ([failure(550)], "without a cause"),
        # Over connections that were half-open at 1,000.
        ([failure(1010, True, 7), failure(1015, True, 8)], ""),
        ([failure(1010, True, 7), failure(1025, True, 8)], "a dead connection"),
        ([failure(1010, True, 7), failure(1025, True, 9)], ""),
    ],
)
def test_failures(failures: list[Failure], fault: str) -> None:
    progress = Progress()
    progress.causes = [Cause("", 100, 200), Cause("b", 80, 4000), Cause("a", 500, 600, "slow")]
    progress.half_open = [HalfOpen("a", 1000, {7, 8})]
    progress.failures = failures
    found = check_failures(progress, BOUND)
    assert [fault in each for each in found] == ([True] if fault else [])


@pytest.mark.parametrize(
    "process, ended, passed, excused",
    [
        ("a1", 301, False, True),
        ("a1", 290, False, False),
        ("a1", 290, True, True),
        ("a1", 190, True, False),
        ("a2", 301, True, False),
    ],
)
def test_failures_beside_and_after_a_call_that_connects(process: str, ended: int, passed: bool, excused: bool) -> None:
    progress = Progress()
    progress.failures = [failure(300)]
    progress.connected = [Connected("a", process, 100, ended, passed)]
    assert bool(check_failures(progress, BOUND)) is not excused


def load(began: int, machine: str = "a", process: str = "a1", **more: Any) -> Loaded:
    made = Loaded(machine, process, "c", began, began, began + 5, began + 8, "value", False, 0)
    return made._replace(**more)


@pytest.mark.parametrize(
    "loads, fault",
    [
        ([load(100)], ""),
        ([load(100), load(250)], "the remote had"),
        # The remote loses it at 300.
        ([load(100), load(310)], ""),
        ([load(100), load(250, error=True)], ""),
        ([load(100), load(150, error=True)], "the near cache had"),
        ([load(100, error=True), load(150)], "the near cache had"),
        ([load(100, error=True), load(201)], ""),
        # A gap at 420.
        ([load(400, error=True), load(430)], ""),
        ([load(100), load(250, machine="b")], ""),
        ([load(100, machine="b"), load(105), load(250)], ""),
        ([load(80, machine="b", outcome="killed"), load(100), load(250)], ""),
        ([load(80, machine="b", outcome="failed"), load(100), load(250)], "the remote had"),
        ([load(100), load(103)], "at a time"),
        ([load(100), load(103, process="a2")], ""),
        ([load(100, outcome="failed"), load(110)], ""),
        ([load(100, outcome="failed"), load(110, called=90, waited_since=104)], "waited for one that failed"),
        ([load(100, outcome="cancelled"), load(110, called=90, waited_since=104)], ""),
        # Nothing is known of what this one keeps without the remote.
        ([load(100, "full", error=True), load(150, "full")], ""),
    ],
)
def test_loads(loads: list[Loaded], fault: str) -> None:
    progress = Progress()
    progress.changes = [Change("", "c", 300, 301), Change("a", "", 420, 421), Change("", "d", 0, 1000)]
    progress.loads = loads
    found = check_loads(progress, BOUND, ["full"])
    assert [fault in each for each in found] == ([True] if fault else [])


@pytest.mark.parametrize(
    "of, left", [(load(100), False), (load(100, outcome="killed"), True), (load(100, error=True), True)]
)
def test_markers(of: Loaded, left: bool) -> None:
    progress = Progress()
    progress.loads = [of]
    assert bool(check_markers(progress, BOUND, ["c"], 1000)) is not left
    assert check_markers(progress, BOUND, ["other"], 1000)


@pytest.mark.parametrize(
    "run, stops, faults",
    [
        (Run("a", "a1", "k", 0, 1000), [], 0),
        (Run("a", "a1", "k", 0, 600), [], 0),
        (Run("a", "a1", "k", 0, 400), [], 1),
        (Run("b", "b1", "k", 0, 1000), [], 1),
        (Run("a", "a1", "k", 0, 1000), [Stop("a1", 200, 900)], 1),
        (Run("a", "a1", "k", 0, 1000), [Stop("a2", 200, 900)], 0),
        (Run("a", "a1", "k", 0, 1000), [Stop("a1", 30, 900)], 0),
    ],
)
def test_waits(run: Run, stops: list[Stop], faults: int) -> None:
    progress = Progress()
    progress.runs, progress.stops = [run], stops
    progress.loaders["a1", "k"] = [(20, 50)]
    progress.waits = [Waited("a", "k", 100, 1000, 900e-9)]
    assert len(check_waits(progress, 450e-9)) == faults


# Reads of keys that do not change meanwhile


Case = Callable[[Any], str | None]


def kept(tier: Any, during: Callable[[], object]) -> bool:
    """Whether the near cache keeps the value that is read."""
    fetch = tier._remote.fetch
    with pytest.MonkeyPatch.context() as patch:

        def fetch_late(*arguments: Any, **named: Any) -> Any:
            patch.undo()
            fetched = yield from fetch(*arguments, **named)
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
    evaluate_case(SUITE, name_of(case), kind)


def name_of(case: Case) -> str:
    return case.__name__.replace("_", " ")


def test_all_known_failures_are_cases() -> None:
    assert known_failures(SUITE).keys() <= set(map(name_of, CASES))
