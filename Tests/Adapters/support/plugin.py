"""A pytest plugin for the tests of other projects. Each test in the folders of a suite (sources.toml) runs or is in
excluded.toml; those that cannot pass have to fail; all are counted, by name if they do not pass."""

import ast
import inspect
import json
import os
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
import pytest_results

HERE = Path(__file__).resolve().parents[1]
ADAPTER = os.environ["SHALE_ADAPTER"]
SUITE = tomllib.loads((HERE / "sources.toml").read_text()).get(ADAPTER, {}).get("suite", [])
EXCLUDED = tomllib.loads((HERE / "excluded.toml").read_text()).get(ADAPTER, {})
REASONS = {name: reason for reason, names in EXCLUDED.items() for name in names}

# Of a test that runs for the second time, alone.
IS_ALONE = "SHALE_ADAPTER_ALONE" in os.environ

counts = {"passed": 0, "failed": 0, "skipped": 0, "excluded": 0}
skipped: dict[str, str] = {}
failures: dict[str, tuple[str, str]] = {}
passed: set[str] = set()
unused = set(REASONS)
errors: list[str] = []
not_run: set[str] = set()
failing: set[str] = set()
skipping: set[str] = set()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A file of which no test runs is not imported: it may need what is not installed."""
    if collection_path.suffix == ".py" and entries(f"{place(collection_path, config)}::", "not run: "):
        return True
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    kept = []
    for item in items:
        # A test that its project expects to fail is in excluded.toml, too.
        item.own_markers = [mark for mark in item.own_markers if mark.name != "xfail"]
        matching = entries(item.nodeid.partition("/")[2])
        unused.difference_update(matching)
        reason = REASONS[matching[0]] if matching else ""
        if reason.startswith("not run: "):
            counts["excluded"] += 1
            not_run.add(defined_as(item))
            continue
        if reason.startswith("skips itself: "):
            skipping.add(item.nodeid)
        elif reason:
            failing.add(item.nodeid)
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True))
        kept.append(item)
    items[:] = kept


def pytest_collection_finish(session: pytest.Session) -> None:
    """Compares the tests that run, of whatever class that inherits them, with those in the suite's files."""
    if IS_ALONE:
        unused.clear()
        return
    run = {defined_as(item) for item in session.items} | {
        f"{place(item.path, item.config)}::" for item in session.items
    }
    for folder in SUITE:
        for path in sorted((session.config.rootpath / folder).rglob("*.py")):
            # A file may have inherited tests only.
            whole = [""] if path.name.startswith("test_") else []
            for name in [*whole, *functions(ast.parse(path.read_bytes()))]:
                test = f"{place(path, session.config)}::{name}"
                matching = entries(test, "not run: ")
                if test not in run:
                    unused.difference_update(matching)
                    if not matching and test not in not_run:
                        errors.append(f"{test} does not run: name it in excluded.toml, with the reason")
                elif matching:
                    errors.append(f"{test} runs, but excluded.toml says of {matching[0]}: {REASONS[matching[0]]}")


def entries(test: str, reason: str = "") -> list[str]:
    """The entries that match a test, or part of them by the beginning of their reason."""
    return [each for each, why in REASONS.items() if fnmatchcase(test, each) and why.startswith(reason)]


def place(file: Path, config: pytest.Config) -> str:
    """A file's path in the folder of the tests."""
    return file.relative_to(config.rootpath).as_posix().partition("/")[2]


def functions(node: ast.AST, within: str = "") -> Iterator[str]:
    for each in ast.iter_child_nodes(node):
        if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)):
            if each.name.startswith("test"):
                yield within + each.name
        elif isinstance(each, ast.ClassDef):
            yield from functions(each, f"{within}{each.name}::")
        else:
            yield from functions(each, within)


def defined_as(item: pytest.Item) -> str:
    """File and name of a test's function, which its class may inherit."""
    assert isinstance(item, pytest.Function)
    function = inspect.unwrap(item.function)
    file = place(Path(function.__code__.co_filename), item.config)
    return f"{file}::{function.__qualname__.replace('.', '::')}"


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if type(report) is not pytest.TestReport and not report.failed:
        return  # a part of a test
    if report.skipped and report.nodeid in failing and hasattr(report, "wasxfail"):
        counts["excluded"] += 1
    elif report.skipped:
        # Each skip is listed, so that a test that no longer runs is noticed.
        why = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if report.nodeid in skipping:
            counts["skipped"] += 1
            skipped[report.nodeid] = why
        else:
            failures[report.nodeid] = (f"skipped: {why}", "")
    elif report.failed:
        known = failures.get(report.nodeid, ("", ""))
        output, evidence = pytest_results.printed(report)
        failures[report.nodeid] = (known[0] + output, known[1] + evidence)
    elif report.passed and report.when == "call":
        passed.add(report.nodeid)


def pytest_sessionfinish(session: pytest.Session) -> None:
    errors.extend(f"excluded.toml names {each}, which matches no test" for each in sorted(unused))
    counts["passed"] = len(passed - failures.keys())
    counts["failed"] = len(failures) + len(errors)
    result = {**counts, "skips": skipped, "failures": failures, "errors": errors}
    Path(os.environ["SHALE_ADAPTER_RESULT"]).write_text(json.dumps(result))
