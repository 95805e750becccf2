"""``python -m shale demo``: a short program, each line beside its result."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from typing import Any

import shale

PROGRAM = """\
# A cache is a directory. Any number of threads and processes may open it:
cache = shale.Cache(path, capacity="64MiB")
cache["user:7"] = {"name": "Ada", "visits": 3}
cache["user:7"]
cache.get("user:8")

# A value has a maximum age, in seconds:
cache.set("weather", "rain", max_age=0.05)
time.sleep(0.1)
cache.get("weather")

# A function's results are kept:
calls = []
square = cache.memoize(name="square")(lambda n: calls.append(n) or n * n)
square(12), square(12), calls

# python() runs programs. Four miss a key at once: one loads it, and all get its value.
python('print(shale.Cache(path).get_or_load("k", lambda: f"by {os.getpid()}"))', times=4)

# A program stores a value and is killed:
python('shale.Cache(path)["last"] = "words"; os.kill(os.getpid(), signal.SIGKILL)')
cache.close()
cache = shale.Cache(path)
cache["last"]

# Values are compressed. Bytes of 10,000 tables as text, and on disk:
tables = [[{"id": n, "row": i, "score": n * i % 97} for i in range(20)] for n in range(10_000)]
cache.set_many(dict(enumerate(tables)))
len(repr(tables)), cache.volume()
"""


def add_to(commands: argparse._SubParsersAction[Any]) -> None:
    """Adds the command's parser."""
    parser = commands.add_parser(
        "demo",
        help="show what a cache does",
        description="Runs a short program in a temporary directory, which it removes, and prints "
        "each line beside its result.",
    )
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory(prefix="shale-demo-") as directory:
        path = os.path.join(directory, "cache")
        print(f"import os, signal, time\nimport shale\npath = {path!r}  # removed at the end\n")
        names: dict[str, Any] = {"shale": shale, "time": time, "path": path}
        names["python"] = lambda program, times=1: _programs(program, path, times)
        try:
            for line in PROGRAM.splitlines():
                _show(line, names)
        finally:
            if "cache" in names:
                names["cache"].close()
    return 0


def _show(line: str, names: dict[str, Any]) -> None:
    """Prints a line, runs it, and prints the value of an expression beside it."""
    print(line, end="", flush=True)
    try:
        expression = compile(line, "demo", "eval")
    except SyntaxError:  # an assignment, a comment, or nothing
        exec(line, names)
        print()
    else:
        value = eval(expression, names)
        print("" if value is None and ".get(" not in line else f"  # {value!r}")


def _programs(program: str, path: str, times: int) -> list[str]:
    """Runs a program several times at once. Returns what each printed, or the signal that
    killed it."""
    script = f"import os, signal, shale; path = {path!r}; {program}"
    found = os.pathsep.join(sys.path)  # where this process finds the package
    children = [
        subprocess.Popen(
            [sys.executable, "-c", script],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": found},
        )
        for _ in range(times)
    ]
    told = [child.communicate()[0].strip() for child in children]
    codes = [child.returncode for child in children]
    return [f"killed by signal {-code}" if code < 0 else out for code, out in zip(codes, told)]
