"""The programs in Examples/Python run and print the expected lines."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import REPOSITORY, run_child

PROGRAMS = REPOSITORY / "Examples" / "Python"

PRINTED = {
    "first_cache": """
        slate: {'hardness': 5.5, 'found in': ['Wales', 'Spain']}
        marl: nothing
        page: nothing
        refused: TypeError
    """,
    "loading": """
        read: {'its text'}
        loads: 1
        working
        144 144
    """,
    "iterating": """
        ('square', 1) is 1
        ('square', 2) is 4
        ('square', 3) is 9
        page is its text
        4 entries
        page: its text for 60 seconds
    """,
}


def test_every_example_is_run() -> None:
    assert {path.stem for path in PROGRAMS.glob("*.py")} == set(PRINTED)


@pytest.mark.parametrize("name", PRINTED)
def test_example(name: str, directory: Path) -> None:
    program = PROGRAMS / f"{name}.py"
    script = "import runpy, sys; runpy.run_path(sys.argv.pop(1), run_name='__main__')"
    lines = run_child(script, program, directory).splitlines()
    expected = [line.strip() for line in PRINTED[name].strip().splitlines()]
    # The order of entries is unspecified.
    assert sorted(lines) == sorted(expected)
