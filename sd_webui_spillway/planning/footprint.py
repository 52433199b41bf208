"""The footprint of a request: the memory on the card that it needs under each profile. Plain arithmetic, in bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ..placement.profile import Profile
from ..units import MIB


@dataclass(frozen=True)
class AllocatorOverhead:
    """What a device's allocator and libraries take beside the bytes that are counted."""

    weights_factor: float = 1.0
    activations_factor: float = 1.0
    fixed_bytes: int = 0

    def needed_bytes(self, weights_bytes: int, activation_bytes: int) -> int:
        return int(weights_bytes * self.weights_factor + activation_bytes * self.activations_factor) + self.fixed_bytes

    def weights_bytes(self, total_bytes: int, activation_bytes: int) -> int:
        """The most weights with which, beside these activations, no more than ``total_bytes`` are needed."""
        left = total_bytes - self.fixed_bytes - activation_bytes * self.activations_factor
        return max(0, int(left / self.weights_factor))


CUDA_OVERHEAD = AllocatorOverhead(1.07, 1.15, 64 * MIB)
"""Fitted to the smallest limits under which single calls of SD 1.5 and SDXL succeed on an H200, by
``python -m sd_webui_spillway.bench.footprint`` (bench/results): torch rounds weights up to segments, cuDNN wants a
workspace."""


@dataclass(frozen=True)
class CallNeed:
    """One call of one component: what it needs beside whatever else is on the card."""

    component: str
    call: str
    weights_bytes: Mapping[Profile, int]
    """The most of this component's weights on the card at once during the call, by profile that the card has; under
    ``stream`` the least that it can be, and under ``spill``, where the others' weights stay as well, the least of all
    components together."""
    activation_bytes: int
    tiled_activation_bytes: int | None = None
    """In strips; ``None`` where the call cannot run so."""

    @property
    def whole_bytes(self) -> int:
        """All of the call's weights."""
        return self.weights_bytes[Profile.MEDVRAM]

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
    overhead: AllocatorOverhead = AllocatorOverhead()
    unknown_because: str | None = None
    """Why activations are taken as usual for their size instead of counted; ``None`` where they are counted."""

    def offers(self, profile: Profile) -> bool:
        """Whether the card has this profile."""
        return profile is Profile.DEDICATED or all(profile in call.weights_bytes for call in self.calls)

    def without(self, profile: Profile) -> Footprint:
        """The same without this profile."""
        def less(call: CallNeed) -> CallNeed:
            kept = {name: size for name, size in call.weights_bytes.items() if name is not profile}
            return replace(call, weights_bytes=kept)

        return replace(self, calls=tuple(map(less, self.calls)))

    def weights_budget(self, free_bytes: int, profile: Profile = Profile.STREAM) -> int | None:
        """What of ``free_bytes`` is left for weights: under ``stream`` beside the activations of the calls that stream,
        ``None`` where nothing does; under ``spill`` beside those of any call, the VAE's in strips."""
        if profile is Profile.SPILL:
            return self.overhead.weights_bytes(free_bytes, max(call.activations(tiled=True) for call in self.calls))
        streaming = [
            call.activation_bytes for call in self.calls
            if call.weights_bytes.get(Profile.STREAM, call.whole_bytes) < call.whole_bytes
        ]
        return self.overhead.weights_bytes(free_bytes, max(streaming)) if streaming else None

    def strips_beside_spilled(self, free_bytes: int) -> bool:
        """Whether, under ``spill``, the VAE has to run in strips for the others' weights to stay on the card. Strips
        cost seconds an image, gigabytes of a UNet read in place cost them at every step."""
        return self.peak_bytes_within(free_bytes, Profile.SPILL) > free_bytes

    def peak_bytes(self, profile: Profile, *, tiled: bool = False) -> int:
        """The peak on the card under a profile, with the VAE whole or in strips."""
        return max(self._call_peak(call, profile, tiled=tiled) for call in self.calls)

    def peak_bytes_within(
        self, free_bytes: int, profile: Profile = Profile.STREAM, *, tiled: bool = False
    ) -> int:
        """The peak on the card under ``stream`` or ``spill``, with as many weights kept as :meth:`weights_budget`
        allows."""
        budget = self.weights_budget(free_bytes, profile) or 0
        return max(
            self.overhead.needed_bytes(
                max(call.weights_bytes[profile], min(self._all_bytes(call, profile), budget)),
                call.activations(tiled=tiled),
            )
            for call in self.calls
        )

    def _all_bytes(self, call: CallNeed, profile: Profile) -> int:
        """The weights that could be on the card during a call: its own, or with ``spill`` every component's."""
        return self.model_bytes if profile is Profile.SPILL else call.whole_bytes

    def widest_call(self, profile: Profile, *, tiled: bool = False) -> CallNeed:
        """The call that sets the peak."""
        return max(self.calls, key=lambda call: self._call_peak(call, profile, tiled=tiled))

    def _call_peak(self, call: CallNeed, profile: Profile, *, tiled: bool) -> int:
        weights = self.model_bytes if profile is Profile.DEDICATED else call.weights_bytes[profile]
        return self.overhead.needed_bytes(weights, call.activations(tiled=tiled))
