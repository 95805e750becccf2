"""The verdict of Scripts/suite and Scripts/lane about tests that fail once, twice, or in a way that is final."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "Scripts"))

import runners  # noqa: E402
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
        "sh -c 'kill -TRAP $$'; exit 1",
        "sh -c 'kill -ILL $$'; exit 1",
        "sh -c 'kill -ABRT $$'; exit 1",
        "yes | head -c 1000000; echo '(oracle: a lost value)'; exit 1",
        "echo '(oracle: a lost value)'; echo 'E   assert 0'; exit 1",
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
        ("swift", "ShaleCoreTests.CoreTests/DamageTests/goesOn()", True),
        ("swift", "ShaleTests.ModelTests/unlimited(seed:)", False),
        ("swift", "ShaleTests.CacheTests/empty()", False),
    ],
)
def test_oracles(runner: str, test: str, expected: bool) -> None:
    assert suites.is_oracle(test, runners.RUNNERS[runner]) is expected


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


def run_pytest(folder: Path, text: str) -> "tuple[int, str]":
    """Runs tests in Python, of which one is unstable: it must not hide what else goes wrong."""
    unstable = f"""
import atexit, os, pytest, threading
from pathlib import Path

def once(name, message):
    flag = Path({str(folder)!r}, name)
    assert flag.exists() or flag.touch(), message

class TestIt:
    @pytest.mark.parametrize("value", ["a b", "c::d", "e-[f]"])
    def test_once(self, value):
        if value == "c::d":
            once("unstable", "only then")
"""
    (folder / "test_it.py").write_text(unstable + text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--rootdir={folder}"]
    return run(ROOT / "Scripts" / "suite", "demo", "env", "-C", folder, *command, "--", "test_it.py")


def test_pytest(tmp_path: Path) -> None:
    status, output = run_pytest(
        tmp_path,
        """
def test_bad():
    # The source that pytest shows is no report: oracle: lost
    assert False

@pytest.fixture
def broken():
    assert False

def test_error(broken):
    pass

def test_skipped():
    pytest.skip("why")

@pytest.mark.xfail
def test_expected():
    assert False
""",
    )
    assert status == 1
    assert "unstable   demo: test_it.py::TestIt::test_once[c::d]" in output
    assert "test_it.py::test_bad shows" not in output
    assert output.endswith("3 passed, 2 failed\n")


@pytest.mark.parametrize(
    "text, failed",
    [
        ("", False),
        ("def test_it(): once('flag', 'oracle: an older value')", True),
        ("def test_it():\n    print('oracle: an older value')\n    once('flag', '')", True),
        # Beside tests that pass or are skipped.
        (
            "@pytest.fixture\ndef it():\n    yield\n    once('flag', 'oracle: lost')\ndef test_it(it): pytest.skip()",
            True,
        ),
        (
            "@pytest.fixture\ndef it():\n    yield\n    once('flag2', 'left behind')\n"
            "def test_it(it): once('flag', 'oracle: lost')",
            True,
        ),
        ("def test_it():\n    try: once('flag', '')\n    except AssertionError: assert not -6", True),
        # Beside any test.
        ("def test_it(): atexit.register(os.abort)", True),
        ("def test_it(): pytest.exit('the rest is not run')", True),
        ("def test_it(): raise KeyboardInterrupt", True),
        ("def test_it(): os._exit(0)", True),
        ("def test_it(): os.abort()", True),
        ("raise RuntimeError", True),
    ],
)
def test_an_unstable_test_hides_nothing(tmp_path: Path, text: str, failed: bool) -> None:
    status, output = run_pytest(tmp_path, text)
    assert status == failed
    assert (int(output.split()[-2]) > 0) == failed


def test_a_test_that_is_inherited(tmp_path: Path) -> None:
    (tmp_path / "base.py").write_text("class Base:\n    def test_it(self): self.once()\n")
    status, output = run_pytest(
        tmp_path, "from base import Base\nclass TestIt2(Base):\n    def once(self): once('flag', '')\n"
    )
    assert status == 0
    assert "unstable   demo: test_it.py::TestIt2::test_it" in output


def test_a_program_is_one_test(tmp_path: Path) -> None:
    for script, expected in [
        (fails_once(tmp_path / "flag"), "1 passed, 0 failed"),
        (fails_once(tmp_path / "another", "kill -SEGV $$"), "0 passed, 1 failed"),
        ("exit 1", "0 passed, 1 failed"),
    ]:
        assert run(ROOT / "Scripts" / "suite", "demo", "sh", "-c", script)[1].endswith(f"{expected}\n")


def test_two_tests_of_one_name(tmp_path: Path) -> None:
    for name, script in {
        "a": fails_once(tmp_path / "flag", "kill -SEGV $$"),
        "b": fails_once(tmp_path / "other"),
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.sh").write_text(script)
        (tmp_path / name / "CTestTestfile.cmake").write_text(f'add_test(x sh "{tmp_path}/{name}/x.sh")\n')
    (tmp_path / "CTestTestfile.cmake").write_text("subdirs(a b)\n")
    assert run(ROOT / "Scripts" / "suite", "demo", "ctest", "--test-dir", tmp_path)[0] == 1


def test_the_tests_of_swift_are_named_as_its_filter_does() -> None:
    case = runners.xml.fromstring('<testcase classname="EngineTests.ModelTests.Inner" name="unlimited(seed:)"/>')
    name = runners.swift_name(case)
    assert name == "EngineTests.ModelTests/Inner/unlimited(seed:)"
    assert runners.RUNNERS["swift"].only(name)[-1] == r"^EngineTests\.ModelTests/Inner/unlimited\(seed:\)/"


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


def test_what_an_informing_target_names_is_in_the_table(tmp_path: Path) -> None:
    status, output = lane(tmp_path, {"good": "true", "informs": "echo 'look at: it'"}, "good", "--informing", "informs")
    assert status == 0
    assert "informing  make informs\n             it\n" in output
    script = "echo 'look at: it'; echo the end; exit 1"
    status, output = lane(tmp_path, {"good": "true", "informs": script}, "good", "--informing", "informs")
    assert status == 0
    assert "             it\n" in output and "             the end\n" in output


def test_a_target_that_does_not_count_is_one_test(tmp_path: Path) -> None:
    status, output = lane(tmp_path, {"bad": f"echo run >> {tmp_path}/runs; exit 1", "good": "true"}, "bad", "good")
    assert status == 1
    assert (tmp_path / "runs").read_text() == "run\n"
    assert output.endswith("\n1 passed, 1 failed\n")


def test_all_counts_of_a_target_count(tmp_path: Path) -> None:
    status, output = lane(tmp_path, {"counts": "echo '5 passed, 3 failed'; echo '7 passed, 0 failed'"}, "counts")
    assert status == 1
    assert output.endswith("\n12 passed, 3 failed\n")


def test_unstable_tests_of_all_targets_count_together(tmp_path: Path) -> None:
    suite = ROOT / "Scripts" / "suite"
    targets = {}
    for i in range(3):
        (tmp_path / f"{i}.sh").write_text(fails_once(tmp_path / f"flag{i}"))
        targets[f"flaky{i}"] = f"{suite} flaky{i} sh {tmp_path}/{i}.sh"
    status, output = lane(tmp_path, targets, *targets)
    assert status == 1
    assert "3 tests are unstable" in output
    assert output.endswith("\n3 passed, 1 failed\n")
