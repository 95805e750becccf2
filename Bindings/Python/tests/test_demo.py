"""``python -m shale demo`` shows what it says."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from loaders import PATIENCE
from support import child_environment


@pytest.fixture
def printed(tmp_path: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "shale", "demo"],
        env=child_environment(TMPDIR=str(tmp_path)),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def results(printed: str) -> dict[str, Any]:
    """The results, by the lines that they stand beside."""
    lines = [line.rpartition("  # ") for line in printed.splitlines()[2:] if "  # " in line]
    return {source: ast.literal_eval(result) for source, _, result in lines if source[0] != "p"} | {
        "python": [ast.literal_eval(result) for source, _, result in lines if "python(" in source]
    }


def test_each_line_has_its_result(printed: str, tmp_path: Path) -> None:
    found = results(printed)
    loads, killed = found.pop("python")
    as_text, on_disk = found.pop("len(repr(tables)), cache.volume()")
    assert found == {
        'cache["user:7"]': {"name": "Ada", "visits": 3},
        'cache.get("user:8")': None,
        'cache.set("weather", "rain", max_age=0.05)': True,
        'cache.get("weather")': None,
        "square(12), square(12), calls": (144, 144, [12]),
        'cache["last"]': "words",
    }
    assert len(loads) == 4
    assert len(set(loads)) == 1
    assert loads[0].startswith("by ")
    assert killed == ["killed by signal 9"]
    assert 0 < on_disk < as_text
    assert list(tmp_path.iterdir()) == []


def test_it_is_short(printed: str) -> None:
    lines = [line for line in printed.splitlines() if line and not line.startswith("#")]
    assert len(lines) <= 24
    assert max(map(len, lines)) < 150
