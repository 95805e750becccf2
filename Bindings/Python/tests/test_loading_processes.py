"""``get_or_load``: of all processes that miss a key, one loads it."""

from __future__ import annotations

import signal
import time
from pathlib import Path

from loaders import PATIENCE
from support import SMALL, let_go, start_child

import shale

STAMPEDE = """
    import sys, time, shale

    directory, log, name = sys.argv[1:]

    def load(key):
        with open(log, "a") as file:
            file.write(f"{key}\\n")
        time.sleep(0.005)
        return f"value {key}"

    with shale.Cache(directory) as cache:
        print("ready", flush=True)
        sys.stdin.readline()
        for key in range(40):
            assert cache.get_or_load(key, lambda: load(key)) == f"value {key}"
"""


def test_processes_load_once(cache: shale.Cache, directory: Path, tmp_path: Path) -> None:
    log = tmp_path / "loads"
    children = [start_child(STAMPEDE, directory, log, number) for number in range(4)]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    let_go(children)
    assert sorted(map(int, log.read_text().split())) == list(range(40))
    assert len(cache) == 40


HOLD = """
    import sys, time, shale

    def load():
        print("loading", flush=True)
        time.sleep(600)

    shale.Cache(sys.argv[1]).get_or_load("k", load, lease=float(sys.argv[2]))
"""


def test_the_lease_of_a_killed_process_ends_with_it(cache: shale.Cache, directory: Path) -> None:
    child = start_child(HOLD, directory, 600)
    assert child.stdout is not None
    assert child.stdout.readline() == "loading\n"
    assert not cache.lease("k").granted
    child.send_signal(signal.SIGKILL)
    assert child.wait(PATIENCE) == -signal.SIGKILL
    child.stdout.close()
    with cache.lease("k") as lease:
        assert lease.granted
    assert cache.get_or_load("k", lambda: "after", wait=0) == "after"


def test_the_lease_of_another_process_holds_as_long_as_it_lasts(
    cache: shale.Cache, directory: Path
) -> None:
    cache.set("stale", "old", max_age=0, stale=600)
    child = start_child(HOLD, directory, 600)
    assert child.stdout is not None
    try:
        assert child.stdout.readline() == "loading\n"
        begun = time.monotonic()
        assert cache.get_or_load("k", lambda: "own", wait=0.5) == "own"
        assert time.monotonic() - begun >= 0.5
        with shale.Cache(directory, capacity=SMALL) as other:
            assert other["k"] == "own"
    finally:
        child.kill()
        child.wait(PATIENCE)
        child.stdout.close()
