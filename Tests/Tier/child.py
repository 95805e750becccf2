"""A process of a machine: opens its tier, and answers each line, an expression, with its value."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import redis
from shale.tier import RemoteError, Tier

options = eval(sys.argv[1])
THREADS = options.pop("threads", 1)
client = redis.Redis(port=options.pop("port"))
tier = Tier(options.pop("directory"), client, **{"timeout": 5.0, **options})


def together(work: Callable[[], Any]) -> list[Any]:
    results: list[Any] = []
    threads = [threading.Thread(target=lambda: results.append(work())) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


names = {"tier": tier, "together": together, "RemoteError": RemoteError}
for line in sys.stdin:
    value = eval(line, names)
    print(repr(tuple(value) if type(value).__name__ == "Result" else value), flush=True)
