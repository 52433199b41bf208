"""Footprints of requests: what each call of each component needs, activations counted by running it without memory."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from torch import nn

from ..errors import first_line
from ..host_port import ImageRequest
from ..memory.shared_ledger import SharedLedger
from ..placement.component import Component, ComponentKind, parts
from ..placement.placements import largest_unit_bytes
from ..placement.profile import Profile
from ..placement.spill import SpillOptions, cut_up, least_on_card
from ..placement.stream import smallest_ring_bytes
from ..planning.activation_meter import ActivationMeter, Inputs
from ..planning.footprint import AllocatorOverhead, CallNeed, Footprint, UncountedError
from ..recovery.ladder import can_tile
from ..units import MIB

logger = logging.getLogger(__name__)
_T = TypeVar("_T")
_STRIP_ROWS, _STRIP_COPIES = 8, 10
"""The narrowest strip of a tiled VAE and how many copies of it live at once (see recovery.tiled_vae)."""

_TEXT_ENCODER_BYTES = 64 * MIB
"""A prompt of 77 tokens in the largest text encoder of SDXL: see bench/results, footprint."""


class CallShapes(Protocol):
    """What a host hands to its components."""

    def counts(self, component: Component) -> bool:
        """Whether :meth:`inputs` knows this component's calls; those of others are taken as a text encoder's."""

    def inputs(self, component: Component, call: str, request: ImageRequest) -> Inputs:
        """Arguments of the shapes that the host passes in one call, filled with zeros, on the CPU; half precision as
        :func:`~..planning.activation_meter.fake_dtype` says."""

    def vae_channels(self) -> tuple[int, ...]:
        """Channels of the VAE by level, the picture's own size first."""

    def vae_item_bytes(self) -> int:
        """Bytes of one number in the VAE."""


class FootprintMeter:
    """Works out footprints of requests. Make it before any guard or placement is on the model."""

    def __init__(
        self,
        components: Sequence[Component],
        shapes: CallShapes,
        overhead: AllocatorOverhead,
        ledger: SharedLedger | None = None,
    ) -> None:
        """``ledger`` is where ``stream`` and ``spill`` pin; ``None`` where the card has neither."""
        self._overhead = overhead
        self._components = components
        self._shapes = shapes
        self._uncounted: dict[tuple[Any, ...], str] = {}
        """Why, by what was to be counted: each is tried once."""
        counted = [component for component in components if shapes.counts(component)]
        self._meters = {component.name: self._meter(component) for component in counted}
        self._largest_unit = {
            profile: largest_unit_bytes(profile, components)
            for profile in (Profile.LOWVRAM, Profile.SEQUENTIAL)
        }
        self._ledger = ledger
        self._cut = cut_up(components, SpillOptions())
        if ledger is not None:
            self._largest_unit[Profile.STREAM] = smallest_ring_bytes(components)
        self._model_bytes = sum(_weights_bytes([component.module]) for component in components)
        self._activations: dict[tuple[Any, ...], int] = {}

    def footprint(self, request: ImageRequest) -> Footprint:
        """The footprint of one batch of this request.

        Raises:
            UncountedError: a component cannot be run without memory as it is.
        """
        calls = []
        for component in self._components:
            for call, modules in parts(component).items():
                if component.kind is ComponentKind.VAE and not _runs(call, request):
                    continue
                calls.append(self._need(component, call, modules, request))
        return Footprint(self._model_bytes, tuple(calls), self._overhead)

    def weights_bytes(self) -> Mapping[Profile, int]:
        """The least that each profile's weights take on the card at once."""
        whole = {component.name: max(map(_weights_bytes, parts(component).values())) for component in self._components}
        least = {
            profile: max({**whole, **units}.values())
            for profile, units in {Profile.MEDVRAM: {}, **self._largest_unit}.items()
        }
        if self._ledger is not None:
            least[Profile.SPILL] = least_on_card(self._cut, self._ledger.cap_bytes)
        return {Profile.DEDICATED: self._model_bytes, **least}

    def _need(self, component: Component, call: str, modules: Any, request: ImageRequest) -> CallNeed:
        whole = _weights_bytes(modules)
        key = (component.name, call, request.width, request.height, rows_per_call(component, request))
        if component.name not in self._meters:
            self._activations[key] = _TEXT_ENCODER_BYTES
        elif key not in self._activations:
            self._activations[key] = self._activation_bytes(component, call, request, key)
        weights = {profile: units.get(component.name, whole) for profile, units in self._largest_unit.items()}
        if self._ledger is not None:
            weights[Profile.SPILL] = least_on_card(self._cut, self._ledger.cap_bytes)
        return CallNeed(
            component=component.name,
            call=call,
            weights_bytes={Profile.MEDVRAM: whole, **weights},
            activation_bytes=self._activations[key],
            tiled_activation_bytes=self._tiled_bytes(request) if can_tile(component, call) else None,
        )

    def _meter(self, component: Component) -> ActivationMeter | None:
        try:
            return self._tried(component, (component.name,), lambda: ActivationMeter(component.module))
        except UncountedError:
            return None

    def _activation_bytes(
        self, component: Component, call: str, request: ImageRequest, key: tuple[Any, ...]
    ) -> int:
        meter = self._meters[component.name]
        if meter is None:
            raise UncountedError(self._uncounted[component.name,])
        return self._tried(
            component, key, lambda: meter.peak_bytes(call, lambda: self._shapes.inputs(component, call, request))
        )

    def _tried(self, component: Component, key: tuple[Any, ...], count: Callable[[], _T]) -> _T:
        """What others have made of a component is beyond foreseeing: a count that fails is unknown, and costs nothing
        else."""
        if key not in self._uncounted:
            try:
                return count()
            except Exception as error:
                logger.warning("the %s's activations cannot be counted", component.kind, exc_info=True)
                self._uncounted[key] = (
                    f"What the {component.kind}'s activations take is unknown, because running it without memory "
                    f"failed: {first_line(error)}."
                )
        raise UncountedError(self._uncounted[key])

    def _tiled_bytes(self, request: ImageRequest) -> int:
        """Strips at the picture's full size, or the middle block at an eighth of it, whichever is larger."""
        channels = self._shapes.vae_channels()
        strip = request.width * channels[min(1, len(channels) - 1)] * _STRIP_ROWS
        middle = request.width // 8 * request.height // 8 * channels[-1]
        return max(strip, middle) * self._shapes.vae_item_bytes() * _STRIP_COPIES


def rows_per_call(component: Component, request: ImageRequest) -> int:
    """Rows of one call: prompt and negative prompt for each image of a batch, one image at a time in the VAE."""
    if component.kind is ComponentKind.UNET:
        return request.batch_size * (2 if request.guidance_scale > 1 else 1)
    return 1


def _runs(call: str, request: ImageRequest) -> bool:
    return call == "decode" or (call == "encode" and request.init_image is not None)


def _weights_bytes(modules: Iterable[nn.Module]) -> int:
    tensors = {id(t): t.nbytes for module in modules for t in (*module.parameters(), *module.buffers())}
    return sum(tensors.values())
