"""The cap: the most shared memory this software may cause to be used."""

from __future__ import annotations

from ..errors import BadInputError
from ..units import GIB

DEFAULT_CAP_BYTES = 6 * GIB
DEFAULT_CAP_RAM_PERCENT = 30.0
"""A system that has 90 % of its memory pinned stops answering; a third of it does no harm."""


def shared_cap_bytes(ram_total_bytes: int | None, cap_bytes: int | None, cap_ram_percent: float | None) -> int:
    """The lower of a size and a share of RAM; where the user gave neither, of both defaults.

    Raises:
        BadInputError: a negative size, or a percentage outside 0 to 100.
    """
    if cap_bytes is not None and cap_bytes < 0:
        raise BadInputError("The cap on shared memory cannot be negative.")
    if cap_ram_percent is not None and not 0 <= cap_ram_percent <= 100:
        raise BadInputError(f"The cap must be from 0 to 100 % of RAM, not {cap_ram_percent:g} %.")
    if cap_bytes is None and cap_ram_percent is None:
        cap_bytes, cap_ram_percent = DEFAULT_CAP_BYTES, DEFAULT_CAP_RAM_PERCENT
    limits = []
    if cap_bytes is not None:
        limits.append(cap_bytes)
    if cap_ram_percent is not None and ram_total_bytes is not None:
        limits.append(int(ram_total_bytes * cap_ram_percent / 100))
    return min(limits, default=DEFAULT_CAP_BYTES)
