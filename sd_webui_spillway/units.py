"""Bytes and seconds as people write them. Inside the program both are plain numbers; format only at the edge."""

from __future__ import annotations

import re

from .errors import BadInputError

KIB, MIB, GIB = 2**10, 2**20, 2**30
_UNITS = {
    "": 1, "b": 1,
    "k": KIB, "kb": 10**3, "kib": KIB,
    "m": MIB, "mb": 10**6, "mib": MIB,
    "g": GIB, "gb": 10**9, "gib": GIB,
    "t": 2**40, "tb": 10**12, "tib": 2**40,
}
_BYTES = re.compile(r"\s*(\d+(?:[.,]\d+)?)\s*([a-zA-Z]*)\s*")


def parse_bytes(text: str) -> int:
    """``"3GiB"``, ``"3.5 g"``, ``"800MiB"`` or a plain count, as bytes (``GB`` is 10⁹, ``GiB`` and ``G`` 2³⁰).

    Raises:
        BadInputError: not a size, or not above zero.
    """
    match = _BYTES.fullmatch(text)
    unit = match.group(2).lower() if match else None
    if match is None or unit not in _UNITS:
        raise BadInputError(f"“{text}” is not a memory size; write for example 3GiB or 800MiB.")
    size = int(float(match.group(1).replace(",", ".")) * _UNITS[unit])
    if size <= 0:
        raise BadInputError(f"“{text}” is no usable memory size; it must be above zero.")
    return size


def format_bytes(size_bytes: int | None) -> str:
    """Bytes for a person: one decimal in GiB, whole MiB below 0.1 GiB; ``None`` is "unknown"."""
    if size_bytes is None:
        return "unknown"
    if abs(size_bytes) >= 0.1 * GIB or size_bytes == 0:
        return f"{size_bytes / GIB:.1f} GiB"
    return f"{size_bytes / MIB:.0f} MiB" if abs(size_bytes) >= MIB else f"{size_bytes / KIB:.0f} KiB"


def format_seconds(seconds: float | None) -> str:
    """Seconds for a person: two decimals below a minute, minutes and seconds above; ``None`` is "unknown"."""
    if seconds is None:
        return "unknown"
    if seconds < 60:
        return f"{seconds:.2f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s"
