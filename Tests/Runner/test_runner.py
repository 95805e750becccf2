"""The verdict of Scripts/suite and Scripts/lane about tests that fail once, twice, or in a way that is final."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "Scripts"))

import suites  # noqa: E402

ONCE = "test -e {flag} || {{ touch {flag}; {once}; }}"


def run(*command: object, **variables: str) -> "tuple[int, str]":
    environment = {name: value for name, value in os.environ.items() if name != "SHALE_NOTES"}
    done = subprocess.run(
        list(map(str, command)),
        env=environment | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return done.returncode, done.stdout


def fails_once(flag: Path, how: str = "echo first; exit 1") -> str:
    return ONCE.format(flag=flag, once=how)


def ctest(folder: Path, **tests: str) -> "tuple[int, str]":
    lines = []
    for name, script in tests.items():
        path = folder / f"{name}.sh"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        properties = "TIMEOUT 2 SKIP_RETURN_CODE 77 WORKING_DIRECTORY ."
        lines.append(f'add_test({name} "{path}")\nset_tests_properties({name} PROPERTIES {properties})\n')
    (folder / "CTestTestfile.cmake").write_text("".join(lines))
    return run(ROOT / "Scripts" / "suite", "demo", "ctest", "--test-dir", folder)


def test_a_test_that_passes_the_second_time_is_unstable(tmp_path: Path) -> None:
    status, output = ctest(tmp_path, good="true", flaky=fails_once(tmp_path / "flag", "echo only then; exit 1"))
    assert status == 0
    table = output.partition("To look at:")[2]
    assert "unstable   demo: flaky" in table
    assert "only then" in table and "the second time:" in table
    assert output.endswith("2 passed, 0 failed\n")


def test_a_test_that_fails_twice_fails(tmp_path: Path) -> None:
    status, output = ctest(tmp_path, good="true", bad="echo why; exit 1")
    assert status == 1
    assert "failed: bad\n" in output and "why" in output
    assert output.endswith("1 passed, 1 failed\n")


@pytest.mark.parametrize(
    "how",
    [
        "kill -SEGV $$",
        "kill -ABRT $$",
        "sleep 10",
        "echo 'x.c:1: call: expected 0, got 1 (oracle: a lost value)'; exit 1",
        "echo 'crash: Segmentation fault'; exit 1",
        "echo 'watchdog: the test hangs'; exit 1",
        "echo 'WARNING: ThreadSanitizer: data race'; exit 66",
        "echo '==7== Invalid read of size 8'; exit 1",
    ],
)
def test_no_second_run_excuses_a_fault_of_the_product(tmp_path: Path, how: str) -> None:
    status, output = ctest(tmp_path, good="true", fault=fails_once(tmp_path / "flag", how))
    assert status == 1
    assert "failed: fault\n" in output
    assert output.endswith("1 passed, 1 failed\n")


def test_no_second_run_excuses_an_oracle(tmp_path: Path) -> None:
    status, output = ctest(
        tmp_path, stress=fails_once(tmp_path / "flag"), explore_known=fails_once(tmp_path / "another")
    )
    assert status == 1
    assert output.endswith("0 passed, 2 failed\n")


@pytest.mark.parametrize(
    "runner, test, expected",
    [
        ("ctest", "explore", True),
        ("ctest", "stopped_writer", True),
        ("ctest", "capacities_huge", False),
        ("pytest", "tests/test_model.py::TestModel::test_model", True),
        ("pytest", "test_histories.py::test_histories[1]", True),
        ("pytest", "tests/test_cache.py::test_stress", False),
        ("swift", "EngineTests.ModelTests/unlimited(seed:)", True),
        ("swift", "ShaleTests.ModelTests/unlimited(seed:)", False),
        ("swift", "ShaleTests.CacheTests/empty()", False),
    ],
)
def test_oracles(runner: str, test: str, expected: bool) -> None:
    assert suites.is_oracle(test, suites.RUNNERS[runner]) is expected


def test_three_unstable_tests_fail_the_run(tmp_path: Path) -> None:
    flaky = {f"flaky{i}": fails_once(tmp_path / f"flag{i}") for i in range(3)}
    status, output = ctest(tmp_path, **flaky)
    assert status == 1
    assert "3 tests are unstable" in output
    status, output = ctest(tmp_path, flaky=fails_once(tmp_path / "one"), flaky2=fails_once(tmp_path / "two"))
    assert status == 0


def test_a_skipped_test_is_named_and_not_counted(tmp_path: Path) -> None:
    status, output = ctest(tmp_path, good="true", skipped="echo no right to mount; exit 77")
    assert status == 0
    assert "skipped: skipped: " in output and "no right to mount" in output
    assert output.endswith("1 passed, 0 failed\n")


def test_no_test_is_a_failure(tmp_path: Path) -> None:
    status, output = ctest(tmp_path)
    assert status == 1
    assert output.endswith("0 passed, 1 failed\n")


def test_pytest(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        f"""
import os, pytest
from pathlib import Path

class TestIt:
    @pytest.mark.parametrize("value", ["a b", "c::d", "e-[f]"])
    def test_once(self, value):
        flag = Path({str(tmp_path)!r}, value)
        assert value != "c::d" or flag.exists() or flag.touch(), "only then"

def test_bad():
    # The source that pytest shows is no report: oracle: lost
    assert False

def test_oracle():
    flag = Path({str(tmp_path)!r}, "oracle")
    assert flag.exists() or flag.touch(), "oracle: an older value"

@pytest.fixture
def broken():
    assert False

def test_error(broken):
    pass
"""
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--rootdir={tmp_path}"]
    status, output = run(ROOT / "Scripts" / "suite", "demo", "env", "-C", tmp_path, *command, "--", "test_it.py")
    assert status == 1
    assert "unstable   demo: test_it.py::TestIt::test_once[c::d]" in output
    assert "test_it.py::test_oracle shows a wrong value" in output
    assert "test_it.py::test_bad shows" not in output
    assert output.endswith("3 passed, 3 failed\n")


def test_the_tests_of_swift_are_named_as_its_filter_does() -> None:
    case = suites.xml.fromstring('<testcase classname="EngineTests.ModelTests.Inner" name="unlimited(seed:)"/>')
    name = suites.swift_name(case)
    assert name == "EngineTests.ModelTests/Inner/unlimited(seed:)"
    assert suites.RUNNERS["swift"].only(name)[-1] == r"^EngineTests\.ModelTests/Inner/unlimited\(seed:\)/"


# Targets


def lane(folder: Path, targets: "dict[str, str]", *words: str) -> "tuple[int, str]":
    makefile = folder / "targets.mk"
    makefile.write_text("".join(f"{name}:\n\t@{script}\n" for name, script in targets.items()))
    return run(ROOT / "Scripts" / "lane", *words, MAKEFILES=str(makefile))


def test_a_target_that_informs_fails_no_run(tmp_path: Path) -> None:
    targets = {"counts": "echo '7 passed, 0 failed'", "informs": "echo 'SURVIVED: a mutant'; exit 1"}
    status, output = lane(tmp_path, targets, "counts", "--informing", "informs")
    assert status == 0
    table = output.partition("To look at:")[2]
    assert "informing  make informs" in table and "SURVIVED: a mutant" in table
    assert output.endswith("\n7 passed, 0 failed\n")
    status, output = lane(tmp_path, targets, "counts", "informs")
    assert status == 1
    assert output.endswith("\n7 passed, 1 failed\n")


def test_a_target_that_does_not_count_runs_once_more(tmp_path: Path) -> None:
    status, output = lane(tmp_path, {"flaky": fails_once(tmp_path / "flag"), "good": "true"}, "flaky", "good")
    assert status == 0
    assert "unstable   make: flaky" in output
    assert output.endswith("\n2 passed, 0 failed\n")
    status, output = lane(tmp_path, {"bad": "exit 1", "good": "true"}, "bad", "good")
    assert status == 1
    assert output.endswith("\n1 passed, 1 failed\n")


def test_a_target_with_failed_tests_does_not_run_again(tmp_path: Path) -> None:
    script = f"echo run >> {tmp_path}/runs; echo '7 passed, 1 failed'; exit 1"
    status, output = lane(tmp_path, {"counts": script}, "counts")
    assert status == 1
    assert (tmp_path / "runs").read_text() == "run\n"
    assert output.endswith("\n7 passed, 1 failed\n")


def test_unstable_tests_of_all_targets_count_together(tmp_path: Path) -> None:
    targets = {f"flaky{i}": fails_once(tmp_path / f"flag{i}") for i in range(3)}
    status, output = lane(tmp_path, targets, *targets)
    assert status == 1
    assert "3 tests are unstable" in output
