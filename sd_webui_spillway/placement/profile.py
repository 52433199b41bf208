"""The profiles: named ways to place a model's weights, from the fastest to the smallest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

from ..errors import BadInputError


class Profile(str, Enum):
    """A way to place weights; ``AUTO`` picks one of the others."""

    AUTO = "auto"
    DEDICATED = "dedicated"
    MEDVRAM = "medvram"
    LOWVRAM = "lowvram"
    SEQUENTIAL = "sequential"
    STREAM = "stream"
    SPILL = "spill"

    def __str__(self) -> str:
        return self.value

    @classmethod
    def parse(cls, name: str) -> Profile:
        """The profile of that name.

        Raises:
            BadInputError: there is none.
        """
        try:
            return cls(name.strip().lower())
        except ValueError:
            known = ", ".join(profile.value for profile in cls)
            raise BadInputError(f"There is no profile “{name}”; choose one of {known}.") from None


@dataclass(frozen=True)
class ProfileInfo:
    """What a profile does, in one line, and what it costs, in another."""

    summary: str
    trade_off: str
    unavailable_because: str | None = None


PROFILES: Mapping[Profile, ProfileInfo] = MappingProxyType({
    Profile.AUTO: ProfileInfo(
        "picks the fastest profile that fits and says why",
        "Looks at the size and batch asked for and at what is free on the card.",
    ),
    Profile.DEDICATED: ProfileInfo(
        "the whole model stays in memory on the card", "Fastest; needs the most memory on the card."),
    Profile.MEDVRAM: ProfileInfo(
        "one component (text encoder, UNet, VAE) on the card at a time",
        "Costs one copy of each component per batch.",
    ),
    Profile.LOWVRAM: ProfileInfo(
        "one block of the UNet on the card at a time", "Copies the whole UNet at every step: many times slower."),
    Profile.SEQUENTIAL: ProfileInfo(
        "one layer on the card at a time", "The smallest of all, and the slowest."),
    Profile.STREAM: ProfileInfo(
        "as much as the budget allows stays; the rest flows through a small ring",
        "Close to dedicated speed in a fraction of the memory; takes pinned system memory up to the cap.",
    ),
    Profile.SPILL: ProfileInfo(
        "what does not fit is read in place from system memory the card borrows",
        "Nothing moves; slow for large matrix products; takes pinned system memory up to the cap.",
    ),
})

SPILL_BY_DRIVER = ProfileInfo(
    "the whole model is on the card; the graphics driver moves out what does not fit",
    "Moves anything, activations too, without a cap and without a word; often many times slower.",
)
"""What ``spill`` does where the user leaves it to the driver."""

NEED_LINK = (Profile.STREAM, Profile.SPILL)
"""The placements that only a card with a link to pinned memory has."""

SMALLER: Mapping[Profile, tuple[Profile, ...]] = MappingProxyType({
    Profile.DEDICATED: (Profile.MEDVRAM,),
    Profile.MEDVRAM: (Profile.STREAM, Profile.LOWVRAM),
    Profile.LOWVRAM: (Profile.SEQUENTIAL,),
    Profile.SPILL: (Profile.STREAM, Profile.SEQUENTIAL),
    Profile.STREAM: (Profile.SEQUENTIAL,),
})
"""The next smaller placement, the way the guard's ladder goes down: the first of these that the card has."""
