"""What ctest, pytest and `swift test` report of their tests."""

import json
import re
import xml.etree.ElementTree as xml
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Result:
    outcome: str  # passed, failed, skipped
    output: str = ""  # or why it was skipped
    evidence: str = ""  # the part that may show a fault of the product


@dataclass(frozen=True)
class Runner:
    report: Callable[[Path], list[str]]  # the options that write a report
    read: Callable[[Path, str], dict[str, Result]]  # the results, from the report and the output
    only: Callable[[str], list[str]]  # the arguments that choose one test
    is_in: Callable[[str, Path], bool]  # whether a file has the test
    failed: int  # the exit status if tests have failed and nothing else is wrong


def cases(path: Path) -> list[xml.Element]:
    # Control characters, which a test may print, are no XML.
    text = re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1f]", "?", path.read_text(errors="replace"))
    return list(xml.fromstring(text.encode()).iter("testcase"))


def printed(case: xml.Element) -> str:
    texts = (f"{each.get('message', '')}\n{each.text or ''}".strip() for each in case)
    return "\n".join(text for text in texts if text)


def put(results: dict[str, Result], name: str, outcome: str, output: str) -> None:
    """Tests of one name, or a test that is reported twice, are one result: failed if one of them is."""
    known = results.setdefault(name, Result(outcome))
    if outcome == "failed" or known.outcome == "skipped":
        known.outcome = outcome
    known.output = known.evidence = f"{known.output}\n{output}".strip()


# ctest

# How a test failed, which the report lacks.
END = re.compile(r"^ *\d+/\d+ Test +#\d+: (.+?) \.{2,} *([\w ]*\*\*\*.*?) +[\d.]+ sec$", re.MULTILINE)


def read_ctest(path: Path, output: str) -> dict[str, Result]:
    ends = END.findall(output)
    results: dict[str, Result] = {}
    for case in cases(path):
        name, said = case.get("name", ""), printed(case)
        if case.get("status") == "disabled":
            continue
        how = "\n".join(end for test, end in ends if test == name and not end.startswith("***Skipped"))
        is_failed = how or case.find("failure") is not None
        outcome = "failed" if is_failed else "passed" if case.find("skipped") is None else "skipped"
        put(results, name, outcome, f"{how}\n{said}".strip())
    return results


# pytest


def read_pytest(path: Path, _: str) -> dict[str, Result]:
    return {name: Result(**result) for name, result in json.loads(path.read_text()).items()}


# Swift Testing


def swift_name(case: xml.Element) -> str:
    """As `--filter` compares it: Module.Suite/Suite/function()."""
    module, *suites = case.get("classname", "").split(".")
    return f"{module}.{'/'.join([*suites, case.get('name', '')])}"


def read_swift(path: Path, _: str) -> dict[str, Result]:
    results: dict[str, Result] = {}
    for case in cases(path.with_name(f"{path.name}-swift-testing.xml")):
        kinds = [each.tag for each in case]
        outcome = "failed" if "failure" in kinds else "skipped" if "skipped" in kinds else "passed"
        put(results, swift_name(case), outcome, printed(case))
    return results


def is_in_swift(name: str, path: Path) -> bool:
    module, _, rest = name.partition(".")
    return path.parent.name == module and path.stem in rest.split("/")[:-1]


RUNNERS = {
    "ctest": Runner(
        lambda path: ["--output-on-failure", "--test-output-size-failed", "10000000", "--output-junit", str(path)],
        read_ctest,
        lambda name: ["-R", f"^{re.escape(name)}$"],
        # A variant of a test has its name and one more word.
        lambda name, path: path.stem in (name, name.rpartition("_")[0]),
        failed=8,
    ),
    "pytest": Runner(
        lambda path: ["-rs", "-p", "pytest_results", f"--results={path}"],
        read_pytest,
        lambda name: [name],
        lambda name, path: path.match(name.partition("::")[0]),
        failed=1,
    ),
    "swift": Runner(
        lambda path: ["--xunit-output", f"{path}.xml"],
        read_swift,
        lambda name: ["--skip-build", "--filter", f"^{re.escape(name)}/"],
        is_in_swift,
        failed=1,
    ),
}
PLUGINS = Path(__file__).resolve().parent / "plugins"  # of pytest
