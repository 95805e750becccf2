"""`_speed`, the extension in C, where this Python has one.

It does nothing that the modules in Python don't do. ``SHALE_SPEED=0`` in the environment leaves it
out.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Final

ENVIRONMENT_VARIABLE: Final = "SHALE_SPEED"


def _load() -> Any:
    # (An older one would load what was built for a newer.)
    if os.environ.get(ENVIRONMENT_VARIABLE) == "0" or sys.version_info < (3, 11):
        return None
    try:
        from . import _speed
    except ImportError:
        return None
    return _speed


speed: Final = _load()
