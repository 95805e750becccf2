"""Environments of Python's for tools that the project does not bring along."""

import subprocess
import sys
from pathlib import Path


def environment(folder: Path, requirements: Path) -> Path:
    """The Python of one that has what a file of requirements names; it is made anew where that has changed."""
    python = folder / "bin" / "python"
    installed = folder / requirements.name
    if not installed.is_file() or installed.read_bytes() != requirements.read_bytes():
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        subprocess.run(
            [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "-r", requirements], check=True
        )
        installed.write_bytes(requirements.read_bytes())
    return python
