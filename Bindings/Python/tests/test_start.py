"""The first programs of the pages run as they are, for a user who is not root, in an environment
that has nothing but the package; and so does the demo."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Callable

import pytest
from loaders import PATIENCE
from pages import snippets
from support import PYTHON_ROOT, REPOSITORY
from test_wheel import build, copy_sources

from shale._native import library

STRANGER = 65534
"""A user who owns no files."""

Run = Callable[..., str]


def python_for_a_stranger() -> str:
    """An interpreter that the user may run; the tests' own may be in root's home."""
    for each in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            command = [each, "-c", "import ensurepip, venv"]
            subprocess.run(command, user=STRANGER, group=STRANGER, cwd="/", check=True)
            return each
    pytest.skip("no Python here that another user may run")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for everybody, with an environment in `env` that has the package's wheel."""
    pytest.importorskip("setuptools.command.bdist_wheel", reason="needs a newer setuptools")
    pytest.importorskip("pip")
    root = os.getuid() == 0
    python = python_for_a_stranger() if root else sys.executable
    made = tmp_path_factory.mktemp("wheel")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHALE_SPEED", "0")  # for every version of Python
        wheel = build(made, copy_sources(made), library.library_path())
    folder = Path(tempfile.mkdtemp(prefix="shale-start-"))
    try:
        folder.chmod(0o755)
        environment = folder / "env"
        subprocess.run([python, "-m", "venv", environment], check=True, timeout=PATIENCE)
        pip = [str(environment / "bin" / "python"), "-m", "pip", "install", "-q", "--no-index"]
        subprocess.run([*pip, str(wheel)], check=True, timeout=PATIENCE, capture_output=True)
        yield folder
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def home(installed: Path) -> Iterator[Path]:
    """The user's folder, which has another one for temporary files."""
    folder = installed / "home"
    (folder / "tmp").mkdir(parents=True)
    if os.getuid() == 0:
        for each in (folder, folder / "tmp"):
            os.chown(each, STRANGER, STRANGER)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def run(installed: Path, home: Path) -> Run:
    def run(*arguments: str) -> str:
        """The output of Python, started by the user."""
        user = STRANGER if os.getuid() == 0 else None
        done = subprocess.run(
            [installed / "env" / "bin" / "python", "-I", *arguments],
            cwd=home,
            env={"PATH": os.defpath, "HOME": str(home), "TMPDIR": str(home / "tmp")},
            user=user,
            group=user,
            extra_groups=None if user is None else [],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


FIRST = [
    REPOSITORY / "README.md",
    PYTHON_ROOT / "README.md",
    REPOSITORY / "Documentation" / "guide" / "start.md",
]


@pytest.mark.parametrize(
    ("page", "printed"),
    [
        (FIRST[0], "{'any': ['JSON-like', 'value']}\n"),
        (FIRST[1], "{'name': 'Ada', 'visits': [1, 2]} None\n<h1>hello</h1> False 1\n"),
        (FIRST[2], "{'any': ['JSON-like', 'value']} gone\n"),
    ],
    ids=["README", "README of the binding", "start"],
)
def test_the_first_program(page: Path, printed: str, run: Run, home: Path) -> None:
    (home / "first.py").write_text(snippets(page)[0])
    assert run("first.py") == printed
    # Readers run it again.
    assert run("first.py") == printed
    # Nothing is elsewhere, where another user's files may be in the way.
    assert sorted(each.name for each in home.iterdir()) == ["example", "first.py", "tmp"]


@pytest.mark.parametrize("page", FIRST, ids=str)
def test_what_the_pages_install_is_in_a_checkout(page: Path) -> None:
    paths = re.findall(r"pip install '?([./][^\s'`\[]*)", page.read_text())
    assert paths
    for path in paths:
        assert (REPOSITORY / path / "pyproject.toml").is_file()


def test_the_demo(run: Run, home: Path) -> None:
    assert "killed by signal 9" in run("-m", "shale", "demo")
    assert list((home / "tmp").iterdir()) == []


def test_the_benchmark(run: Run, home: Path) -> None:
    printed = run("-m", "shale", "bench", "--entries", "20", "--rounds", "1")
    assert "| shale " in printed
    assert "- diskcache: not measured, pip install diskcache" in printed
    assert list((home / "tmp").iterdir()) == []


def test_the_environment_is_empty(run: Run) -> None:
    script = "import importlib.metadata as m; print(*sorted(d.name for d in m.distributions()))"
    assert set(run("-c", script).split()) <= {"pip", "setuptools", "shale-cache"}
