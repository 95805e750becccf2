"""`speed`, the extension in C, if this Python has it.

It does only what the modules in Python do, faster. ``SHALE_SPEED=0`` in the environment disables
it.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Final

ENVIRONMENT_VARIABLE: Final = "SHALE_SPEED"


def _load() -> Any:
    # (An older Python would load an extension that was built for a newer one.)
    if os.environ.get(ENVIRONMENT_VARIABLE) == "0" or sys.version_info < (3, 11):
        return None
    try:
        from . import speed  # type: ignore[attr-defined]
    except ImportError:
        return None
    return speed


speed: Final = _load()
