"""Builds the C and the Swift program; has the command of each program."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

DEMO = Path(__file__).resolve().parent.parent
ROOT = DEMO.parent.parent
LIBRARY = ROOT / "build" / "libshale.so"
OUTPUT = ROOT / "build" / "demo"
BUILD_SECONDS = 900

C_FLAGS = ["-std=c11", "-D_POSIX_C_SOURCE=200809L", "-O2", "-Wall", "-Wextra", "-Wpedantic"]


@dataclass
class Places:
    """The arguments of every program."""

    corpus: Path
    board: Path
    cache: Path
    capacity: int

    def arguments(self) -> list[str]:
        return [str(self.corpus), str(self.board), str(self.cache), str(self.capacity)]


def build(show: Callable[[str], None]) -> None:
    if not LIBRARY.exists():
        raise SystemExit(f"{LIBRARY} is missing: build the library first (make).")
    OUTPUT.mkdir(parents=True, exist_ok=True)
    show("C")
    build_c()
    show("Swift")
    build_swift()


def build_c() -> None:
    compiler = os.environ.get("CC", "cc")
    sources = sorted(str(path) for path in (DEMO / "C").glob("*.c"))
    quietly(
        [
            compiler,
            *C_FLAGS,
            f"-I{ROOT / 'Include'}",
            *sources,
            "-o",
            str(OUTPUT / "demo-c"),
            str(LIBRARY),
            f"-Wl,-rpath,{LIBRARY.parent}",
        ]
    )


def build_swift() -> None:
    quietly(
        [
            "swift",
            "build",
            "-c",
            "release",
            "--package-path",
            str(DEMO / "Swift"),
            "--scratch-path",
            str(OUTPUT / "swift"),
            "--product",
            "demo-swift",
        ]
    )


def quietly(command: list[str]) -> None:
    """Runs a compiler; prints its output only if it fails."""
    try:
        subprocess.run(
            command,
            check=True,
            timeout=BUILD_SECONDS,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    except subprocess.SubprocessError as error:
        output = (getattr(error, "output", None) or b"").decode(errors="replace")
        raise SystemExit(f"{output}\n{error}") from None
    except OSError as error:
        raise SystemExit(f"{command[0]}: {error.strerror}") from None


def programs(python: str, places: Places) -> dict[str, list[str]]:
    arguments = places.arguments()
    return {
        "C": [str(OUTPUT / "demo-c"), *arguments],
        "Python": [python, str(DEMO / "Python" / "main.py"), *arguments],
        "Swift": [str(OUTPUT / "swift" / "release" / "demo-swift"), *arguments],
    }


def environment() -> dict[str, str]:
    paths = [str(ROOT / "Bindings" / "Python" / "src"), str(DEMO), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        "PYTHONDONTWRITEBYTECODE": "1",
        "SHALE_LIBRARY": str(LIBRARY),
    }
