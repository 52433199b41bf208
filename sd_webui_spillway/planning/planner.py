"""``auto``: the fastest profile that fits, and one sentence that says why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..host_port import Prediction
from ..placement.profile import Profile
from ..units import format_bytes
from .footprint import Footprint

CANDIDATES: tuple[tuple[Profile, bool], ...] = (
    (Profile.DEDICATED, False),
    (Profile.MEDVRAM, False),
    (Profile.MEDVRAM, True),
    (Profile.STREAM, False),
    (Profile.STREAM, True),
    (Profile.SPILL, True),
    (Profile.LOWVRAM, False),
    (Profile.LOWVRAM, True),
    (Profile.SEQUENTIAL, True),
)
"""Profile and whether the VAE runs in strips, from the fastest. Strips cost one or two seconds an image, ``lowvram``
many times the sampling, so a VAE in strips comes before a smaller placement of the UNet. ``spill`` is for cards without
``stream``, which is several times as fast in the same memory."""


@dataclass(frozen=True)
class Plan:
    """What ``auto`` decided."""

    profile: Profile
    tiled: bool
    peak_bytes: int
    reason: str


def plan(footprint: Footprint, free_bytes: int) -> Plan:
    """The fastest candidate whose peak fits in what is free (with no weights of ours on the card).

    Where none fits, the smallest; the guard then splits its rows.
    """
    dedicated = footprint.peak_bytes(Profile.DEDICATED)
    passed_over = {Profile.SPILL} if footprint.offers(Profile.STREAM) else set()
    candidates = [
        (profile, tiled) for profile, tiled in CANDIDATES if footprint.offers(profile) and profile not in passed_over
    ]
    for profile, tiled in candidates:
        peak = footprint.peak_bytes(profile, tiled=tiled)
        if peak <= free_bytes:
            return Plan(profile, tiled, peak, _reason(profile, tiled, peak, dedicated, free_bytes))
    profile, tiled = candidates[-1]
    peak = footprint.peak_bytes(profile, tiled=tiled)
    return Plan(
        profile,
        tiled,
        peak,
        f"{profile}, with the batch split: even one layer at a time needs {format_bytes(peak)} for the "
        f"{footprint.widest_call(profile, tiled=tiled).component} and {format_bytes(free_bytes)} are free.",
    )


def predictions(footprint: Footprint, free_bytes: int) -> Mapping[Profile, Prediction]:
    """What each placement would need, and whether that fits."""
    rows = {}
    offered = dict.fromkeys(profile for profile, _ in CANDIDATES if footprint.offers(profile))
    if footprint.unknown_because is not None:
        return dict.fromkeys(offered, Prediction(None, None, f"Unknown, because {footprint.unknown_because}."))
    for profile in offered:
        whole = footprint.peak_bytes(profile)
        tiled = footprint.peak_bytes(profile, tiled=True)
        if whole <= free_bytes:
            rows[profile] = Prediction(whole, True, f"Fits: {format_bytes(free_bytes)} are free.")
        elif tiled <= free_bytes:
            rows[profile] = Prediction(
                tiled, True, f"Fits with the VAE in strips; whole it would need {format_bytes(whole)}."
            )
        else:
            lacking = format_bytes(tiled - free_bytes)
            rows[profile] = Prediction(tiled, False, f"Needs {lacking} more than is free; the guard would step down.")
    return rows


def spilled_by_driver(footprint: Footprint, free_bytes: int) -> Prediction:
    """What ``spill`` would need where it is left to the graphics driver: all of it, wherever that is."""
    whole = footprint.peak_bytes(Profile.DEDICATED)
    if whole <= free_bytes:
        return Prediction(whole, True, f"Fits: {format_bytes(free_bytes)} are free.", 0)
    moved = whole - free_bytes
    note = f"The driver would move out {format_bytes(moved)}, as it sees fit."
    return Prediction(free_bytes, True, note, moved)


def _reason(profile: Profile, tiled: bool, peak: int, dedicated: int, free_bytes: int) -> str:
    needs = f"it needs {format_bytes(peak)} of the {format_bytes(free_bytes)} that are free"
    if profile is Profile.DEDICATED:
        return f"{profile}: {needs}."
    strips = " with the VAE in strips" if tiled else ""
    return f"{profile}{strips}: {needs}; dedicated would need {format_bytes(dedicated - free_bytes)} more than that."
