"""The examples in diskcache's docstrings, run with Shale's classes. (Its test_doctest.py would look into Shale's.)"""

import ast
import doctest
import functools
import time
from pathlib import Path

import diskcache
import pytest

SOURCES = Path(__file__).parents[1] / "original"


def docstrings():
    for path in sorted(SOURCES.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and ">>>" in (ast.get_docstring(node) or ""):
                yield pytest.param(ast.get_docstring(node), id=f"{path.stem}-{node.name}-{node.lineno}")


class Clock:
    """Only sleeping takes time."""

    now = 1e9

    def time(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@pytest.mark.parametrize("text", docstrings())
def test_example(text, monkeypatch):
    names = {name: getattr(diskcache, name) for name in diskcache.__all__}
    if "@throttle(" in text:  # it counts calls in two seconds
        clock = Clock()
        monkeypatch.setattr(time, "time", clock.time)
        names["throttle"] = functools.partial(names["throttle"], time_func=clock.time, sleep_func=clock.sleep)
    test = doctest.DocTestParser().get_doctest(text, names, "example", None, 0)
    output = []
    assert doctest.DocTestRunner(verbose=False).run(test, out=output.append).failed == 0, "".join(output)
