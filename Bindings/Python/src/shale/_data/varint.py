"""Sizes in as few bytes as possible: seven bits a byte, the lowest first."""

from __future__ import annotations


def size_bytes(size: int) -> bytes:
    if size < 0x80:
        return bytes((size,))
    out = bytearray()
    while size >= 0x80:
        out.append(size & 0x7F | 0x80)
        size >>= 7
    out.append(size)
    return bytes(out)


def read_size(data: bytes, at: int) -> tuple[int, int]:
    """The size at ``at`` and the position after it. ValueError if it is cut off."""
    size = shift = 0
    while shift < 63:
        if at >= len(data):
            raise ValueError("a size is cut off")
        byte = data[at]
        at += 1
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            return size, at
        shift += 7
    raise ValueError("a size is too long")
