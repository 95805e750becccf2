"""Modules import in one direction: within their layer or from a lower one. And no pickle depends on
where a module is."""

from __future__ import annotations

import ast
import pickle
import re
from pathlib import Path
from typing import Any

import pytest

import shale
import shale.tier
from shale.adapters import diskcache

PACKAGE = Path(shale.__file__).parent

# From the lowest: a folder with its modules, or a module.
LAYERS = [
    "shale._typing",
    "shale._native",
    "shale._data",
    "shale._store",
    "shale._loading",
    "shale._cache",
    "shale._async",
    "shale",
    "shale.serializers",
    "shale.tier",
    "shale.adapters",
    "shale._bench",
    "shale._commands",
    "shale.__main__",
]

# Written in C.
EXTENSION = "shale._native.speed"


def module_name(file: Path, package: Path) -> str:
    parts = (package.name, *file.relative_to(package).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(file: Path, name: str, modules: set[str]) -> set[str]:
    """The modules of the package that a module imports: at the top, in functions, and for type
    checkers alone."""
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found.update(each.name for each in node.names if each.name in modules)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join((*(above if node.level else ()), *filter(None, [node.module])))
            for each in node.names:
                # `from folder import module`, or `from module import name`.
                full = f"{base}.{each.name}"
                found.update({full} if full in modules else {base} & modules)
    return found


def graph(package: Path) -> dict[str, set[str]]:
    files = {module_name(file, package): file for file in sorted(package.rglob("*.py"))}
    modules = {*files, EXTENSION}
    return {name: imports(file, name, modules) for name, file in files.items()}


def layer(name: str) -> int:
    """The position in LAYERS of the longest name that the module's name begins with."""
    fitting = [each for each in LAYERS if f"{name}.".startswith(f"{each}.")]
    found = max(fitting, key=len)
    assert found != "shale" or name == "shale", f"{name} is in no layer"
    return LAYERS.index(found)


def upward(imported: dict[str, set[str]]) -> list[str]:
    return [
        f"{name} imports {other} of a higher layer"
        for name, others in imported.items()
        for other in sorted(others)
        if layer(other) > layer(name)
    ]


def circle(imported: dict[str, set[str]]) -> list[str]:
    """Modules of which each imports the next, and the last the first; none: []."""
    done: set[str] = set()

    def walk(name: str, path: list[str]) -> list[str]:
        if name in path:
            return path[path.index(name) :]
        if name not in done:
            for other in sorted(imported.get(name, ())):
                found = walk(other, [*path, name])
                if found:
                    return found
            done.add(name)
        return []

    return next(filter(None, (walk(name, []) for name in imported)), [])


def test_imports_go_down() -> None:
    assert upward(graph(PACKAGE)) == []


def test_no_modules_import_each_other() -> None:
    assert circle(graph(PACKAGE)) == []


def test_every_module_is_read() -> None:
    imported = graph(PACKAGE)
    assert len(imported) > 60
    assert {"shale._cache", "shale._native.abi", "shale.adapters.diskcache"} <= imported.keys()
    assert "shale._cache" in imported["shale"]
    # In a function.
    assert "shale._loading.single_flight_async" in imported["shale._loading.memoize"]
    # For type checkers alone.
    assert "shale._store.store" in imported["shale._store.views"]


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "shale"
    for name in ("__init__", "_cache", "_native/__init__", "_native/one", "_native/two"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.py").touch()
    return folder


@pytest.mark.parametrize(
    "text",
    [
        "from .._cache import Cache",
        "from .. import _cache",
        "from shale._cache import Cache",
        "import shale._cache",
        "def work():\n    from .._cache import Cache",
        "if TYPE_CHECKING:\n    from .._cache import Cache",
    ],
)
def test_an_import_upward_is_found(package: Path, text: str) -> None:
    (package / "_native/one.py").write_text(text)
    assert upward(graph(package)) == ["shale._native.one imports shale._cache of a higher layer"]


def test_a_circle_in_a_layer_is_found(package: Path) -> None:
    (package / "_native/one.py").write_text("from . import two")
    (package / "_native/two.py").write_text("from .one import work")
    assert upward(graph(package)) == []
    assert circle(graph(package)) == ["shale._native.one", "shale._native.two"]


def test_pickles_name_only_public_modules(tmp_path: Path) -> None:
    serializer = shale.PickleSerializer()
    with shale.Cache(tmp_path / "cache", capacity="8MiB", serializer=serializer) as cache:
        cache["k"] = 1
        pickled: list[Any] = [
            *(cache, cache.namespace("n"), cache.entry("k"), cache.stats(), cache.verify()),
            *(shale.Loaded(1), shale.Missing(), shale.NotModified(), shale.Event("hit")),
            cache.entry_or_load("k", lambda _: 2),
            *(shale.DeadlockError(["k"]), shale.LoadTimeoutError("k", 1), shale.BusyError("x")),
            *(shale.tier.Result(1, "near"), shale.tier.RemoteError("x")),
            diskcache.Cache(tmp_path / "disk", disk=diskcache.JSONDisk),
            diskcache.Deque([1], tmp_path / "deque"),
        ]
        for each in pickled:
            data = pickle.dumps(each)
            assert re.findall(rb"shale[\w.]*", data), each
            assert not re.findall(rb"shale\.[\w.]*\b_\w+", data), each
            assert type(pickle.loads(data)) is type(each)
