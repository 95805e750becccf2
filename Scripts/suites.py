"""Runs a suite of tests, and each test that fails once more, alone. ctest, pytest and `swift test` report what each of
their tests did; any other program is one test.

A test that fails twice fails the suite. One that passes the second time is *unstable*: a note (notes.py) has what it
printed both times. But it fails the suite as well if it is one of Tests/oracles, or if the first run shows that the
product is at fault (FINAL).
"""

import contextlib
import os
import re
import shlex
import subprocess
import tempfile
import xml.etree.ElementTree as xml
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import notes
from session import end_session

ROOT = Path(__file__).resolve().parent.parent

# What no second run excuses. Tests/C/support/check.h prints the first one for a wrong, lost or removed value.
FINAL = {
    "a wrong value": r"\boracle: ",
    "a crash": r"\*\*\*Exception|Subprocess (aborted|killed)|SIG(SEGV|ABRT|BUS|ILL|FPE|TRAP)\b|[Ss]egmentation fault"
    r"|\bcrash: |Fatal (Python )?error: |with unexpected signal|\bassert -\d+ == ",
    "a hang": r"\*\*\*Timeout|watchdog: |TimeoutExpired|Time limit was exceeded|: stopped after \d+ minutes",
    "a sanitizer's report": r"(Address|Leak|Thread|UndefinedBehavior)Sanitizer|: runtime error: |^==\d+== ",
}

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
    passed: int = 0
    failures: dict[str, str] = field(default_factory=dict)  # what each test printed
    skipped: dict[str, str] = field(default_factory=dict)  # why


def is_oracle(test: str, runner: "Runner | None") -> bool:
    lines = (ROOT / "Tests" / "oracles").read_text().splitlines()
    listed = [Path(line) for line in lines if line and not line.startswith("#")]
    return runner is not None and any(runner.is_in(test, path) for path in listed)


def final(output: str) -> "str | None":
    """What in a first run's output no second run excuses."""
    # pytest shows the test's source as well, which may name any of these.
    said = re.findall(r"^E .*", output, re.MULTILINE)
    text = "\n".join(said) or output
    return next((what for what, pattern in FINAL.items() if re.search(pattern, text, re.MULTILINE)), None)


def tail(output: str) -> str:
    lines = output.strip().splitlines()
    return "\n".join(lines if len(lines) <= LINES else [f"({len(lines) - LINES} lines)", *lines[-LINES:]])


def both(first: str, second: str) -> str:
    return f"the first time:\n{tail(first)}\nthe second time:\n{tail(second) or 'nothing'}"


# Reports in the form of JUnit


def attribute(case: xml.Element, name: str) -> str:
    return case.get(name, "")


def said(case: xml.Element) -> str:
    texts = (f"{each.get('message', '')}\n{each.text or ''}".strip() for each in case)
    return "\n".join(text for text in texts if text)


def skip_of(case: xml.Element) -> "str | None":
    skipped = case.find("skipped")
    return None if skipped is None else said(case)


@dataclass(frozen=True)
class Runner:
    report: Callable[[str], list[str]]  # the options that write a report
    file: str  # the report's name if these name "report.xml"
    name: Callable[[xml.Element], str]
    only: Callable[[str], list[str]]  # the arguments that choose one test
    is_in: Callable[[str, Path], bool]  # whether a file has the test


def pytest_name(case: xml.Element) -> str:
    """Of a report of the family xunit1, as pytest takes it on its command line."""
    file = attribute(case, "file")
    module = file.removesuffix(".py").replace("/", ".")
    classes = attribute(case, "classname").removeprefix(module).strip(".").split(".")
    return "::".join([file, *filter(None, classes), attribute(case, "name")])


def swift_name(case: xml.Element) -> str:
    """As `--filter` compares it: Module.Suite/Suite/function()."""
    module, *suites = attribute(case, "classname").split(".")
    return f"{module}.{'/'.join([*suites, attribute(case, 'name')])}"


RUNNERS = {
    "ctest": Runner(
        lambda path: ["--output-on-failure", "--output-junit", path],
        "report.xml",
        lambda case: attribute(case, "name"),
        lambda name: ["-R", f"^{re.escape(name)}$"],
        # A variant of a test has its name and one more word.
        lambda name, path: path.stem in (name, name.rpartition("_")[0]),
    ),
    "pytest": Runner(
        lambda path: ["-rs", "-o", "junit_family=xunit1", f"--junit-xml={path}"],
        "report.xml",
        pytest_name,
        lambda name: [name],
        lambda name, path: path.match(name.partition("::")[0]),
    ),
    "swift": Runner(
        lambda path: ["--xunit-output", path],
        "report-swift-testing.xml",
        swift_name,
        lambda name: ["--skip-build", "--filter", f"^{re.escape(name)}/"],
        lambda name, path: path.match(name.partition("/")[0].replace(".", "/") + ".swift"),
    ),
}


def run_once(suite: Suite, test: "str | None" = None) -> Run:
    """Runs a suite, or one of its tests."""
    runner = suite.runner
    if not runner:
        run = execute(suite, [*suite.command, *suite.tests])
        if run.status == 0:
            run.passed = 1
        elif run.status is not None:
            run.failures[suite.name] = run.output
        return run
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "report.xml")
        tests = suite.tests if test is None else runner.only(test)
        run = execute(suite, [*suite.command, *runner.report(path), *tests])
        with contextlib.suppress(FileNotFoundError, xml.ParseError):  # nothing is counted then: see problem_of()
            count(runner, run, xml.parse(os.path.join(folder, runner.file)).getroot())
    return run


def execute(suite: Suite, command: list[str]) -> Run:
    # A file: a process left behind by a suite would keep a pipe open.
    with tempfile.TemporaryFile() as printed:
        process = subprocess.Popen(
            command,
            cwd=suite.folder,
            env={**os.environ, **suite.environment},
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


def count(runner: Runner, run: Run, report: xml.Element) -> None:
    # How a C test failed: its report lacks that.
    ends = dict(
        re.findall(r"^ *\d+/\d+ Test +#\d+: (\S+) \.* *([\w ]*\*\*\*.*?) +[\d.]+ sec$", run.output, re.MULTILINE)
    )
    for case in report.iter("testcase"):
        name, end = runner.name(case), ends.get(attribute(case, "name"), "")
        why = skip_of(case)
        if why is not None and not end.startswith("***Not Run"):
            run.skipped[name] = why
        elif end or case.find("failure") is not None or case.find("error") is not None:
            run.failures[name] = f"{end}\n{said(case)}".strip()
        elif attribute(case, "status") != "disabled":
            run.passed += 1


def unfinished(output: str) -> str:
    """The tests in Swift that have begun and not ended."""
    names = re.findall(r"^◇ Test (?!run |case )(.+) started\.$", output, re.MULTILINE)
    done = set(re.findall(r"^[✔✘] Test (.+?)(?: with \d+ test cases?)? (?:passed|failed) after", output, re.MULTILINE))
    return ", ".join(name for name in names if name not in done) or "none"


def problem_of(suite: Suite, run: Run) -> "str | None":
    """What is wrong with a run beside its failed tests."""
    if run.status is None:
        return f"stopped after {suite.minutes} minutes; begun and not ended: {unfinished(run.output)}"
    if not run.passed and not run.failures:
        return f"no test ran (exit status {run.status}); begun and not ended: {unfinished(run.output)}"
    # A suite that crashes after its last test.
    return f"ended with the exit status {run.status}" if run.status and not run.failures else None


def second_run(
    suite: str, test: str, output: str, run: Callable[[str], Run], runner: "Runner | None" = None
) -> "str | None":
    """What a failed test printed if it fails for good, by its first run or by another; None if it is unstable."""
    if reason := "a fault, as one of Tests/oracles," if is_oracle(test, runner) else final(output):
        print(f"{suite}: {test} shows {reason}: not run again", flush=True)
        return output
    again = run(test)
    if again.status or again.status is None or not again.passed:
        return again.failures.get(test, again.output)
    print(f"{suite}: {test} is unstable: it passed alone", flush=True)
    notes.add("unstable", f"{suite}: {test}", both(output, again.output))
    return None


def decide(suite: Suite, first: Run) -> "tuple[int, dict[str, str]]":
    """How many tests passed, and what those that failed printed. Runs them again: nothing else should run meanwhile."""
    failures = {}
    for test, output in first.failures.items():
        failure = second_run(suite.name, test, output, partial(run_once, suite), suite.runner)
        if failure is not None:
            failures[test] = failure
    passed = first.passed + len(first.failures) - len(failures)
    if problem := problem_of(suite, first):
        failures[suite.name] = problem
    return passed, failures


def report(suite: Suite, run: Run) -> str:
    """The output without the lines of tests that passed, and the skipped tests."""
    lines = [line for line in run.output.splitlines() if not line.startswith(("◇", "[", "✔ Test "))]
    if suite.runner is not RUNNERS["pytest"]:  # which names them itself
        lines += [f"skipped: {name}: {why}" for name, why in run.skipped.items()]
    return "\n".join([f"== {suite.name}: {shlex.join([*suite.command, *suite.tests])}", *lines])


# The sessions that a signal has to end.
sessions: set[int] = set()


def end(signum: int, _: object) -> None:
    for session in list(sessions):
        end_session(session)
    os._exit(128 + signum)
