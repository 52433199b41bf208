"""What an image took, as an entry of the webui's infotext: ``Spillway: "stream 41%, 2.31 s, 5.6+0.9 GiB"``."""

from __future__ import annotations

import re

from ...units import GIB, format_bytes, format_seconds

KEY, ID_KEY = "Spillway", "Spillway id"
ID_LENGTH = 8
"""The first hexadecimal digits of the image record's id."""
_ENTRIES = re.compile(rf', (?:{KEY}|{ID_KEY}): (?:"(?:\\.|[^\\"])*"|[^,\n]*)')
"""As ``infotext_utils.quote`` of the webui writes them: a text with a comma or a colon as a JSON string."""


def entry_text(
    profile: str,
    resident_percent: int | None,
    seconds: float,
    dedicated_bytes: int | None,
    shared_bytes: int | None,
    *,
    simulated: bool = False,
) -> str:
    """Profile, part of the weights that stays on the card, seconds so far, peaks of dedicated and shared memory.

    What is unknown is left out, and so is shared memory where none was used.
    """
    parts = [profile if resident_percent is None else f"{profile} {resident_percent}%", format_seconds(seconds)]
    memory = _memory(dedicated_bytes, shared_bytes or None)
    if memory:
        parts.append(memory)
    return ", ".join(parts) + (" (simulated)" if simulated else "")


def _memory(dedicated_bytes: int | None, shared_bytes: int | None) -> str:
    if dedicated_bytes is None:
        return f"{format_bytes(shared_bytes)} shared" if shared_bytes else ""
    if shared_bytes is None:
        return format_bytes(dedicated_bytes)
    if min(dedicated_bytes, shared_bytes) >= 0.1 * GIB:
        return f"{dedicated_bytes / GIB:.1f}+{shared_bytes / GIB:.1f} GiB"
    return f"{format_bytes(dedicated_bytes)} + {format_bytes(shared_bytes)}"


def without_entries(infotext: str) -> str:
    """The infotext of a picture that is no finished image (a mask, a picture before face restoration)."""
    *prompt, parameters = infotext.split("\n")
    return "\n".join([*prompt, _ENTRIES.sub("", parameters)])
