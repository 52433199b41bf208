"""Footprints of requests: what each call of each component needs, activations counted by running it without memory."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

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
from ..planning.footprint import AllocatorOverhead, CallNeed, Footprint
from ..recovery.ladder import can_tile
from ..units import MIB

logger = logging.getLogger(__name__)
_STRIP_ROWS, _STRIP_COPIES = 8, 10
"""The narrowest strip of a tiled VAE and how many copies of it live at once (see recovery.tiled_vae)."""

_TEXT_ENCODER_BYTES = 64 * MIB
"""A prompt of 77 tokens in the largest text encoder of SDXL: see bench/results, footprint."""

_USUAL_BYTES = {ComponentKind.UNET: 256, ComponentKind.VAE: 2048}
"""Of activations for each pixel of a row, where they cannot be counted: half as much again as SDXL's at 1024² in half
precision."""


class CallShapes(Protocol):
    """What a host hands to its components."""

    def counts(self, component: Component) -> bool:
        """Whether :meth:`inputs` knows this component's calls; those of others are taken as a text encoder's."""

    def adapt(self, copy: nn.Module) -> None:
        """Take out of a weightless copy of a component what the host has put on its layers and cannot run so."""

    def inputs(self, component: Component, call: str, request: ImageRequest) -> Inputs:
        """Arguments of the shapes that the host passes in one call, filled with zeros, on the CPU; half precision as
        :func:`~..planning.activation_meter.fake_dtype` says."""

    def vae_channels(self) -> tuple[int, ...]:
        """Channels of the VAE by level, the picture's own size first."""

    def vae_item_bytes(self) -> int:
        """Bytes of one number in the VAE."""


class FootprintMeter:
    """Works out footprints of requests."""

    def __init__(
        self,
        components: Sequence[Component],
        shapes: CallShapes,
        overhead: AllocatorOverhead,
        ledger: SharedLedger | None = None,
        counted: dict[tuple[Any, ...], int] | None = None,
    ) -> None:
        """
        Args:
            ledger: where ``stream`` and ``spill`` pin; ``None`` where the card has neither.
            counted: activations in bytes that other meters of this host have counted; what this one counts is added. A
                model of the same make, which most checkpoints are, need not be counted again.
        """
        self._overhead = overhead
        self._components = components
        self._shapes = shapes
        self._meters = {
            component.name: ActivationMeter(component.module, shapes.adapt)
            for component in components if shapes.counts(component)
        }
        self._uncounted: dict[str, str] = {}
        """By component whose activations cannot be counted, why."""
        self._largest_unit = {
            profile: largest_unit_bytes(profile, components)
            for profile in (Profile.LOWVRAM, Profile.SEQUENTIAL)
        }
        self._ledger = ledger
        self._cut = cut_up(components, SpillOptions())
        if ledger is not None:
            self._largest_unit[Profile.STREAM] = smallest_ring_bytes(components)
        self._model_bytes = sum(_weights_bytes([component.module]) for component in components)
        self._makes = {component.name: _make(component.module) for component in components}
        self._counted = {} if counted is None else counted

    def footprint(self, request: ImageRequest) -> Footprint:
        """The footprint of one batch of this request."""
        calls = []
        for component in self._components:
            for call, modules in parts(component).items():
                if component.kind is ComponentKind.VAE and not _runs(call, request):
                    continue
                calls.append(self._need(component, call, modules, request))
        because = next((f"the {name}'s work cannot be counted ({why})" for name, why in self._uncounted.items()), None)
        return Footprint(self._model_bytes, tuple(calls), self._overhead, because)

    @contextmanager
    def _trying(self, component: Component) -> Iterator[None]:
        """What runs on the layers is the host's and its extensions', and not all of it can run without memory."""
        try:
            yield
        except Exception as error:
            logger.exception("what the %s needs is not counted", component.name)
            self._uncounted[component.name] = first_line(error)

    def _activation_bytes(self, component: Component, call: str, request: ImageRequest) -> int:
        if component.name not in self._meters:
            return _TEXT_ENCODER_BYTES
        rows = rows_per_call(component, request)
        key = (self._makes[component.name], call, request.width, request.height, rows)
        if key not in self._counted and component.name not in self._uncounted:
            with self._trying(component):
                self._counted[key] = self._meters[component.name].peak_bytes(
                    call, lambda: self._shapes.inputs(component, call, request)
                )
        if key in self._counted:
            return self._counted[key]
        pixels = request.width * request.height * rows
        return max(_TEXT_ENCODER_BYTES, pixels * _USUAL_BYTES.get(component.kind, 0))

    def _need(self, component: Component, call: str, modules: Any, request: ImageRequest) -> CallNeed:
        whole = _weights_bytes(modules)
        weights = {profile: units.get(component.name, whole) for profile, units in self._largest_unit.items()}
        if self._ledger is not None:
            weights[Profile.SPILL] = least_on_card(self._cut, self._ledger.cap_bytes)
        return CallNeed(
            component=component.name,
            call=call,
            weights_bytes={Profile.MEDVRAM: whole, **weights},
            activation_bytes=self._activation_bytes(component, call, request),
            tiled_activation_bytes=self._tiled_bytes(request) if can_tile(component, call) else None,
        )

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


def _make(module: nn.Module) -> int:
    """The same for modules with weights of the same names, shapes and types."""
    named = (*module.named_parameters(), *module.named_buffers())
    return hash(tuple((name, tuple(tensor.shape), tensor.dtype) for name, tensor in named))
