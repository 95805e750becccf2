"""A check that the serializers for web frameworks have in common."""

from __future__ import annotations

import contextlib

import pytest
from shale._data.values import LOADS_ERRORS
from shale.adapters._forms import FormSerializer


def check_damaged(serializer: FormSerializer, data: bytes) -> None:
    """Bytes that are cut off cannot be read, and changed ones raise nothing else."""
    for end in range(len(data)):
        with pytest.raises(LOADS_ERRORS):
            serializer.loads(data[:end])
    for at in range(len(data)):
        for flip in (1, 128):
            with contextlib.suppress(*LOADS_ERRORS):
                serializer.loads(data[:at] + bytes((data[at] ^ flip,)) + data[at + 1 :])
