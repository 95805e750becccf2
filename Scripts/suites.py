"""Runs a suite of tests, and each test that fails once more, alone. ctest, pytest and `swift test` report what each of
their tests did (runners.py); any other program is one test.

A test that fails twice has failed. One that passes the second time is *unstable*: a note (notes.py) has what it printed
both times. A test of Tests/oracles, or one whose first run shows a fault of the product (FINAL), is not run again: it
has failed.
"""

import contextlib
import os
import re
import shlex
import signal
import subprocess
import tempfile
import xml.etree.ElementTree as xml
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import notes
from runners import PLUGINS, RUNNERS, Result, Runner
from session import end_session

ROOT = Path(__file__).resolve().parent.parent

# The signals of a crash, as shells, Python and ctest name or number them.
SIGNALS = "SEGV|ABRT|BUS|ILL|FPE|TRAP"
NUMBERS = "4|5|6|7|8|11"

# What shows a fault of the product, of which no second run says that it is gone. Tests/C/support/check.h prints the
# first one for a wrong, lost or removed value.
FINAL = {
    "a wrong value": r"\boracle: ",
    "a crash": rf"\*\*\*Exception|Subprocess (?:aborted|killed)|\bSIG(?:{SIGNALS})\b|\bcrash: "
    r"|[Ss]egmentation fault|\bAborted\b|\bBus error\b|\bIllegal instruction\b|\bFloating point exception\b"
    r"|Trace/breakpoint trap|core dumped|Fatal (?:Python )?error: |unexpected signal|Program crashed|BrokenProcessPool"
    rf"|assert (?:not )?-\d+\b|where -(?:{NUMBERS}) = .*returncode|-(?:{NUMBERS})\b.* == \[0",
    "a hang": r"\*\*\*Timeout|watchdog: |TimeoutExpired|Time limit was exceeded|stopped after \d+ (?:minutes|hours)"
    r"|where True = .*is_alive",
    "a sanitizer's report": r"(?:Address|Leak|Thread|UndefinedBehavior)Sanitizer|: runtime error: |^==\d+== ",
}

# What the whole output of `swift test` shows, whichever tests it names.
UNATTRIBUTED = re.compile(r"Test «unknown» recorded an issue|with unexpected signal|\*\*\* Program crashed")

# Of an output, in a note.
LINES = 30


@dataclass
class Suite:
    name: str
    command: list[str]
    tests: list[str] = field(default_factory=list)  # further arguments, which choose some
    environment: dict[str, str] = field(default_factory=dict)
    folder: Path = ROOT
    minutes: int = 40  # twice as long as any suite has taken on a machine with other load
    prepare: Callable[[], None] = lambda: None

    @property
    def runner(self) -> "Runner | None":
        names = set(map(os.path.basename, self.command))
        return next((runner for name, runner in RUNNERS.items() if name in names), None)


@dataclass
class Run:
    """One run of a suite, or of one of its tests."""

    output: str
    status: "int | None"  # None: it was stopped
    results: dict[str, Result] = field(default_factory=dict)

    def named(self, outcome: str) -> dict[str, Result]:
        return {name: result for name, result in self.results.items() if result.outcome == outcome}


def is_oracle(test: str, runner: "Runner | None") -> bool:
    lines = (ROOT / "Tests" / "oracles").read_text().splitlines()
    listed = [Path(line) for line in lines if line and not line.startswith("#")]
    return runner is not None and any(runner.is_in(test, path) for path in listed)


def final(evidence: str) -> "str | None":
    return next((what for what, pattern in FINAL.items() if re.search(pattern, evidence, re.MULTILINE)), None)


def tail(output: str) -> str:
    lines = output.strip().splitlines()
    return "\n".join(lines if len(lines) <= LINES else [f"({len(lines) - LINES} lines)", *lines[-LINES:]])


def run_once(suite: Suite, test: "str | None" = None) -> Run:
    """Runs a suite, or one of its tests."""
    runner = suite.runner
    if not runner:
        run = execute(suite, [*suite.command, *suite.tests])
        how = f"crash: ended by signal {-run.status}\n" if run.status and run.status < 0 else ""
        outcome = "passed" if run.status == 0 else "failed"
        run.results[suite.name] = Result(outcome, how + run.output, how + run.output)
        return run
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report")
        tests = suite.tests if test is None else runner.only(test)
        run = execute(suite, [*suite.command, *runner.report(report), *tests])
        # Without a report nothing is counted: see problem_of().
        with contextlib.suppress(FileNotFoundError, xml.ParseError):
            run.results = runner.read(report, run.output)
    return run


def execute(suite: Suite, command: list[str]) -> Run:
    environment = {**os.environ, **suite.environment}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [environment.get("PYTHONPATH"), str(PLUGINS)]))
    # A file: a process left behind by a suite would keep a pipe open.
    with tempfile.TemporaryFile() as printed:
        process = subprocess.Popen(
            command,
            cwd=suite.folder,
            env=environment,
            stdout=printed,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        sessions.add(process.pid)
        status = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = process.wait(suite.minutes * 60)
        end_session(process.pid)
        process.wait()
        sessions.discard(process.pid)
        printed.seek(0)
        return Run(printed.read().decode(errors="replace"), status)


def unfinished(output: str) -> str:
    """The tests in Swift that have begun and not ended."""
    names = re.findall(r"^◇ Test (?!run |case )(.+) started\.$", output, re.MULTILINE)
    done = set(re.findall(r"^[✔✘━] Test (.+?)(?: with \d+ test cases?)? (?:passed|failed) after", output, re.MULTILINE))
    found = [name for name in names if name not in done]
    return f"; begun and not ended: {', '.join(found)}" if found else ""


def problem_of(suite: Suite, run: Run) -> "str | None":
    """What is wrong with a run beside its failed tests."""
    passed, failed = run.named("passed"), run.named("failed")
    if run.status is None:
        return f"stopped after {suite.minutes} minutes{unfinished(run.output)}"
    if not passed and not failed:
        return f"no test ran (exit status {run.status}){unfinished(run.output)}"
    if not suite.runner:
        return None
    if found := UNATTRIBUTED.search(run.output):
        return f"{found[0]}{unfinished(run.output)}"
    # As of a suite that crashes after its last test, or is ended by one.
    if run.status != (suite.runner.failed if failed else 0):
        return f"ended with the exit status {run.status}{unfinished(run.output)}"
    return None


def second_run(
    suite: str, test: str, result: Result, run: Callable[[str], Run], runner: "Runner | None" = None
) -> "str | None":
    """What a failed test printed if it fails for good, by its first run or by another; None if it is unstable."""
    if is_oracle(test, runner):
        print(f"{suite}: {test} is one of Tests/oracles: not run again", flush=True)
        return result.output
    if reason := final(result.evidence):
        print(f"{suite}: {test} shows {reason}: not run again", flush=True)
        return result.output
    again = run(test)
    if again.status != 0 or not again.named("passed"):
        return again.results[test].output if test in again.results else again.output
    print(f"{suite}: {test} is unstable: it passed alone", flush=True)
    first, second = tail(result.output) or "nothing", tail(again.output) or "nothing"
    notes.add("unstable", f"{suite}: {test}", f"the first time:\n{first}\nthe second time:\n{second}")
    return None


def decide(suite: Suite, first: Run) -> "tuple[int, dict[str, str]]":
    """How many tests passed, and what those that failed printed. Runs them again: nothing else should run meanwhile."""
    failures = {}
    for test, result in first.named("failed").items():
        failure = second_run(suite.name, test, result, partial(run_once, suite), suite.runner)
        if failure is not None:
            failures[test] = failure
    passed = len(first.named("passed")) + len(first.named("failed")) - len(failures)
    if problem := problem_of(suite, first):
        failures[f"{suite.name} as a whole"] = problem
    return passed, failures


def report(suite: Suite, run: Run) -> str:
    """The output without the lines of tests that passed, and the skipped tests."""
    lines = [line for line in run.output.splitlines() if not line.startswith(("◇", "[", "✔ Test "))]
    if suite.runner is not RUNNERS["pytest"]:  # which names them itself
        lines += [f"skipped: {name}: {result.output}" for name, result in run.named("skipped").items()]
    return "\n".join([f"== {suite.name}: {shlex.join([*suite.command, *suite.tests])}", *lines])


def run_alone(suite: Suite) -> int:
    """For a program that runs one suite: prints what came of it, and returns the exit status."""
    is_first = notes.begin()
    first = run_once(suite)
    print(report(suite, first), flush=True)
    passed, failures = decide(suite, first)
    for test, output in failures.items():
        print(f"\nfailed: {test}\n{output}")
    failed = len(failures) + (notes.show() if is_first else 0)
    print(f"\n{passed} passed, {failed} failed")
    return 1 if failed else 0


# The sessions that a signal has to end.
sessions: set[int] = set()


def end(signum: int, _: object) -> None:
    for session in list(sessions):
        end_session(session)
    notes.forget()
    os._exit(128 + signum)


def end_with_signals() -> None:
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, end)
