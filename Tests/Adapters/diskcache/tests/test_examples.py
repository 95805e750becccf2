"""The examples in diskcache's docstrings, run with Shale's classes. (Its test_doctest.py would look into Shale's.)"""

import ast
import doctest
from pathlib import Path

import diskcache
import pytest

SOURCES = Path(__file__).parents[1] / "original"


def docstrings():
    for path in sorted(SOURCES.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and ">>>" in (ast.get_docstring(node) or ""):
                yield pytest.param(ast.get_docstring(node), id=f"{path.stem}-{node.name}-{node.lineno}")


@pytest.mark.parametrize("text", docstrings())
def test_example(text):
    names = {name: getattr(diskcache, name) for name in diskcache.__all__}
    test = doctest.DocTestParser().get_doctest(text, names, "example", None, 0)
    output = []
    assert doctest.DocTestRunner(verbose=False).run(test, out=output.append).failed == 0, "".join(output)
