"""The Python program: opens the cache, then executes commands from stdin until it ends."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

from cache_client import CacheClient
from demo.board import Board
from demo.corpus import Corpus
from steps import Steps
from talk import say

LIFETIME_SECONDS = 300  # ends this program even if the orchestrator hangs


def main() -> None:
    corpus, board, directory, capacity = sys.argv[1:]
    signal.alarm(LIFETIME_SECONDS)
    source = Corpus(Path(corpus))
    start = time.perf_counter_ns()
    cache = CacheClient(directory, int(capacity))
    say("ready", f'{{"open_ns": {time.perf_counter_ns() - start}}}')
    steps = Steps(source, Board(Path(board)), cache)
    for line in sys.stdin:
        obey(steps, line.split())
    cache.close()


def obey(steps: Steps, words: list[str]) -> None:
    command, *arguments = words
    if command == "follow":
        steps.follow()
    elif command == "compare":
        steps.compare(arguments[0])
    elif command == "rewrite":
        steps.rewrite(int(arguments[0]), int(arguments[1]))
    elif command == "age":
        steps.age(float(arguments[0]))
    else:
        raise SystemExit(f"unknown command: {' '.join(words)}")


main()
