"""Where the library is searched for, and the error if it is not found."""

from __future__ import annotations

import ctypes.util
import re
import sys
from pathlib import Path

import pytest
from support import child_environment, run_child

import shale
from shale._native import library

IMPORT = """
    try:
        import shale
    except ImportError as error:
        print(error)
    else:
        print("imported")
"""


def test_version_is_three_numbers() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", shale.library_version())


def test_environment_names_a_file_that_is_missing(tmp_path: Path) -> None:
    missing = str(tmp_path / "libshale.so")
    text = run_child(IMPORT, environment=child_environment(SHALE_LIBRARY=missing))
    assert missing in text
    assert "cmake" in text


def test_environment_names_a_file_that_is_no_library(tmp_path: Path) -> None:
    wrong = tmp_path / "libshale.so"
    wrong.write_text("not a library")
    text = run_child(IMPORT, environment=child_environment(SHALE_LIBRARY=str(wrong)))
    assert str(wrong) in text
    assert "cmake" in text


def test_environment_names_another_library() -> None:
    name = ctypes.util.find_library("m")
    path = next(
        (
            p
            for p in map(Path, ("/lib/x86_64-linux-gnu", "/lib64", "/usr/lib"))
            if name and (p / name).is_file()
        ),
        None,
    )
    if path is None or name is None:
        pytest.skip("no other library to name")
    text = run_child(IMPORT, environment=child_environment(SHALE_LIBRARY=str(path / name)))
    assert "it is not libshale" in text


IN_ANOTHER = """
    import sys
    script = (
        f'import sys; sys.path[:0] = {sys.path!r}\\n'
        'try: import shale\\n'
        'except ImportError as error: print(error, flush=True)\\n'
    )
    try:
        import _interpreters as module
        others = module.create("isolated"), module.create("legacy")
    except ImportError:
        import _xxsubinterpreters as module
        others = (module.create(isolated=False),)
    for each in others:
        module.run_string(each, script)
        module.destroy(each)
    import shale
    print(shale.__name__)
"""


@pytest.mark.skipif(sys.implementation.name != "cpython", reason="has no other interpreters")
def test_another_interpreter_of_the_process_is_refused() -> None:
    pytest.importorskip("_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters")
    *refusals, last = run_child(IN_ANOTHER).splitlines()
    assert last == "shale"
    assert refusals
    for each in refusals:
        assert "main interpreter" in each
        assert "WSGIApplicationGroup %{GLOBAL}" in each


def test_without_the_variable_the_library_is_the_packages_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SHALE_LIBRARY", raising=False)
    beside = Path(shale.__file__).with_name("libshale.so")
    if beside.is_file():
        assert library.library_path() == beside
    else:
        with pytest.raises(ImportError, match="SHALE_LIBRARY is not set") as raised:
            library.library_path()
        assert "cmake" in str(raised.value)
