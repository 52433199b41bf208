"""The footprint of a request: the memory on the card that it needs under each profile. Plain arithmetic, in bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..placement.profile import Profile


@dataclass(frozen=True)
class CallNeed:
    """One call of one component: what it needs beside whatever else is on the card."""

    component: str
    call: str
    weights_bytes: Mapping[Profile, int]
    """The most of this component's weights on the card at once during the call, by profile."""
    activation_bytes: int
    tiled_activation_bytes: int | None = None
    """In strips; ``None`` where the call cannot run so."""

    def activations(self, *, tiled: bool) -> int:
        """Activations, in strips if asked for and possible."""
        if tiled and self.tiled_activation_bytes is not None:
            return min(self.activation_bytes, self.tiled_activation_bytes)
        return self.activation_bytes


@dataclass(frozen=True)
class Footprint:
    """All calls of a request."""

    model_bytes: int
    """Weights of every component together."""
    calls: tuple[CallNeed, ...]

    def peak_bytes(self, profile: Profile, *, tiled: bool = False) -> int:
        """The peak on the card under a profile, with the VAE whole or in strips."""
        return max(self._call_peak(call, profile, tiled=tiled) for call in self.calls)

    def widest_call(self, profile: Profile, *, tiled: bool = False) -> CallNeed:
        """The call that sets the peak."""
        return max(self.calls, key=lambda call: self._call_peak(call, profile, tiled=tiled))

    def _call_peak(self, call: CallNeed, profile: Profile, *, tiled: bool) -> int:
        weights = self.model_bytes if profile is Profile.DEDICATED else call.weights_bytes[profile]
        return weights + call.activations(tiled=tiled)
