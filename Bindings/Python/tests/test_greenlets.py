"""Under gevent and eventlet, a call that waits for a load lets the others run."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import run_child

GEVENT = """
import gevent.monkey
gevent.monkey.patch_all()
from gevent import spawn

def wait(greenlet):
    return greenlet.get(timeout=300)
"""

EVENTLET = """
import eventlet
eventlet.monkey_patch()
from eventlet import spawn

def wait(greenlet):
    with eventlet.Timeout(60):
        return greenlet.wait()
"""

COMMON = """
import sys, time
import shale
from shale._store import heartbeat, leases

cache = shale.Cache(sys.argv[1])
ticks = 0

def tick():
    global ticks
    while True:
        ticks += 1
        time.sleep(0.001)

ticking = spawn(tick)

def until(condition):
    while not condition():
        time.sleep(0.001)

def never():
    raise AssertionError
"""

WAITING = """
asked = 0

def slow():
    # Not before both others wait, and the rest has gone on for a while.
    until(lambda: asked == 2)
    before = ticks
    until(lambda: ticks > before + 50)
    return 1

def ask():
    global asked
    asked += 1
    return cache.get_or_load("k", never, lease=3600)

first = spawn(cache.get_or_load, "k", slow, lease=3600)
time.sleep(0)
others = [spawn(ask), spawn(ask)]
print([wait(greenlet) for greenlet in (first, *others)])
"""

HEARTBEAT = """
renewals = []
renew = leases.HeldLease.renew

def counted(lease):
    renewals.append(renew(lease))
    return renewals[-1]

leases.HeldLease.renew = counted
heartbeat._SHARE = 1 / 500

def slow():
    until(lambda: len(renewals) > 2)
    return all(renewals)

print(wait(spawn(cache.get_or_load, "k", slow, lease=60)))
"""

LIMITS = """
cache.set("k", "old", max_age=0, stale=600)
go = False

def slow():
    until(lambda: go)
    return "new"

print(wait(spawn(cache.get_or_load, "k", slow, soft_timeout=0.01)))
go = True
until(lambda: cache.get("k") == "new")
try:
    wait(spawn(cache.get_or_load, "other", lambda: until(lambda: False), timeout=0.01))
except shale.LoadTimeoutError as error:
    print(error.key)
"""

CHAIN = """
def load():
    return cache.get_or_load("b", lambda: cache.get_or_load("a", never))

try:
    wait(spawn(cache.get_or_load, "a", load))
except shale.DeadlockError as error:
    print(error.chain)
"""

LOCK = """
steps = []

def work(number):
    with cache.lock("k", timeout=300) as lock:
        steps.append(number)
        before = ticks
        until(lambda: ticks > before + 20)
        steps.append(number)
        assert lock.held

for greenlet in [spawn(work, number) for number in range(3)]:
    wait(greenlet)
print(steps[::2] == steps[1::2], len(steps))
"""


@pytest.mark.parametrize("library", [GEVENT, EVENTLET], ids=["gevent", "eventlet"])
@pytest.mark.parametrize(
    ("script", "printed"),
    [
        (WAITING, "[1, 1, 1]\n"),
        (HEARTBEAT, "True\n"),
        (LIMITS, "old\nother\n"),
        (CHAIN, "('a', 'b', 'a')\n"),
        (LOCK, "True 6\n"),
    ],
    ids=["waiting", "heartbeat", "limits", "chain", "lock"],
)
def test_greenlets(directory: Path, library: str, script: str, printed: str) -> None:
    assert run_child(library + COMMON + script, directory) == printed
