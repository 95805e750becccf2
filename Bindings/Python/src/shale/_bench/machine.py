"""Where and when a measurement was made."""

from __future__ import annotations

import os
import platform
import sqlite3
from datetime import datetime, timezone


def machine(directory: str) -> dict[str, str]:
    return {
        "begun": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "processor": _field("/proc/cpuinfo", "model name") or platform.machine(),
        "processors": str(os.cpu_count()),
        "memory": _field("/proc/meminfo", "MemTotal"),
        "kernel": f"{platform.system()} {platform.release()}",
        "file_system": _file_system(directory),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "sqlite": sqlite3.sqlite_version,
        "load": f"{os.getloadavg()[0]:.1f}",
    }


def _field(path: str, name: str) -> str:
    try:
        with open(path) as lines:
            found = (line.partition(":")[2].strip() for line in lines if line.startswith(name))
            return next(found, "")
    except OSError:
        return ""


def _file_system(directory: str) -> str:
    """The type of the one that is mounted there."""
    directory = os.path.realpath(directory)
    best = ("", "")
    try:
        with open("/proc/self/mounts") as lines:
            for line in lines:
                _, where, kind = line.split()[:3]
                inside = f"{directory}/".startswith(f"{where.rstrip('/')}/")
                if inside and len(where) >= len(best[0]):
                    best = (where, kind)
    except OSError:
        pass
    return best[1]
