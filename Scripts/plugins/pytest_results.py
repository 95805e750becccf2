"""A pytest plugin that writes what each test did, by node ID: `--results FILE` (Scripts/runners.py)."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

# By node ID: what the test did, what it printed, and the part that may show a fault of the product.
results: "dict[str, dict[str, str]]" = {}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--results", type=Path)


def printed(report: "pytest.TestReport | pytest.CollectReport") -> "tuple[str, str]":
    """What a failure printed, and the part without the source of the test."""
    text = report.longreprtext
    captured = "\n".join(f"{title}:\n{content}" for title, content in report.sections)
    errors = re.findall(r"^E .*", text, re.MULTILINE)
    return f"{text}\n{captured}".strip(), "\n".join([*(errors or [text]), captured])


def add(report: "pytest.TestReport | pytest.CollectReport", outcome: str, output: str = "", evidence: str = "") -> None:
    """A failure stays, whatever is reported of the test beside it."""
    result = results.setdefault(report.nodeid, {"outcome": outcome, "output": "", "evidence": ""})
    if outcome == "failed" or result["outcome"] == "passed":
        result["outcome"] = outcome
    result["output"] += output
    result["evidence"] += evidence


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        add(report, "failed", *printed(report))
    elif report.skipped:
        why = report.longrepr[2] if isinstance(report.longrepr, tuple) else getattr(report, "wasxfail", "")
        add(report, "skipped", str(why))
    elif report.when == "call":
        add(report, "passed")


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        add(report, "failed", *printed(report))


def pytest_sessionfinish(session: Any) -> None:
    if path := session.config.getoption("--results"):
        path.write_text(json.dumps(results))
