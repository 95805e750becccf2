"""A pytest plugin for the tests of other projects: tests that cannot pass (excluded.toml) have to fail, and all tests
are counted, by name if they do not pass."""

import json
import os
import tomllib
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parents[1]
ADAPTER = os.environ["SHALE_ADAPTER"]

counts = {"passed": 0, "failed": 0, "skipped": 0, "excluded": 0}
skipped: dict[str, str] = {}
unused: set[str] = set()
skipping: set[str] = set()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    excluded = tomllib.loads((HERE / "excluded.toml").read_text()).get(ADAPTER, {})
    reasons = {name: reason for reason, names in excluded.items() for name in names}
    unused.update(reasons)
    kept = []
    for item in items:
        name = item.nodeid.partition("/")[2]
        matching = [each for each in reasons if fnmatchcase(name, each)]
        unused.difference_update(matching)
        if matching and reasons[matching[0]].startswith("not run: "):
            counts["excluded"] += 1
            continue
        if matching and reasons[matching[0]].startswith("skips itself: "):
            skipping.add(item.nodeid)
        elif matching:
            item.add_marker(pytest.mark.xfail(reason=reasons[matching[0]], strict=True))
        kept.append(item)
    items[:] = kept


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if type(report) is not pytest.TestReport and not report.failed:
        return  # a part of a test
    if hasattr(report, "wasxfail") and report.skipped:
        counts["excluded"] += 1
    elif report.skipped:
        # Each skip is listed, so that a test that no longer runs is noticed.
        counts["skipped" if report.nodeid in skipping else "failed"] += 1
        skipped[report.nodeid] = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    elif report.failed:
        counts["failed"] += 1
    elif report.passed and report.when == "call":
        counts["passed"] += 1


def pytest_sessionfinish(session: pytest.Session) -> None:
    # An entry for a test that no longer exists is an error of the list.
    counts["failed"] += len(unused)
    result = {**counts, "skips": skipped, "unused": sorted(unused)}
    Path(os.environ["SHALE_ADAPTER_RESULT"]).write_text(json.dumps(result))
