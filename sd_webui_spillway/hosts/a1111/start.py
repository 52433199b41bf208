"""What the host was started with: its device, and the profile to begin with."""

from __future__ import annotations

import logging
from typing import Any

from ...errors import BadInputError, UnavailableError
from ...placement.card import Card, CudaCard
from ...placement.profile import Profile
from ...placement.simulated import SimulatedCard
from ...placement.simulated_link import SimulatedLink
from ...settings import SettingsFile
from ...units import parse_bytes

logger = logging.getLogger(__name__)


def first_profile(flags: Any, settings: SettingsFile) -> Profile:
    """Our own flag; else what was chosen last; else, at the very first start, what the host's flags mean. It is put
    into the settings, where the page shows it."""
    asked = getattr(flags, "spillway_profile", None)
    profile = settings.value.profile
    if asked:
        try:
            profile = Profile.parse(asked)
        except BadInputError as error:
            logger.warning("--spillway-profile: %s", error)
    elif not settings.existed:
        if flags.lowvram:
            profile = Profile.LOWVRAM
        elif flags.medvram or flags.medvram_sdxl:
            profile = Profile.MEDVRAM
    if profile is not settings.value.profile:
        settings.change(profile=profile)
    return profile


def open_card() -> Card:
    """The card that the host computes on; without a GPU a simulated one, if a size for it was given.

    Raises:
        UnavailableError: there is none that this software can place on.
    """
    from modules import devices, shared

    limit = getattr(shared.cmd_opts, "spillway_dedicated_limit", None)
    limit_bytes = parse_bytes(limit) if limit else None
    kind = devices.device.type
    if kind == "cuda":
        return CudaCard(limit_bytes, devices.device.index)
    if kind == "cpu" and limit_bytes is not None:
        return SimulatedCard(limit_bytes, SimulatedLink())
    raise UnavailableError("there is no GPU here" if kind == "cpu" else f"{kind} devices have no placements yet")


def device_index() -> int:
    """The card's number as torch counts."""
    from modules import shared

    chosen = str(shared.cmd_opts.device_id or "0")
    return int(chosen) if chosen.isdigit() else 0
